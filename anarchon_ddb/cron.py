"""The fields of an AWS cron expression: what they accept, and which local dates and minutes match.

Pure calendar arithmetic on what the expression says. It knows no zone, no clock and no instant (see
``schedule`` and ``zones``), and it never repairs what it is given: a field that AWS's documentation
does not describe is refused by name, with the way to write it.

The rules are AWS's, for rules and for Scheduler:
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-cron-expressions.html
https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html#cron-based
Where they are silent, docs/decisions/0004-schedule-expressions.md says what was chosen and why.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from anarchon_ddb.errors import InvalidScheduleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    # Days of a month that has its first on `weekday` (Monday is 0) and has `length` days.
    DayPick = Callable[[int, int], Sequence[int]]

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")  # AWS counts 1 = SUN … 7 = SAT
FIRST_YEAR, LAST_YEAR = 1970, 2199

_SATURDAY, _SUNDAY = 5, 6  # as datetime counts
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Field:
    """One of the six fields, as AWS documents it."""

    name: str
    low: int
    high: int
    wildcards: str  # the special characters it takes
    words: tuple[str, ...] = ()  # names for its values, from `low` on
    wraps: bool = True  # FRI-MON goes over the end; years have no end to go over

    @property
    def span(self) -> str:
        """What a value may be, for an error."""
        named = f" or {self.words[0]}-{self.words[-1]}" if self.words else ""
        return f"{self.low}-{self.high}{named}"


MINUTES = Field("minutes", 0, 59, ",-*/")
HOURS = Field("hours", 0, 23, ",-*/")
DAY_OF_MONTH = Field("day-of-month", 1, 31, ",-*?/LW")
MONTH = Field("month", 1, 12, ",-*/", MONTHS)
DAY_OF_WEEK = Field("day-of-week", 1, 7, ",-*?L#", WEEKDAYS)
YEAR = Field("year", FIRST_YEAR, LAST_YEAR, ",-*/", wraps=False)
FIELDS = (MINUTES, HOURS, DAY_OF_MONTH, MONTH, DAY_OF_WEEK, YEAR)

_SIX = "minutes hours day-of-month month day-of-week year"
_ONE_UNKNOWN = "exactly one of day-of-month and day-of-week must be ?"


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression: minutes of the day, and the days of any month.

    Which days of a month match depends only on its length and on the weekday of its first, so the
    28 possible months are worked out once, here, and a search only looks them up.
    """

    fields: tuple[str, ...]  # the six, in capitals, as `describe` reads them
    minutes: tuple[int, ...]  # of the day, ascending
    months: tuple[int, ...]
    years: tuple[int, ...]
    days: tuple[tuple[int, ...], ...]  # by weekday of the first, then by length

    def days_in(self, year: int, month: int) -> tuple[int, ...]:
        """Return the matching days of a month, ascending. Month and year are not looked at."""
        return self.days[date(year, month, 1).weekday() * 4 + _length(year, month) - 28]

    def matches(self, day: date, minute: int) -> bool:
        """Say whether a local date and a minute of its day match all six fields."""
        return (
            minute in self.minutes
            and day.month in self.months
            and day.year in self.years
            and day.day in self.days_in(day.year, day.month)
        )

    def days_from(self, first: date) -> Iterator[date]:
        """Yield the matching dates from ``first`` on."""
        start = (first.year, first.month)
        for year in self.years[bisect_left(self.years, first.year) :]:
            for month in self.months:
                if (year, month) >= start:
                    days = self.days_in(year, month)
                    skip = bisect_left(days, first.day) if (year, month) == start else 0
                    yield from (date(year, month, day) for day in days[skip:])

    def days_back_from(self, last: date) -> Iterator[date]:
        """Yield the matching dates from ``last`` back into the past."""
        start = (last.year, last.month)
        for year in reversed(self.years[: bisect_right(self.years, last.year)]):
            for month in reversed(self.months):
                if (year, month) <= start:
                    days = self.days_in(year, month)
                    keep = bisect_right(days, last.day) if (year, month) == start else len(days)
                    yield from (date(year, month, day) for day in reversed(days[:keep]))


def parse_cron(text: str, *, year_required: bool) -> Cron:
    """Parse what stands between the parentheses of ``cron(…)``.

    Parameters
    ----------
    text : str
        Six fields separated by white space, or five where the year may be left out.
    year_required : bool
        True for an EventBridge rule.

    Raises
    ------
    InvalidScheduleError
        With the field, its value, and how to write it.

    Examples
    --------
    >>> parse_cron("0 18 ? * FRI-MON *", year_required=True).days_in(2026, 11)[:5]
    (1, 2, 6, 7, 8)
    """
    fields = _six(text.upper().split(), year_required=year_required)
    minutes, hours, _, month, _, year = fields
    hour_values, minute_values = values(HOURS, hours), values(MINUTES, minutes)
    return Cron(
        fields=fields,
        minutes=tuple(hour * 60 + minute for hour in hour_values for minute in minute_values),
        months=values(MONTH, month),
        years=values(YEAR, year),
        days=_calendar(_day_picks(fields)),
    )


def _six(fields: list[str], *, year_required: bool) -> tuple[str, ...]:
    """Check what concerns the fields together: their number, and where the ? stands."""
    unix_like = len(fields) == 5 and (year_required or fields.count("?") != 1)
    if unix_like or len(fields) not in (5, 6):
        raise InvalidScheduleError(_wrong_number(fields))
    six = (*fields, "*")[:6]
    for field, value in zip(FIELDS, six, strict=True):
        if "?" in value and "?" not in field.wildcards:
            raise _refused(field, value, f"? not allowed in {field.name}: write *")
    if (six[2] == "?") == (six[4] == "?"):
        found = f"day-of-month {six[2]!r}, day-of-week {six[4]!r}"
        raise InvalidScheduleError(f"{_ONE_UNKNOWN}, found {found}: put ? in the one not meant")
    return six


def _wrong_number(fields: list[str]) -> str:
    if len(fields) != 5:
        return f"AWS cron has 6 fields, got {len(fields)}: write {_SIX}"
    return (
        f"AWS cron has 6 fields, got 5: add ? and the year; {_ONE_UNKNOWN}, as in "
        "cron(0 12 * * ? *), and AWS counts weekdays from 1 = SUN"
    )


def values(field: Field, text: str) -> tuple[int, ...]:
    """Return the values a field names, ascending."""
    return tuple(sorted({value for item in text.split(",") for value in _item(field, item, text)}))


def _item(field: Field, item: str, text: str) -> Sequence[int]:
    """Return the values of one item of a list: ``*``, ``5``, ``1-5``, each with a step or none."""
    body, slash, step = item.partition("/")
    if slash and "/" not in field.wildcards:
        raise _refused(field, text, "/ not allowed here: list the values, as in MON,WED,FRI")
    low, dash, high = body.partition("-")
    if body == "*":
        first, last = field.low, field.high
    else:
        first = _value(field, low, text)
        last = _value(field, high, text) if dash else (field.high if slash else first)
    return _stretch(field, first, last, text)[:: _step(field, step, text) if slash else 1]


def _stretch(field: Field, first: int, last: int, text: str) -> Sequence[int]:
    """Return the values from ``first`` to ``last``, over the end of the field and on if need be."""
    if first <= last:
        return range(first, last + 1)
    if not field.wraps:
        raise _refused(field, text, f"the range ends before it starts: write {last}-{first}")
    return (*range(first, field.high + 1), *range(field.low, last + 1))


def _value(field: Field, text: str, whole: str) -> int:
    if text in field.words:
        return field.words.index(text) + field.low
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else -1
    if not field.low <= number <= field.high:
        found = repr(text) if text else "nothing"
        raise _refused(field, whole, f"expected {field.span}, got {found}{_hint(field, text)}")
    return number


def _hint(field: Field, text: str) -> str:
    """Say what a common slip should be instead."""
    if field is DAY_OF_WEEK and text == "0":
        return ": AWS counts weekdays from 1 = SUN to 7 = SAT"
    if field is DAY_OF_MONTH and text.endswith("L"):
        return ": L stands alone or as LW; the last weekday of a name is 6L in day-of-week"
    alien = sorted({char for char in text if char in "*?/LW#"} - set(field.wildcards))
    return f": {alien[0]} is not allowed in {field.name}" if alien and not field.words else ""


def _step(field: Field, text: str, whole: str) -> int:
    largest = field.high - field.low + (1 if field.low == 1 else 0)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    if not 1 <= number <= largest:
        found = text or "nothing"
        raise _refused(field, whole, f"{field.name} step must be 1-{largest}, got {found}")
    return number


def _refused(field: Field, text: str, why: str) -> InvalidScheduleError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return InvalidScheduleError(f"{field.name} {shown!r}: {why}")


def _day_picks(fields: tuple[str, ...]) -> list[DayPick]:
    """Return one pick for each item of the day field that is not ``?``."""
    of_month, of_week = fields[2], fields[4]
    if of_week == "?":
        _check_alone(DAY_OF_MONTH, of_month, "LW")
        return [_month_pick(item, of_month) for item in of_month.split(",")]
    _check_alone(DAY_OF_WEEK, of_week, "#L")
    return [_week_pick(item, of_week) for item in of_week.split(",")]


def _check_alone(field: Field, text: str, special: str) -> None:
    """AWS says so of #; of L and W its model does, the CronExpression of Quartz."""
    items = text.split(",") if "," in text else []
    for char in special:
        if any(char in item and item not in field.words for item in items):
            raise _refused(field, text, f"only one {char} is allowed, and nothing beside it")


def _month_pick(item: str, text: str) -> DayPick:
    if item == "L":
        return lambda _, length: (length,)
    if item == "LW":
        return lambda weekday, length: (_nearest_weekday(length, weekday, length),)
    if item.startswith("L-"):
        raise _refused(DAY_OF_MONTH, text, "AWS documents no L-n: write the day, L or LW")
    if item.endswith("W"):
        near = _value(DAY_OF_MONTH, item[:-1], text)
        return lambda weekday, length: (
            (_nearest_weekday(near, weekday, length),) if near <= length else ()
        )
    wanted = frozenset(_item(DAY_OF_MONTH, item, text))
    return lambda _, length: [day for day in range(1, length + 1) if day in wanted]


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """Move a Saturday to Friday and a Sunday to Monday, but never into another month."""
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _week_pick(item: str, text: str) -> DayPick:
    if "#" in item:
        return _nth_pick(item, text)
    if item == "L":  # the last day of AWS's week
        item = "SAT"
    if item.endswith("L"):
        wanted = _python_weekday(_value(DAY_OF_WEEK, item[:-1], text))
        return lambda first, length: _weekdays(wanted, first, length)[-1:]
    several = frozenset(map(_python_weekday, _item(DAY_OF_WEEK, item, text)))
    return lambda first, length: [
        day for day in range(1, length + 1) if (first + day - 1) % 7 in several
    ]


def _nth_pick(item: str, text: str) -> DayPick:
    name, _, nth = item.partition("#")
    wanted = _python_weekday(_value(DAY_OF_WEEK, name, text))
    if nth not in ("1", "2", "3", "4", "5"):
        found = repr(nth) if nth else "nothing"
        raise _refused(DAY_OF_WEEK, text, f"expected 1-5 after #, got {found}: write 2#1")
    index = int(nth)
    return lambda first, length: _weekdays(wanted, first, length)[index - 1 : index]


def _weekdays(wanted: int, first: int, length: int) -> range:
    """Return the days of the month that fall on a weekday."""
    return range((wanted - first) % 7 + 1, length + 1, 7)


def _python_weekday(aws: int) -> int:
    """Turn AWS's 1 = SUN … 7 = SAT into datetime's 0 = Monday … 6 = Sunday."""
    return (aws + 5) % 7


def _calendar(picks: list[DayPick]) -> tuple[tuple[int, ...], ...]:
    """Work out the matching days of all 28 possible months."""
    return tuple(
        tuple(sorted({day for pick in picks for day in pick(first, length)}))
        for first in range(7)
        for length in range(28, 32)
    )


def _length(year: int, month: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _LENGTHS[month - 1] + leap
