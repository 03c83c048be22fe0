"""When a job is due: ``cron(…)``, ``rate(…)`` and ``at(…)`` exactly as EventBridge reads them.

Everything that lists slots asks this module: ``run.window``, catch-up, backfill, previews, the
local cloud. So it must agree with AWS to the second, and with itself: the same expression gives the
same slots in whatever order, direction or process they are asked for. It must never read a clock,
the environment or the system's zone files, never repair an expression, and never invent a slot.

Three rules of the clock, for every cron alike, be it daily, hourly or each minute:

* a local time that does not exist (spring) is skipped;
* a local time that occurs twice (autumn) is a slot once, at the first of the two. So a schedule for
  each hour or each minute rests until the clock shows a time it has not shown yet;
* a rate knows no local time: a day is 24 hours.

AWS, https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html#daylist-savings-time:
"When time shifts forward in the Spring, if a cron expression falls on a non-existent date and time,
your schedule invocation is skipped. When time shifts backwards in the Fall, your schedule runs only
once and does not repeat its invocation." It makes no exception for any form of cron.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from anarchon_ddb.cron import parse_cron
from anarchon_ddb.errors import InvalidScheduleError
from anarchon_ddb.slots import CEILING, FLOOR, AtSlots, CronSlots, RateSlots, whole_second_up
from anarchon_ddb.zones import load, to_utc

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["scheduler", "rule"]
Form = Literal["cron", "rate", "at"]

_TICK = timedelta(microseconds=1)
_UNITS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
# Longer than the years of cron no recurrence means anything, and datetime ends in 9999.
_LONGEST_RATE = CEILING - FLOOR


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as AWS fires it. Made by `parse`; immutable, hashable, safe to share.

    All instants it returns are aware UTC datetimes of whole seconds. All it takes are aware, in any
    zone; a naive one is a ``TypeError``, as it is when Python compares the two sorts.

    Attributes
    ----------
    expression, timezone, kind
        As given to `parse`.
    start : datetime or None
        No slot is earlier. A rate counts from it: it is that rate's first slot.
    end : datetime or None
        No slot is at it or later.

    Examples
    --------
    >>> weekdays = parse("cron(0 18 ? * MON-FRI *)", "Europe/Berlin")
    >>> print(weekdays.next(datetime(2026, 3, 27, 17, tzinfo=UTC)))  # over summer time's first day
    2026-03-30 16:00:00+00:00
    """

    expression: str
    timezone: str
    kind: Kind
    start: datetime | None
    end: datetime | None
    slots: CronSlots | RateSlots | AtSlots = field(repr=False, compare=False)

    @property
    def form(self) -> Form:
        """Which of the three forms the expression has: ``cron``, ``rate`` or ``at``."""
        if isinstance(self.slots, CronSlots):
            return "cron"
        return "rate" if isinstance(self.slots, RateSlots) else "at"

    @property
    def period(self) -> timedelta | None:
        """The time between two slots of a rate; None for the other forms."""
        return self.slots.period if isinstance(self.slots, RateSlots) else None

    @property
    def is_anchored(self) -> bool:
        """Whether the slots are fixed instants. False only for a rate without a ``start``.

        AWS counts such a rate from a moment it does not publish. `next` and `previous` of it are
        then one period from the argument, and `between` counts from its first argument: pass the
        last slot known.
        """
        return not (isinstance(self.slots, RateSlots) and self.slots.anchor is None)

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot strictly later than ``after``, None if there is no more.

        Parameters
        ----------
        after : datetime
            Aware, in any zone.

        Examples
        --------
        >>> print(parse("cron(0 0 29 2 ? *)").next(datetime(2026, 1, 1, tzinfo=UTC)))
        2028-02-29 00:00:00+00:00
        """
        instant = _utc("after", after)
        if self.start is not None and instant < self.start:
            instant = self.start - _TICK
        slot = self.slots.after(instant)
        return slot if slot is not None and self._is_before_end(slot) else None

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot strictly earlier than ``before``, None if there was none.

        Parameters
        ----------
        before : datetime
            Aware, in any zone.

        Examples
        --------
        >>> print(parse("cron(0 9 L * ? *)").previous(datetime(2026, 3, 1, tzinfo=UTC)))
        2026-02-28 09:00:00+00:00
        """
        instant = _utc("before", before)
        slot = self.slots.before(instant if self.end is None else min(instant, self.end))
        return slot if slot is not None and self._is_from_start(slot) else None

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the slots from ``start`` (included) to ``end`` (not included), one by one.

        Parameters
        ----------
        start, end : datetime
            Aware, in any zone. Nothing lies between if ``end`` is not later.

        Examples
        --------
        Half past two does not exist on 8 March 2026 in New York.

        >>> nightly = parse("cron(30 2 * * ? *)", "America/New_York")
        >>> march = datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC)
        >>> [slot.isoformat() for slot in nightly.between(*march)]
        ['2026-03-07T07:30:00+00:00', '2026-03-09T06:30:00+00:00']
        """
        first, last = _utc("start", start), _utc("end", end)
        if self.start is not None:
            first = max(first, self.start)
        if self.end is not None:
            last = min(last, self.end)
        return _until(self.slots.from_(first), last) if first < last else iter(())

    def slot_of(self, instant: datetime) -> datetime | None:
        """Return the slot which an event that names ``instant`` stands for, None if there is none.

        A cron event may name a time some seconds into its minute, or the second of two equal local
        times: both stand for the one slot. A rate's slot is the time as delivered.

        Parameters
        ----------
        instant : datetime
            Aware, in any zone.

        Examples
        --------
        >>> nightly = parse("cron(30 1 * * ? *)", "America/New_York")
        >>> print(nightly.slot_of(datetime(2026, 11, 1, 6, 30, 12, tzinfo=UTC)))
        2026-11-01 05:30:00+00:00
        """
        slot = self.slots.named_by(_utc("instant", instant))
        inside = slot is not None and self._is_from_start(slot) and self._is_before_end(slot)
        return slot if inside else None

    def local(self, instant: datetime) -> datetime:
        """Return the same instant as the clock in the schedule's zone shows it.

        Parameters
        ----------
        instant : datetime
            Aware, in any zone.

        Examples
        --------
        >>> midnight = parse("cron(0 0 * * ? *)", "Asia/Tokyo")
        >>> print(midnight.local(datetime(2026, 1, 1, 15, tzinfo=UTC)))
        2026-01-02 00:00:00+09:00
        """
        return _utc("instant", instant).astimezone(load(self.timezone))

    def window(self, slot: datetime) -> tuple[datetime, datetime]:
        """Return what lies between the slot before ``slot`` and ``slot`` itself.

        The windows of a schedule's slots lie end to end, so work on "what is new since the last
        slot" leaves nothing out and takes nothing twice. It follows from the expression alone:
        the first slot after a StartDate has one as any other has. A rate's is its period long.

        Parameters
        ----------
        slot : datetime
            Aware, in any zone.

        Returns
        -------
        tuple of datetime
            Start (included) and end (not included).

        Raises
        ------
        InvalidScheduleError
            No slot comes before it: the schedule is ``at(…)``, or the first of the years it names
            begins with it.

        Examples
        --------
        >>> weekdays = parse("cron(0 9 ? * MON-FRI *)")
        >>> start, end = weekdays.window(datetime(2026, 11, 30, 9, tzinfo=UTC))  # a Monday
        >>> print(end - start)
        3 days, 0:00:00
        """
        end = _utc("slot", slot)
        # AWS counts a rate from an instant of its own: what was delivered says where it stands.
        period = self.period
        slots = self.slots if period is None else RateSlots(period, anchor=None)
        start = slots.before(end)
        if start is None:
            raise InvalidScheduleError(
                f"{self.expression!r} has no slot before {end:%Y-%m-%dT%H:%M:%SZ}, so that slot "
                "has no window: use the slot alone, or a schedule that fires again and again"
            )
        return start, end

    def describe(self) -> str:
        """Say in plain English when the schedule fires, and on whose clock.

        Examples
        --------
        >>> parse("cron(0 18 ? * MON-FRI *)", "Europe/Berlin").describe()
        'at 18:00, Monday to Friday, Europe/Berlin time'
        """
        from anarchon_ddb.schedule_text import describe  # noqa: PLC0415 - not on a handler's path

        return describe(self)

    def _is_from_start(self, slot: datetime) -> bool:
        return self.start is None or slot >= self.start

    def _is_before_end(self, slot: datetime) -> bool:
        return self.end is None or slot < self.end


def parse(
    expression: str,
    timezone: str = "UTC",
    kind: Kind = "scheduler",
    start: datetime | None = None,
    end: datetime | None = None,
) -> Schedule:
    """Read a schedule expression with the rules of the AWS service that is to fire it.

    Parameters
    ----------
    expression : str
        ``cron(fields)``, ``rate(value unit)`` or ``at(yyyy-mm-ddThh:mm:ss)``.
    timezone : str
        An IANA name. Rules know UTC only.
    kind : {"scheduler", "rule"}
        EventBridge Scheduler (SAM: ``ScheduleV2``), or a scheduled rule (SAM: ``Schedule``).
    start, end : datetime, optional
        StartDate and EndDate of a Scheduler schedule, aware: slots are at ``start`` or later, and
        before ``end``. A rate counts from ``start``; for a rule's, pass the last slot known. AWS
        ignores both for one-time schedules, and so does this.

    Raises
    ------
    InvalidScheduleError
        AWS would refuse it, or it can never fire. Names the field, its value and the remedy. A
        schedule that lies wholly in the past is in order: its ``next`` is None.

    Examples
    --------
    >>> parse("rate(1 minutes)", kind="rule")
    Traceback (most recent call last):
    anarchon_ddb.errors.InvalidScheduleError: 'rate(1 minutes)': unit 'minutes': ... rate(1 minute)
    """
    try:
        slots = _parse(expression, timezone, kind, _bound("start", start))
    except InvalidScheduleError as error:
        raise InvalidScheduleError(
            f"{_cut(repr(expression), 100)}: {_cut(str(error), 400)}"
        ) from None
    if isinstance(slots, AtSlots):
        start = end = None
    first, last = _bound("start", start), _bound("end", end)
    if first is not None and last is not None and first >= last:
        raise InvalidScheduleError(f"{expression!r}: end {last} is not after start {first}")
    return Schedule(expression, timezone, kind, first, last, slots)


def _parse(
    expression: str, timezone: str, kind: Kind, start: datetime | None
) -> CronSlots | RateSlots | AtSlots:
    if kind not in ("scheduler", "rule"):
        raise InvalidScheduleError(f"kind {kind!r}: write scheduler or rule")
    form, inner = _split(expression)
    if not isinstance(timezone, str):
        raise InvalidScheduleError(f"timezone {timezone!r} is no text: write UTC")
    if kind == "rule" and timezone != "UTC":
        raise InvalidScheduleError(
            f"timezone {timezone!r}: rules know UTC only; use EventBridge Scheduler (ScheduleV2)"
        )
    load(timezone)
    if form == "cron":
        return _cron(inner, timezone, kind)
    if form == "rate":
        return RateSlots(_period(inner, kind), start)
    return _at(inner, timezone, kind)


def _split(expression: str) -> tuple[str, str]:
    found = re.fullmatch(r"(cron|rate|at)\((.*)\)", expression) if _is_text(expression) else None
    if found is None:
        raise InvalidScheduleError(
            "expected cron(minutes hours day-of-month month day-of-week year), rate(value unit) or "
            "at(yyyy-mm-ddThh:mm:ss), in lower case, with nothing around it"
        )
    return found[1], found[2]


def _cron(inner: str, timezone: str, kind: Kind) -> CronSlots:
    slots = CronSlots(parse_cron(inner, year_required=kind == "rule"), timezone)
    if slots.after(FLOOR) is None:
        raise InvalidScheduleError(f"never fires: {_why_never(slots)}")
    return slots


def _why_never(slots: CronSlots) -> str:
    _, _, day, month, weekday, year = slots.cron.fields
    if any(slots.cron.days_from(FLOOR.date())):
        return f"the clock in {slots.timezone} never shows that time: choose one it does show"
    name, value = ("day-of-month", day) if weekday == "?" else ("day-of-week", weekday)
    return f"month {month!r} of year {year!r} has no {name} {value!r}: choose one it has"


def _period(inner: str, kind: Kind) -> timedelta:
    value, _, unit = inner.partition(" ")
    singular = unit.removesuffix("s")
    if singular not in _UNITS:
        raise InvalidScheduleError(f"unit {unit!r}: write minutes, hours or days: rate(5 minutes)")
    number = int(value) if value.isascii() and value.isdigit() and len(value) <= 9 else 0
    if number < 1 or number * _UNITS[singular] > _LONGEST_RATE:
        raise InvalidScheduleError(
            f"value {value!r}: expected a whole number above 0, and a period of at most "
            f"{_LONGEST_RATE.days} days: write rate(5 minutes)"
        )
    right = singular if number == 1 else f"{singular}s"
    if kind == "rule" and unit != right:
        raise InvalidScheduleError(
            f"unit {unit!r}: rules take the singular for 1 only: write rate({number} {right})"
        )
    return number * _UNITS[singular]


def _at(inner: str, timezone: str, kind: Kind) -> AtSlots:
    if kind == "rule":
        raise InvalidScheduleError(
            "at(…) is for EventBridge Scheduler only: use ScheduleV2, or write cron(…) or rate(…)"
        )
    try:
        slot = to_utc(_local_time(inner), load(timezone))
    except (ValueError, OverflowError):
        raise InvalidScheduleError(
            f"time {inner!r}: expected an existing date and time without a zone: "
            "write at(2026-11-29T12:00:00)"
        ) from None
    if slot is None:
        raise InvalidScheduleError(
            f"never fires: the clock in {timezone} never shows {inner}: choose a later time"
        )
    return AtSlots(slot)


def _local_time(text: str) -> datetime:
    """Read AWS's one form of a time. The library's parsers take more of them."""
    found = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})", text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = map(int, found.groups())
    return datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - local by definition


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _cut(text: str, most: int) -> str:
    """Keep an error readable, whatever somebody passed in."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _bound(name: str, value: datetime | None) -> datetime | None:
    """Return a bound as UTC. Slots are whole seconds, so rounding up moves no slot over it."""
    return None if value is None else whole_second_up(_utc(name, value))


def _utc(name: str, value: datetime) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeError(f"{name} must be an aware datetime, as datetime.now(UTC) is; got {value!r}")
    try:
        return value.astimezone(UTC)
    except OverflowError:  # the first or last hours of Python's calendar, in a zone beside UTC
        return value.replace(tzinfo=UTC)


def _until(slots: Iterator[datetime], end: datetime) -> Iterator[datetime]:
    for slot in slots:
        if slot >= end:
            return
        yield slot
