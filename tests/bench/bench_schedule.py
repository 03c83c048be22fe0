"""How fast a year of slots is found: ``python -m tests.bench.bench_schedule``.

A year of "every 5 minutes, Monday to Friday" (75,168 slots, the first of them at the very start),
in UTC and in New York, one by one with ``next`` and all at once with ``between``; beside croniter
and cronsim if they are installed.
All take turns in every round, so that a busy machine slows all of them; the medians are reported.
The rounds count the slots, so nobody is fast by finding fewer.
"""

from __future__ import annotations

import sys
from collections import deque
from datetime import UTC, datetime
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from anarchon_ddb.schedule import parse

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 7
ZONES = ("UTC", "America/New_York")
AWS, UNIX = "cron(0/5 * ? * MON-FRI *)", "*/5 * * * MON-FRI"
START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)


def with_next(zone: str) -> int:
    schedule, slot, count = parse(AWS, zone), START, 0
    while (slot := schedule.next(slot)) < END:
        count += 1
    return count


def with_between(zone: str) -> int:
    count = [0]

    def counted(slots):
        for slot in slots:
            count[0] += 1
            yield slot

    deque(counted(parse(AWS, zone).between(START, END)), maxlen=0)
    return count[0]


def with_croniter(zone: str) -> int:
    walk = import_module("croniter").croniter(
        UNIX, START.astimezone(ZoneInfo(zone)), ret_type=datetime
    )
    count = 0
    while walk.get_next() < END:
        count += 1
    return count


def with_cronsim(zone: str) -> int:
    walk, count = import_module("cronsim").CronSim(UNIX, START.astimezone(ZoneInfo(zone))), 0
    while next(walk) < END:
        count += 1
    return count


def timed(ask: Callable[[str], int], zone: str) -> tuple[float, int]:
    begin = perf_counter()
    count = ask(zone)
    return (perf_counter() - begin) * 1e6 / count, count


def installed(ask: Callable[[str], int]) -> bool:
    try:
        ask("UTC")
    except ImportError:
        return False
    return True


def main() -> None:
    asked = [
        ask for ask in (with_next, with_between, with_croniter, with_cronsim) if installed(ask)
    ]
    for zone in ZONES:
        rounds = [[timed(ask, zone) for ask in asked] for _ in range(ROUNDS)]
        for ask, figures in zip(asked, zip(*rounds, strict=True), strict=True):
            micros = [micro for micro, _ in figures]
            line = f"{zone:18} {ask.__name__[5:]:9} {median(micros):8.2f} µs/slot"
            spread = f"({min(micros):.2f}-{max(micros):.2f}, {figures[0][1]} slots)"
            sys.stdout.write(f"{line}  {spread}\n")


if __name__ == "__main__":
    main()
