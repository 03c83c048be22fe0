"""Whole runs: what they call and consume, and how long they take beside each peer's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from tests.bench.endpoint import Tape, metering, new_slots, quiet, server
from tests.bench.measure import Bench, Figure, Goal, number, ratio
from tests.bench.sides.durable import Durable
from tests.bench.sides.floor import Floor
from tests.bench.sides.lock_library import LockLibrary
from tests.bench.sides.ours import Ours
from tests.bench.sides.powertools import Powertools
from tests.dynalite import Dynalite

BATCHES = 1_000
JOBS = 100
LATENCY_S = 0.004
"""Of a call in the same region: DynamoDB's own latency is "single-digit milliseconds"."""

INDEX_NOTE = (
    "Units of the table, as dynalite counts them. On AWS the sparse index adds one for the claim "
    "and one for the end of a run; a save or a renewal does not touch it."
)
DURABLE_NOTE = (
    "The durable SDK's test runner keeps the state in the same process and makes no call over the "
    "network; each of ours is an HTTP request to dynalite."
)
TAPE_NOTE = (
    f"Recorded replies, each after {LATENCY_S * 1000:g} ms. dynalite parses every expression anew "
    "in JavaScript, so there a long condition costs milliseconds that DynamoDB does not charge."
)
BARE_NOTE = "Three calls that remember nothing: a second delivery after the release runs again."
ONCE_NOTE = "Two calls; not resumable, and two slots of one job may run at once."


class Side(Protocol):
    """Who brings a slot to its end."""

    @property
    def client(self) -> Any: ...

    def run(self, slot: str, batches: int) -> None: ...

    def check(self, slot: str, batches: int) -> None: ...


def wall_s(side: Side, slots: Iterator[str], batches: int, jobs: int = 1) -> float:
    """Run so many slots on dynalite; return the seconds that they took, without the checks."""
    taken = [next(slots) for _ in range(jobs)]
    with quiet():
        begin_s = time.perf_counter()
        for slot in taken:
            side.run(slot, batches)
        took_s = time.perf_counter() - begin_s
    for slot in taken:
        side.check(slot, batches)
    return took_s


def taped(side: Side, slots: Iterator[str], batches: int) -> Callable[[], float]:
    """Record a run on dynalite, and check it; return what plays it, and returns the seconds."""
    with quiet():
        side.run(next(slots), 0)  # what is made once in a process
    tape, recorded = Tape(side.client), next(slots)
    with tape.recording(), quiet():
        side.run(recorded, batches)
    side.check(recorded, batches)

    def played_s() -> float:
        slot = next(slots)
        with tape.playing(LATENCY_S), quiet():
            begin_s = time.perf_counter()
            side.run(slot, batches)
            return time.perf_counter() - begin_s

    return played_s


def calls(_bench: Bench) -> Iterator[Figure]:
    """Writes, reads and units of a run: counted once, since they do not vary."""
    batches, slots = 100, new_slots()
    with server() as dynalite, quiet():
        for overlap, extra in (("skip", 4), ("allow", 3)):
            counted, units = _metered(Ours(dynalite, overlap=overlap), slots, batches)
            goal = Goal(batches + extra)
            what = f"calls of a run of {batches} batches, {overlap}"
            yield number(what, [counted], "calls", goal=goal)
            yield number(f"units of it, {overlap}", [units], "units", goal=goal, note=INDEX_NOTE)
        peers: dict[str, Side] = {
            "the floor's": Floor(dynalite.new_table().table),
            "Powertools' by batch": Powertools("by-batch", by_batch=True),
        }
        for name, side in peers.items():
            counted, units = _metered(side, slots, batches)
            yield number(f"{name} calls", [counted], "calls")
            yield number(f"{name} units", [units], "units")


def _metered(side: Side, slots: Iterator[str], batches: int) -> tuple[int, float]:
    side.run(next(slots), 0)  # what is made once in a process is not counted
    with metering() as metered:
        side.run(next(slots), batches)
    return metered.calls.total(), metered.units


def run(bench: Bench) -> Iterator[Figure]:
    """A run of 1,000 batches against the floor, Powertools by batch, and the durable SDK."""
    slots = new_slots()
    with server() as dynalite:
        sides = _sides(dynalite)
        timed: dict[str, Callable[[], float]] = {
            name: partial(wall_s, side, slots, BATCHES) for name, side in sides.items()
        }
        timed["durable"] = Durable(BATCHES, by_invocation=BATCHES).run_s
        on_dynalite = bench.interleave(timed)
        shares = [_written(sides["ours"], slots) / _written(sides["Powertools"], slots)]
        played = {name: taped(side, slots, BATCHES) for name, side in sides.items()}
        on_tape = bench.interleave(played, warm_up=False)
    floor, other = Goal(1.15), Goal(0.55)
    yield ratio("1,000 batches / the floor, dynalite", on_dynalite, "ours", "floor", goal=floor)
    yield ratio("same, at a DynamoDB's latency", on_tape, "ours", "floor", goal=floor,
                note=TAPE_NOTE)  # fmt: skip
    yield ratio("1,000 batches / Powertools by batch, dynalite", on_dynalite, "ours", "Powertools",
                goal=other)  # fmt: skip
    yield ratio("same, at a DynamoDB's latency", on_tape, "ours", "Powertools", goal=other)
    yield Figure("same, writes", tuple(shares), goal=Goal(0.51))
    yield ratio("1,000 batches / durable SDK in memory", on_dynalite, "ours", "durable",
                note=DURABLE_NOTE)  # fmt: skip


def _sides(dynalite: Dynalite) -> dict[str, Side]:
    return {
        "ours": Ours(dynalite),
        "floor": Floor(dynalite.new_table().table),
        "Powertools": Powertools("by-batch", by_batch=True),
    }


def _written(side: Side, slots: Iterator[str]) -> int:
    with metering() as metered, quiet():
        side.run(next(slots), BATCHES)
    return metered.writes


def lock(bench: Bench) -> Iterator[Figure]:
    """Claim and release of one job, nothing done in between, against the lock library."""
    slots = new_slots()
    with server() as dynalite:
        skip = Ours(dynalite)
        sides: dict[str, Side] = {
            "skip": skip,
            "allow": Ours(dynalite, skip.store, overlap="allow"),
            "lock": LockLibrary(),
            "bare lock": LockLibrary(is_bare=True),
            "Powertools": Powertools("by-slot", by_batch=False),
        }
        on_dynalite = bench.interleave(
            {name: partial(wall_s, side, slots, 0, JOBS) for name, side in sides.items()}
        )
        played = {name: taped(side, slots, 0) for name, side in sides.items()}
        on_tape = bench.interleave(
            {name: partial(_sum, once) for name, once in played.items()}, warm_up=False
        )
    against = partial(ratio, other="lock", goal=Goal(0.8), side_unit="s per 100")
    yield against("skip / a lock of the job and its checkpoint, dynalite", on_dynalite, "skip")
    yield against("same, at a DynamoDB's latency", on_tape, "skip", note=TAPE_NOTE)
    yield against("allow / a lock of the slot and its checkpoint, dynalite", on_dynalite, "allow")
    yield against("same, at a DynamoDB's latency", on_tape, "allow")
    shown = partial(ratio, taken=on_tape, ours="skip", side_unit="s per 100")
    yield shown("skip / the lock alone, at a latency", other="bare lock", note=BARE_NOTE)
    yield shown("skip / Powertools, a record a slot, at a latency", other="Powertools",
                note=ONCE_NOTE)  # fmt: skip


def _sum(once: Callable[[], float]) -> float:
    return sum(once() for _ in range(JOBS))
