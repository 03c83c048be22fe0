"""Many tiny batches: what ``checkpoint_interval`` saves, and what a kill repeats.

Run as ``python -m tests.bench.tiny_batches SLOT LEDGER`` it is the process that is killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from anarchon_ddb import Run, job
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, scheduler_event
from tests.bench.endpoint import metering, new_slots, python, quiet, require, server
from tests.bench.measure import Bench, Figure, Goal, number
from tests.bench.sides.ours import NAME, Ours
from tests.dynalite import Dynalite

ROOT = Path(__file__).parents[2]
BATCHES, BATCH_S = 10_000, 0.001
INTERVAL, INTERVAL_S = "1s", 1.0
SLACK_S = 0.1
"""The batch in hand, and the call that is under way when the interval ends."""


class TinyBatches(Ours):
    """A job of batches that take a millisecond."""

    def work(self, run: Run) -> None:
        for cursor in range((run.checkpoint or 0) + 1, self.batches + 1):
            until_s = time.perf_counter() + BATCH_S
            while time.perf_counter() < until_s:
                pass
            run.save(cursor)


def tiny(bench: Bench) -> Iterator[Figure]:
    """10,000 batches of 1 ms with checkpoint_interval: writes saved, work repeated after a kill."""
    slots = new_slots()
    with server() as dynalite, TemporaryDirectory(prefix="bench-tiny-") as directory:
        store = dynalite.new_table()
        each = TinyBatches(dynalite, store)
        seldom = TinyBatches(dynalite, store, checkpoint_interval=INTERVAL)
        bench.tell("every batch saved, once")
        writes, took_s = _written(each, next(slots))
        fewer, times_s = [], []
        for round_number in range(bench.rounds):
            bench.tell(f"round {round_number + 1} of {bench.rounds}: an interval of {INTERVAL}")
            written, seconds = _written(seldom, next(slots))
            fewer.append(written)
            times_s.append(seconds)
        repeated_s = []
        for kill in range(bench.rounds):
            bench.tell(f"kill {kill + 1} of {bench.rounds}")
            ledger = Path(directory) / f"ledger-{kill}"
            repeated_s.append(_killed(dynalite, store, next(slots), ledger))
    yield Figure("writes of 10,000 batches of 1 ms, all / with an interval of 1 s",
                 tuple(writes / fewer_writes for fewer_writes in fewer),
                 goal=Goal(5, is_upper=False))  # fmt: skip
    yield Figure("wall of them, with an interval / all saved",
                 tuple(seconds / took_s for seconds in times_s))  # fmt: skip
    yield number("work repeated after a kill, interval of 1 s", repeated_s, "s",
                 goal=Goal(INTERVAL_S + SLACK_S))  # fmt: skip


def _written(side: TinyBatches, slot: str) -> tuple[int, float]:
    with metering() as metered, quiet():
        begin_s = time.perf_counter()
        side.run(slot, BATCHES)
        took_s = time.perf_counter() - begin_s
    side.check(slot, BATCHES)
    return metered.writes, took_s


def _killed(dynalite: Dynalite, store: Store, slot: str, ledger: Path) -> float:
    """Kill a process at a random instant; return how much of its work is not in the checkpoint."""
    process = subprocess.Popen(
        python("-m", "tests.bench.tiny_batches", slot, str(ledger)),
        cwd=ROOT,
        env=os.environ | dynalite.environ | {"ANARCHON_TABLE": store.table},
        stdout=subprocess.DEVNULL,
    )
    while not ledger.exists():
        require(is_right=process.poll() is None, found=process.returncode)
        time.sleep(0.01)
    time.sleep(random.uniform(1.5, 3.5))  # a random instant is what is measured
    process.kill()
    process.wait()
    lines = ledger.read_text().splitlines()
    ended_s = [float(line) for line in lines if line]
    record = store.read_run(RunKey(NAME, slot))
    require(is_right=record is not None and record.checkpoint is not None, found=record)
    assert record is not None
    stored = int(record.checkpoint or 0)
    require(is_right=0 < stored <= len(ended_s) + 1, found=(stored, len(ended_s)))
    return ended_s[-1] - ended_s[stored - 1] if stored < len(ended_s) else 0.0


def victim(slot: str, ledger: Path) -> None:
    """Work on tiny batches for ever, and note when each ended."""

    # The killed one before holds the gate still.
    @job(NAME, overlap="allow", checkpoint_interval=INTERVAL)
    def handler(run: Run) -> None:
        with ledger.open("a", buffering=1) as notes:
            for cursor in range(1, 1_000_000):
                time.sleep(BATCH_S)
                notes.write(f"{time.monotonic()}\n")
                run.save(cursor)

    handler(scheduler_event(NAME, slot), LambdaContext("15m"))


if __name__ == "__main__":
    victim(sys.argv[1], Path(sys.argv[2]))
