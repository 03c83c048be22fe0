"""What a resume costs, the more batches are done: 5,000 of them over 20 invocations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from anarchon_ddb import Run
from anarchon_ddb.schema import RunKey
from anarchon_ddb.testing import LambdaContext, resume_event, scheduler_event
from tests.bench.endpoint import Metered, metering, new_slots, quiet, require, server
from tests.bench.measure import Bench, Figure, Goal, number
from tests.bench.sides.durable import OPERATIONS_LIMIT, Durable
from tests.bench.sides.ours import NAME, Ours

BATCHES, BY_INVOCATION = 5_000, 250
FLAT = Goal(1.25)
LIMIT_NOTE = (
    f"An execution of the durable SDK ends at {OPERATIONS_LIMIT:,} operations, so 5,000 batches "
    "are no case for it; its test runner does not play the quota. Measured up to 2,750 steps."
)


class InterruptedJob(Ours):
    """A job whose invocations end early, each after 250 batches."""

    def __init__(self, dynalite: Any) -> None:
        super().__init__(dynalite)
        self.context = LambdaContext("15m")
        self.resumes_ms: list[float] = []
        """For each invocation: from its begin to its first batch."""
        self.calls: list[int] = []
        self._begun_s = 0.0
        self._metered = Metered()

    def work(self, run: Run) -> None:
        self.resumes_ms.append((time.perf_counter() - self._begun_s) * 1000)
        self.calls.append(self._metered.calls.total())
        first = run.checkpoint or 0
        for cursor in range(first + 1, BATCHES + 1):
            if cursor == first + BY_INVOCATION:
                self.context.remaining_ms = 5_000  # under the stop margin: this save stops
            run.save(cursor)

    def run_all(self, slot: str) -> None:
        """Deliver the slot, and resume it until it has ended."""
        self.resumes_ms, self.calls = [], []
        event, outcome = scheduler_event(NAME, slot), "interrupted"
        while outcome == "interrupted":
            self.context = LambdaContext("15m")
            with quiet(), metering() as self._metered:
                self._begun_s = time.perf_counter()
                outcome = self.handler(event, self.context)["outcome"]
            event = resume_event(NAME, slot)
        require(is_right=outcome == "succeeded", found=outcome)
        wanted = BATCHES // BY_INVOCATION
        record = self.store.read_run(RunKey(NAME, slot))
        assert record is not None
        found = (record.state, record.attempt, record.checkpoint)
        # The last batch of the twentieth finds the time short, too: one more sees that all is done.
        require(is_right=found == ("succeeded", wanted + 1, str(BATCHES)), found=found)


def growth(resumes: list[float]) -> float:
    """Return the last five over the first five; the very first is no resume."""
    return median(resumes[-5:]) / median(resumes[1:6])


def resume(bench: Bench) -> Iterator[Figure]:
    """5,000 batches over 20 invocations: is the last resume dearer than the first?"""
    slots = new_slots()
    with server() as dynalite:
        job = InterruptedJob(dynalite)
        durable = Durable(2_750, by_invocation=BY_INVOCATION)
        last_ms: dict[str, list[float]] = {"ours": [], "durable": []}

        def ours() -> float:
            job.run_all(next(slots))
            last_ms["ours"].append(median(job.resumes_ms[-5:]))
            return growth(job.resumes_ms)

        def theirs() -> float:
            durable.run_s()
            last_ms["durable"].append(median(durable.resumes_s[-5:]) * 1000)
            return growth(durable.resumes_s)

        taken = bench.interleave({"ours": ours, "durable": theirs})
    yield number("last resumes / first ones, 20 invocations of 250", taken["ours"], "", goal=FLAT)
    yield number("same, durable SDK, 11 invocations of 250", taken["durable"], "", note=LIMIT_NOTE)
    yield number("ours: the last resumes, dynalite", last_ms["ours"], "ms")
    yield number("durable SDK: the last resumes, in memory", last_ms["durable"], "ms")
    yield number("calls before the first batch of each resume", job.calls[1:], "calls",
                 goal=Goal(2))  # fmt: skip
