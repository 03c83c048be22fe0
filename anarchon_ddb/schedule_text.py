"""A schedule in plain English, for `Schedule.describe`. It never decides when anything fires.

The text is made from the parsed values, not from the expression: what it says is what the search
does, and ``0/15``, ``*/15`` and ``0,15,30,45`` read the same.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from anarchon_ddb.cron import DAY_OF_MONTH, DAY_OF_WEEK, FIRST_YEAR, LAST_YEAR, values
from anarchon_ddb.slots import AtSlots, RateSlots
from anarchon_ddb.zones import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anarchon_ddb.cron import Cron
    from anarchon_ddb.schedule import Schedule

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NTH = {"1": "first", "2": "second", "3": "third", "4": "fourth", "5": "fifth"}
_MANY = 4  # more times of day than this are told by their fields


def describe(schedule: Schedule) -> str:
    """Say when a schedule fires, its bounds, and on whose clock."""
    slots = schedule.slots
    if isinstance(slots, AtSlots):
        local = slots.slot.astimezone(load(schedule.timezone))
        weekday = _WEEKDAYS[local.isoweekday() % 7]
        date = f"{weekday}, {local.day} {_MONTHS[local.month - 1]} {local.year}"
        return f"once, on {date} at {local:%H:%M:%S}, {schedule.timezone} time"
    if isinstance(slots, RateSlots):
        return f"{_rate(slots)}{_bounds(schedule, rate=True)}"
    return f"{_cron(slots.cron)}, {schedule.timezone} time{_bounds(schedule, rate=False)}"


def _rate(slots: RateSlots) -> str:
    for unit, name in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour")):
        number, rest = divmod(slots.period, unit)
        if not rest:
            # AWS's day is 24 hours whatever the clock does: say so.
            return f"every {_plural(number, name)}{' of 24 hours' if name == 'day' else ''}"
    return f"every {_plural(slots.period // timedelta(minutes=1), 'minute')}"


def _bounds(schedule: Schedule, *, rate: bool) -> str:
    counted = ", counted from" if rate else ", from"
    start = f"{counted} {schedule.start:%Y-%m-%d %H:%M:%S} UTC" if schedule.start else ""
    end = f", until {schedule.end:%Y-%m-%d %H:%M:%S} UTC" if schedule.end else ""
    unknown = ", counted from a moment only AWS knows" if rate and not schedule.start else ""
    return f"{start}{unknown}{end}"


def _cron(cron: Cron) -> str:
    parts = [_times(cron.minutes), _days(cron), _months(cron.months), _years(cron.years)]
    return ", ".join(part for part in parts if part)


def _times(of_day: Sequence[int]) -> str:
    minutes, hours = sorted({m % 60 for m in of_day}), sorted({m // 60 for m in of_day})
    if len(of_day) <= _MANY:
        return f"at {_listed([f'{m // 60:02}:{m % 60:02}' for m in of_day])}"
    every = _regular(minutes, 60)
    within = "" if len(hours) == 24 else f" of {_hours(hours)}"
    if every:
        return f"every {_plural(every, 'minute')}{within}"
    return f"at {_counted('minute', minutes)} of {_hours(hours)}"


def _hours(hours: Sequence[int]) -> str:
    every = _regular(hours, 24)
    if every == 1:
        return "every hour"
    return f"every {_ordinal(every)} hour from 0" if every else _counted("hour", hours)


def _regular(values: Sequence[int], size: int) -> int:
    """Return the step of values that divide the whole field evenly from 0 on, 0 for any others."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step if step and size % step == 0 and list(values) == list(range(0, size, step)) else 0


def _days(cron: Cron) -> str:
    of_month, of_week = cron.fields[2], cron.fields[4]
    if of_week == "?":
        return "every day" if of_month == "*" else f"on {_days_of_month(of_month)}"
    return "every day" if of_week == "*" else _days_of_week(of_week)


def _days_of_month(text: str) -> str:
    special = text.endswith(("L", "W"))
    days = _special_day(text) if special else _counted("day", values(DAY_OF_MONTH, text))
    return f"{days} of the month"


def _special_day(item: str) -> str:
    named = {"L": "the last day", "LW": "the last weekday (Monday to Friday)"}
    return named.get(item) or f"the weekday (Monday to Friday) nearest to day {item[:-1]}"


def _days_of_week(text: str) -> str:
    return _listed([_day_of_week(item) for item in text.split(",")])


def _day_of_week(item: str) -> str:
    if "#" in item:
        name, _, nth = item.partition("#")
        return f"on the {_NTH[nth]} {_weekday(name)} of the month"
    if item.endswith("L") and item != "L":
        return f"on the last {_weekday(item[:-1])} of the month"
    return " to ".join(_weekday(name) for name in item.split("-"))


def _weekday(name: str) -> str:
    return "Saturday" if name == "L" else _WEEKDAYS[values(DAY_OF_WEEK, name)[0] - 1]


def _months(months: Sequence[int]) -> str:
    if len(months) == len(_MONTHS):
        return ""
    return f"in {_listed([_MONTHS[month - 1] for month in months])}"


def _years(years: Sequence[int]) -> str:
    whole = (years[0], years[-1], len(years)) == (FIRST_YEAR, LAST_YEAR, LAST_YEAR - FIRST_YEAR + 1)
    return "" if whole else f"in {_listed(_runs(years))}"


def _counted(noun: str, numbers: Sequence[int]) -> str:
    """Return ``minute 5``, or ``minutes 5, 10 and 20 to 29``."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {_listed(_runs(numbers))}"


def _runs(numbers: Sequence[int]) -> list[str]:
    """Shorten three and more numbers in a row to ``5 to 9``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [text for run in runs for text in _run(run)]


def _run(run: list[int]) -> list[str]:
    return [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run]


def _listed(items: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def _plural(number: int, noun: str) -> str:
    return noun if number == 1 else f"{number} {noun}s"


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")
