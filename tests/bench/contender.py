"""A process that races for slots: ``python -m tests.bench.contender SIDE TABLE``.

Its parent sends lines. ``each FIRST COUNT`` tries so many slots one after another, ``once SLOT
COUNT`` one slot in so many threads at once. It answers with how many it won.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.bench.endpoint import quiet
from tests.bench.sides.floor import Floor, LeanFloor
from tests.racer import slots

Try = Callable[[str], bool]
"""Claim a slot and end its run at once; tell whether it was granted."""


def ours(_table: str) -> Try:
    from anarchon_ddb import Run, job  # noqa: PLC0415  the floor's process has none of it
    from anarchon_ddb.testing import LambdaContext, scheduler_event  # noqa: PLC0415

    @job("bench", overlap="allow")
    def handler(run: Run) -> None:
        pass

    def attempt(slot: str) -> bool:
        answer = handler(scheduler_event("bench", slot), LambdaContext("60s"))
        return answer["outcome"] == "succeeded"

    return attempt


def floor(table: str) -> Try:
    """A refused claim is read: it may be one's own, its reply lost."""
    side = Floor(table)

    def attempt(slot: str) -> bool:
        held = side.claim(slot)
        if held is None:
            side.read(slot)
            return False
        side.finish(slot, held)
        return True

    return attempt


def lean(table: str) -> Try:
    """No read after a refusal: what one might write who takes a lost reply for a duplicate."""
    side = LeanFloor(table)

    def attempt(slot: str) -> bool:
        held = side.claim(slot)
        if held is not None:
            side.finish(slot, held)
        return held is not None

    return attempt


def main(side: str, table: str) -> None:
    os.environ["ANARCHON_TABLE"] = table
    attempt = {"ours": ours, "floor": floor, "lean": lean}[side](table)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    out = sys.stdout
    for line in sys.stdin:
        what, slot, count = line.split()
        with quiet():
            if what == "each":
                won = sum(map(attempt, slots(slot, int(count))))
            else:
                with ThreadPoolExecutor(int(count)) as threads:
                    won = sum(threads.map(attempt, [slot] * int(count)))
        out.write(f"{won}\n")
        out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
