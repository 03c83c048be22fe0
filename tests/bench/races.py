"""Processes that race for slots, and a duplicate that comes while the holder works."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from anarchon_ddb import Run
from anarchon_ddb.clock import iso
from anarchon_ddb.testing import LambdaContext, scheduler_event
from tests.bench.endpoint import metering, new_slots, python, quiet, require, server
from tests.bench.measure import Bench, Figure, Goal, number, ratio
from tests.bench.sides.ours import NAME, Ours
from tests.dynalite import Dynalite

ROOT = Path(__file__).parents[2]
PROCESSES, SLOTS, DUPLICATES = 16, 1_000, 50
LEAN_NOTE = (
    "Half the attributes, and no read after a refusal: one call for a duplicate instead of two. It "
    "takes its own claim, whose reply was lost, for somebody else's."
)


class Contenders:
    """The processes of one side, started once: no start is in the figure."""

    def __init__(self, side: str, dynalite: Dynalite) -> None:
        self.table = dynalite.new_table().table
        self._processes = [
            subprocess.Popen(
                python("-m", "tests.bench.contender", side, self.table),
                cwd=ROOT,
                env=os.environ | dynalite.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(PROCESSES)
        ]

    def ready(self) -> None:
        for process in self._processes:
            _heard(process, "ready")

    def close(self) -> None:
        for process in self._processes:
            process.communicate()

    def each_s(self, first: Iterator[str], count: int) -> float:
        """Let every process try so many slots; return the seconds until all were won."""
        slot = next(first)
        begin_s = time.perf_counter()
        won = self._tell([f"each {slot} {count}"] * PROCESSES)
        took_s = time.perf_counter() - begin_s
        require(is_right=won == count, found=(won, count))
        return took_s

    def once(self, slot: str) -> int:
        """Deliver one slot 50 times at once; return how many were granted."""
        shares = [DUPLICATES // PROCESSES + (n < DUPLICATES % PROCESSES) for n in range(PROCESSES)]
        return self._tell([f"once {slot} {share}" for share in shares])

    def _tell(self, lines: list[str]) -> int:
        for process, line in zip(self._processes, lines, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        return sum(int(_heard(process)) for process in self._processes)


def _heard(process: subprocess.Popen[str], wanted: str | None = None) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    require(is_right=bool(line) and wanted in {None, line}, found=line)
    return line


@contextmanager
def contending(dynalite: Dynalite, *sides: str) -> Iterator[dict[str, Contenders]]:
    with ExitStack() as closing:
        found = {side: Contenders(side, dynalite) for side in sides}
        for contenders in found.values():
            closing.callback(contenders.close)
        for contenders in found.values():
            contenders.ready()
        yield found


def race(bench: Bench) -> Iterator[Figure]:
    """16 processes over 1,000 slots, each of them tries all; 50 duplicates of one slot at once."""
    share = -(-SLOTS // bench.rounds)
    with server() as dynalite, contending(dynalite, "ours", "floor", "lean") as sides:
        firsts = _firsts(share)
        taken = bench.interleave(
            {name: partial(side.each_s, firsts, share) for name, side in sides.items()}
        )
        bench.tell(f"{DUPLICATES} duplicates of one slot at once")
        one = new_slots()
        winners = [sides["ours"].once(next(one)) for _ in range(bench.rounds)]
        # How long for one claim, turned around: claims a second.
        rates = {name: tuple(share / took for took in values) for name, values in taken.items()}
    yield ratio("claims/s of 16 processes / the floor's", rates, "ours", "floor",
                goal=Goal(0.7, is_upper=False), side_unit="claims/s")  # fmt: skip
    yield ratio("same / a lean claim that never reads", rates, "ours", "lean", side_unit="claims/s",
                note=LEAN_NOTE)  # fmt: skip
    require(is_right=set(winners) == {1}, found=winners)
    yield number(f"winners of {DUPLICATES} duplicates at once", winners, "winners", goal=Goal(1))


def _firsts(share: int) -> Iterator[str]:
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=48)
    return (iso(start + timedelta(seconds=part * share)) for part in range(100))


class DuplicatedJob(Ours):
    """A job to which its slot is delivered again in the middle of its work."""

    def work(self, run: Run) -> None:
        run.save(1)
        event, context = scheduler_event(NAME, iso(run.slot)), LambdaContext("15m")
        with metering() as metered, counted_sleeps() as sleeps:
            self.answer = self.handler(event, context)
        self.calls, self.sleeps = metered.calls, sleeps["sleep"]


@contextmanager
def counted_sleeps() -> Iterator[Counter[str]]:
    made: Counter[str] = Counter()
    original = time.sleep

    def counted(seconds: float) -> None:
        made["sleep"] += 1
        original(seconds)

    time.sleep = counted
    try:
        yield made
    finally:
        time.sleep = original


def duplicate(_bench: Bench) -> Iterator[Figure]:
    """A duplicate delivery while the holder works: its calls, and that it waits for nothing."""
    with server() as dynalite, quiet():
        ours = DuplicatedJob(dynalite)
        ours.run(next(new_slots()), 1)
    require(is_right=ours.answer["outcome"] == "busy", found=ours.answer)
    yield number("calls of a duplicate while the holder works", [ours.calls.total()], "calls",
                 goal=Goal(2))  # fmt: skip
    yield number("its sleeps", [ours.sleeps], "sleeps", goal=Goal(0))
