"""Measure this package against what a user would pick instead: ``make bench``.

``make bench ARGS="run imports --rounds 9"`` runs two of the measures. The table goes to stdout,
progress to stderr, every round to ``build/bench.json``.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import clouds, cpu, races, resumer_pass, resumes, runs, starts, tiny_batches
from tests.bench.measure import Bench, Figure
from tests.bench.table import document, text

MEASURES: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "calls": runs.calls,
    "cpu": cpu.cpu,
    "run": runs.run,
    "lock": runs.lock,
    "resume": resumes.resume,
    "duplicate": races.duplicate,
    "race": races.race,
    "imports": starts.imports,
    "memory": starts.memory,
    "early-stop": clouds.early_stop,
    "resumer": resumer_pass.resumer_pass,
    "tiny": tiny_batches.tiny,
}
FEWEST_ROUNDS = 7


def parsed() -> argparse.Namespace:
    listed = "\n".join(
        f"  {name:12} {(measure.__doc__ or '').splitlines()[0]}"
        for name, measure in MEASURES.items()
    )
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=f"{__doc__}\n\nMeasures:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("measures", nargs="*", choices=[[], *MEASURES], metavar="MEASURE")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS)
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), metavar="FILE")
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    bench = Bench(arguments.rounds)
    found: dict[str, list[Figure]] = {}
    failed = []
    for name in arguments.measures or MEASURES:
        bench.begin(name)
        try:
            found[name] = list(MEASURES[name](bench))
        except Exception:  # the others are worth having all the same
            traceback.print_exc()
            failed.append(name)
    bench.end()
    sys.stdout.write(text(found))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(document(found, arguments.rounds), "utf-8")
    sys.stdout.write(f"FAILED: {', '.join(failed)}\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
