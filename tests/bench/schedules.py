"""How fast a year of slots is found, beside other cron libraries.

A year of "every 5 minutes, Monday to Friday" (75,168 slots, the first of them at the very start),
in UTC and in New York, one by one with ``next`` and all at once with ``between``; beside croniter
and cronsim. The rounds count the slots, so nobody is fast by finding fewer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from time import perf_counter
from zoneinfo import ZoneInfo

from anarchon_ddb.schedule import parse
from tests.bench.endpoint import require
from tests.bench.measure import Bench, Figure, ratio

SLOTS = 75_168
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


def _us(ask: Callable[[str], int], zone: str) -> float:
    begin_s = perf_counter()
    count = ask(zone)
    took_s = perf_counter() - begin_s
    # One by one they begin behind the start, which is a slot itself.
    require(is_right=count in {SLOTS - 1, SLOTS}, found=count)
    return took_s * 1e6 / count


def schedules(bench: Bench) -> Iterator[Figure]:
    """A year of slots, in UTC and New York, beside croniter and cronsim."""
    asked = {
        "next": with_next,
        "between": with_between,
        "croniter": with_croniter,
        "cronsim": with_cronsim,
    }
    for zone in ZONES:
        taken = bench.interleave(
            {name: partial(_us, ask, zone) for name, ask in asked.items()}, warm_up=False
        )
        for other in ("cronsim", "croniter"):
            yield ratio(f"next / {other}, {zone}", taken, "next", other, side_unit="µs a slot")
        yield ratio(f"between / next, {zone}", taken, "between", "next", side_unit="µs a slot")
