"""What a save costs the processor: the tape answers at once, so that no socket is in the figure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from anarchon_ddb import Run
from tests.bench.endpoint import Tape, new_slots, quiet, server
from tests.bench.measure import Bench, Figure, Goal, ratio
from tests.bench.sides.floor import Floor, LeanFloor
from tests.bench.sides.ours import Ours
from tests.dynalite import Dynalite

SAVES = 2_000
LEAN_NOTE = (
    "Cursor and lease only, no fence against a delayed copy, no answer: what one might write who "
    "can do without the rest. Shown, not a goal: the floor is the same write by hand."
)


def cpu(bench: Bench) -> Iterator[Figure]:
    """CPU per save against the floor's update_item, on a stub that answers at once."""
    slots = new_slots()
    with server() as dynalite:
        ours, table = TapedJob(dynalite), dynalite.new_table().table
        same, lean = Floor(table), LeanFloor(table)
        taken = bench.interleave(
            {
                "ours": lambda: ours.save_us(next(slots)),
                "floor": partial(floor_us, same, Tape(same.client), slots),
                "lean": partial(floor_us, lean, Tape(lean.client), slots),
            }
        )
    yield ratio("CPU per save / the floor's update_item, the same write", taken, "ours", "floor",
                goal=Goal(1.25), side_unit="µs")  # fmt: skip
    yield ratio("CPU per save / an update_item of two attributes", taken, "ours", "lean",
                side_unit="µs", note=LEAN_NOTE)  # fmt: skip


class TapedJob(Ours):
    """A job whose saves, but the first and the last, meet the tape."""

    def __init__(self, dynalite: Dynalite) -> None:
        super().__init__(dynalite, lease="5m")
        self.tape = Tape(self.client)
        self.took_s = 0.0

    def work(self, run: Run) -> None:
        with self.tape.recording():
            run.save(1)
        with self.tape.repeating():
            begin_s = time.process_time()
            for cursor in range(2, self.batches):
                run.save(cursor)
            self.took_s = time.process_time() - begin_s
        run.save(self.batches)

    def save_us(self, slot: str) -> float:
        with quiet():
            self.run(slot, SAVES + 2)
        self.check(slot, SAVES + 2)
        return self.took_s / SAVES * 1e6


def floor_us(floor: Floor, tape: Tape, slots: Iterator[str]) -> float:
    slot = next(slots)
    held = floor.claim(slot)
    assert held is not None
    with tape.recording():
        floor.save(slot, held, 1)
    with tape.repeating():
        begin_s = time.process_time()
        for cursor in range(2, SAVES + 2):
            floor.save(slot, held, cursor)
        took_s = time.process_time() - begin_s
    floor.save(slot, held, SAVES + 2)
    floor.finish(slot, held)
    floor.check(slot, SAVES + 2)
    return took_s / SAVES * 1e6
