"""The slots of the three forms of a schedule, forwards and backwards, in UTC.

Each class answers the same four questions. None knows of a schedule's bounds (see ``schedule``),
and none holds state: a slot depends on nothing but the expression, the zone and the instant asked
about.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from anarchon_ddb.cron import FIRST_YEAR, LAST_YEAR
from anarchon_ddb.zones import LocalDay, load, to_utc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.cron import Cron

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
# Zones reach 14 hours each way, so the local years 1970-2199 lie within these instants.
FLOOR = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC) - _DAY
CEILING = datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC) + _DAY


@dataclass(frozen=True, slots=True)
class CronSlots:
    """The slots of a cron expression in a zone."""

    cron: Cron
    timezone: str

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot later than ``instant``."""
        if instant >= CEILING:
            return None
        zone = load(self.timezone)
        # What the clock showed by now it shows first no later than now: no earlier date can follow.
        local = max(instant, FLOOR).astimezone(zone)
        for day in self.cron.days_from(local.date()):
            slot = LocalDay(day, self.cron.minutes, zone).first_after(instant)
            if slot is not None:
                return slot
        return None

    def before(self, instant: datetime) -> datetime | None:
        """Return the last slot earlier than ``instant``."""
        if instant <= FLOOR:
            return None
        zone = load(self.timezone)
        local = min(instant, CEILING).astimezone(zone)
        # In the second pass of a repeated hour, the first may have got as far as the next date.
        last = local.date() + _DAY if local.fold else local.date()
        for day in self.cron.days_back_from(last):
            slot = LocalDay(day, self.cron.minutes, zone).last_before(instant)
            if slot is not None:
                return slot
        return None

    def from_(self, instant: datetime) -> Iterator[datetime]:
        """Yield the slots from ``instant`` on, ``instant`` included."""
        if instant >= CEILING:
            return
        zone = load(self.timezone)
        local = max(instant, FLOOR).astimezone(zone)
        for day in self.cron.days_from(local.date()):
            slots = LocalDay(day, self.cron.minutes, zone).instants()
            yield from slots[bisect_left(slots, instant) :]

    def named_by(self, instant: datetime) -> datetime | None:
        """Return the slot of the local minute ``instant`` lies in, the first if it occurs twice."""
        if not FLOOR < instant < CEILING:
            return None
        zone = load(self.timezone)
        local = instant.astimezone(zone).replace(second=0, microsecond=0, tzinfo=None)
        if not self.cron.matches(local.date(), local.hour * 60 + local.minute):
            return None
        return to_utc(local, zone)


@dataclass(frozen=True, slots=True)
class RateSlots:
    """The slots of a rate: one each ``period`` from ``anchor`` on, which is itself a slot."""

    period: timedelta
    anchor: datetime | None

    def after(self, instant: datetime) -> datetime | None:
        """Return the first slot later than ``instant``; one period after it without an anchor."""
        anchor = self.anchor or whole_second(instant)
        if instant < anchor:
            return anchor
        return _moved(anchor, self.period, (instant - anchor) // self.period + 1)

    def before(self, instant: datetime) -> datetime | None:
        """Return the last slot earlier than ``instant``; one period before it without an anchor."""
        if self.anchor is None:
            return _moved(whole_second(instant), self.period, -1)
        # The negated floor is a ceiling: of the slots from 0 to n-1 the last lies before `instant`.
        count = -((self.anchor - instant) // self.period)
        return _moved(self.anchor, self.period, count - 1) if count > 0 else None

    def from_(self, instant: datetime) -> Iterator[datetime]:
        """Yield the slots from ``instant`` on, which is the first one without an anchor."""
        anchor = self.anchor or whole_second_up(instant)
        missed = -((anchor - instant) // self.period)  # the negated floor is a ceiling
        slot = _moved(anchor, self.period, max(missed, 0))
        while slot is not None:
            yield slot
            slot = _moved(slot, self.period, 1)

    def named_by(self, instant: datetime) -> datetime:
        """Return the time as delivered: AWS does not say where a rate's phase lies."""
        return whole_second(instant)


@dataclass(frozen=True, slots=True)
class AtSlots:
    """The one slot of a one-time schedule."""

    slot: datetime

    def after(self, instant: datetime) -> datetime | None:
        """Return the slot if it is later than ``instant``."""
        return self.slot if self.slot > instant else None

    def before(self, instant: datetime) -> datetime | None:
        """Return the slot if it is earlier than ``instant``."""
        return self.slot if self.slot < instant else None

    def from_(self, instant: datetime) -> Iterator[datetime]:
        """Yield the slot unless it is over."""
        if self.slot >= instant:
            yield self.slot

    def named_by(self, instant: datetime) -> datetime | None:
        """Return the slot if ``instant`` lies within the minute that AWS takes to deliver it."""
        return self.slot if self.slot <= instant < self.slot + _MINUTE else None


def whole_second(instant: datetime) -> datetime:
    """Round down to a whole second."""
    return instant.replace(microsecond=0)


def whole_second_up(instant: datetime) -> datetime:
    """Round up to a whole second."""
    whole = whole_second(instant)
    return whole if whole == instant else _moved(whole, timedelta(seconds=1), 1) or whole


def _moved(instant: datetime, period: timedelta, count: int) -> datetime | None:
    """Add ``count`` periods, None where Python's calendar ends."""
    try:
        return instant + count * period
    except OverflowError:
        return None
