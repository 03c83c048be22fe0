"""Measure this package against what a user would pick instead: ``make bench``.

``make bench ARGS="run imports --rounds 9"`` runs two of the measures. The table goes to stdout,
progress to stderr, every round to ``build/bench.json``. A whole run takes about 20 minutes.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import (
    clouds,
    cpu,
    operations,
    races,
    record,
    resumer_pass,
    resumes,
    runs,
    schedules,
    starts,
    table,
    tiny_batches,
)
from tests.bench.measure import Bench, Figure

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
    "tick": clouds.tick,
    "resumer": resumer_pass.resumer_pass,
    "tiny": tiny_batches.tiny,
    "operations": operations.operations,
    "schedules": schedules.schedules,
}
FEWEST_ROUNDS = 7
KEPT = Path("build/bench.json")


def parsed() -> argparse.Namespace:
    listed = "\n".join(
        f"  {name:12} {(measure.__doc__ or '').splitlines()[0]}"
        for name, measure in MEASURES.items()
    )
    parser = argparse.ArgumentParser(
        prog="make bench",
        description=f"{__doc__}\nMeasures:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("measures", nargs="*", choices=[[], *MEASURES], metavar="MEASURE")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS)
    parser.add_argument("--json", type=Path, default=KEPT, metavar="FILE",
                        help=f"where every round is kept ({KEPT})")  # fmt: skip
    parser.add_argument("--markdown", action="store_true",
                        help="measure nothing, print what is kept as Markdown")  # fmt: skip
    return parser.parse_args()


def main() -> int:
    arguments = parsed()
    if arguments.markdown:
        kept = record.read(arguments.json)
        sys.stdout.write(table.markdown({name: kept[name] for name in MEASURES if name in kept}))
        return 0
    bench, found, failed = Bench(arguments.rounds), {}, []
    for name in arguments.measures or MEASURES:
        bench.begin(name)
        try:
            found[name] = record.record(list(MEASURES[name](bench)), arguments.rounds)
        except Exception:  # the others are worth having all the same
            traceback.print_exc()
            failed.append(name)
        record.keep(arguments.json, found)
    bench.end()
    sys.stdout.write(table.text(found))
    sys.stdout.write(f"FAILED: {', '.join(failed)}\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
