"""An oracle for schedules: walk UTC minute by minute and ask of each whether it matches.

Written apart from the package and by another method, so that both would have to be wrong in the
same way: it expands no calendar, searches nothing, and reads the fields anew for every date. It
takes valid expressions only, and is slow.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
MONTH_NAMES = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAY_NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def slots(expression: str, zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the slots from ``start`` to before ``end`` of a valid ``cron(…)``."""
    minute_field, hour_field, *day_fields = expression[5:-1].upper().split()
    now = start.astimezone(UTC).replace(second=0, microsecond=0)
    now = now if now >= start else now + MINUTE
    known: dict[date, bool] = {}
    while now < end:
        local = now.astimezone(zone)
        today = local.date()
        if today not in known:
            known[today] = is_day(today, *day_fields)
        if not known[today]:
            # Nothing matches until midnight; stay an hour clear of any change of the clock.
            later = datetime(today.year, today.month, today.day, 20, tzinfo=zone).astimezone(UTC)
            if later > now and local.hour < 19:
                now = later
                continue
        elif is_time(local, minute_field, hour_field) and not is_repeated(now, zone):
            yield now
        now += MINUTE


def is_time(local: datetime, minute_field: str, hour_field: str) -> bool:
    return is_in(local.minute, minute_field, 0, 59) and is_in(local.hour, hour_field, 0, 23)


def is_repeated(now: datetime, zone: ZoneInfo) -> bool:
    """Whether the clock showed this very time once before, some minutes up to a day ago."""
    shown = now.astimezone(zone).replace(tzinfo=None)
    earlier = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return earlier < now and earlier.astimezone(zone).replace(tzinfo=None) == shown


def is_day(today: date, dom: str, month: str, dow: str, year: str = "*") -> bool:
    if not is_in(today.year, year, 1970, 2199):
        return False
    if not is_in(today.month, month, 1, 12, MONTH_NAMES):
        return False
    if dow == "?":
        return any(is_day_of_month(today, item) for item in dom.split(","))
    return any(is_day_of_week(today, item) for item in dow.split(","))


def is_day_of_month(today: date, item: str) -> bool:
    if item == "L":
        return (today + DAY).day == 1
    if item == "LW":
        rest = [today + n * DAY for n in range(1, 4)]
        later = [d for d in rest if d.month == today.month and d.weekday() < 5]
        return today.weekday() < 5 and not later
    if item.endswith("W"):
        return today.day == nearest_weekday(today, int(item[:-1]))
    return is_in(today.day, item, 1, 31)


def nearest_weekday(today: date, wanted: int) -> int | None:
    """Of the month's Mondays to Fridays, the one closest to a day the month has."""
    month = [today.replace(day=1) + n * DAY for n in range(31)]
    days = [d for d in month if d.month == today.month]
    if wanted > len(days):
        return None
    return min((d.day for d in days if d.weekday() < 5), key=lambda day: abs(day - wanted))


def is_day_of_week(today: date, item: str) -> bool:
    number = today.isoweekday() % 7 + 1
    if item == "L":
        return number == 7
    if item.endswith("L"):
        return number == name_to_number(item[:-1], DAY_NAMES) and (today + 7 * DAY).day <= 7
    if "#" in item:
        name, nth = item.split("#")
        return number == name_to_number(name, DAY_NAMES) and (today.day - 1) // 7 + 1 == int(nth)
    return is_in(number, item, 1, 7, DAY_NAMES)


def is_in(number: int, field: str, low: int, high: int, names: list[str] | None = None) -> bool:
    """Whether a list names the number, by counting along each item's range."""
    for item in field.split(","):
        body, _, step = item.partition("/")
        first, _, last = body.partition("-")
        begin = low if first == "*" else name_to_number(first, names)
        stop = name_to_number(last, names) if last else (high if step or first == "*" else begin)
        at, taken = begin, 0
        while True:
            if at == number and taken % int(step or 1) == 0:
                return True
            if at == stop:
                break
            at, taken = (low if at == high else at + 1), taken + 1
    return False


def name_to_number(text: str, names: list[str] | None) -> int:
    return names.index(text) + 1 if names and text in names else int(text)
