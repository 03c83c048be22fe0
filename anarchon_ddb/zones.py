"""Time zones: from a zone's local clock to UTC and back, on the data of the ``tzdata`` package.

Every machine that lists slots has to agree with every other, so this module never reads the
system's zone files, never looks at ``TZ`` or at the clock, and never guesses a zone. ``zoneinfo``
alone would prefer the files of whatever system it runs on, which may be years older.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from io import BytesIO
from pkgutil import get_data
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from anarchon_ddb.errors import InvalidScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)


@lru_cache(maxsize=64)
def load(name: str) -> ZoneInfo:
    """Return the zone of an IANA name, always from the ``tzdata`` package.

    Parameters
    ----------
    name : str
        As IANA spells it, ``Europe/Berlin``.

    Raises
    ------
    InvalidScheduleError
        There is no such zone; the text offers the closest names.

    Examples
    --------
    >>> load("Asia/Kathmandu").key
    'Asia/Kathmandu'
    """
    # The list is the gate: a name such as "../../etc/hosts" never becomes a path.
    if name not in names():
        raise InvalidScheduleError(f"timezone {name!r} is not an IANA zone{_suggestion(name)}")
    return ZoneInfo.from_file(BytesIO(_data(f"zoneinfo/{name}")), key=name)


@cache
def names() -> frozenset[str]:
    """Return the names of all zones that the ``tzdata`` package knows."""
    return frozenset(_data("zones").decode("ascii").split())


def _data(path: str) -> bytes:
    """Read a file of the package. pkgutil imports little, and reads from a zip as well."""
    data = get_data("tzdata", path)
    if data is None:
        raise FileNotFoundError(f"tzdata has no {path}: install the tzdata package again")
    return data


def _suggestion(name: str) -> str:
    """Offer the zones a person may have meant: other case, another continent, a typing slip."""
    from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error

    folded = {zone.casefold(): zone for zone in names()}
    wanted = name.strip().replace(" ", "_").casefold()
    same = [zone for zone in sorted(folded) if wanted in (zone, zone.rpartition("/")[2])]
    close = same or get_close_matches(wanted[:64], sorted(folded), n=3, cutoff=0.7)
    meant = " or ".join(folded[match] for match in close[:3])
    return f": did you mean {meant}?" if meant else ": write it as Europe/Berlin, or UTC"


def to_utc(local: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the instant at which ``zone``'s clock first shows ``local``, None if it never does.

    Examples
    --------
    The clock of New York goes from 02:00 to 03:00 on 2026-03-08, and shows 01:30 twice on
    2026-11-01.

    >>> to_utc(datetime(2026, 3, 8, 2, 30), load("America/New_York")) is None
    True
    >>> to_utc(datetime(2026, 11, 1, 1, 30), load("America/New_York")).isoformat()
    '2026-11-01T05:30:00+00:00'
    """
    instant = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    # In a gap fold=0 takes the offset from before it, and the way back shows another time.
    return instant if instant.astimezone(zone).replace(tzinfo=None) == local else None


class LocalDay:
    """The given minutes of one calendar day in one zone, as ascending instants in UTC.

    Nearly all days have one offset from end to end. For those nothing is listed: a slot is found
    by bisection and one addition. Only a day on which the clock is set is resolved minute by
    minute.
    """

    __slots__ = ("_listed", "_midnight", "_minutes")

    def __init__(self, day: date, minutes: Sequence[int], zone: ZoneInfo) -> None:
        local = datetime(day.year, day.month, day.day, tzinfo=zone)
        offset = local.utcoffset()
        self._minutes = minutes
        self._listed: list[datetime] | None = None
        if offset is not None and (local + _DAY).utcoffset() == offset:
            self._midnight = local.replace(tzinfo=UTC) - offset
        else:
            self._listed = _resolve(local.replace(tzinfo=None), minutes, zone)

    def first_after(self, instant: datetime) -> datetime | None:
        """Return the day's first instant later than ``instant``."""
        if self._listed is not None:
            index = bisect_right(self._listed, instant)
            return self._listed[index] if index < len(self._listed) else None
        index = bisect_right(self._minutes, (instant - self._midnight) // _MINUTE)
        return self._at(index) if index < len(self._minutes) else None

    def last_before(self, instant: datetime) -> datetime | None:
        """Return the day's last instant earlier than ``instant``."""
        if self._listed is not None:
            index = bisect_left(self._listed, instant)
            return self._listed[index - 1] if index else None
        # The negated floor is a ceiling: 12:00:30 lies after the slot of 12:00.
        index = bisect_left(self._minutes, -((self._midnight - instant) // _MINUTE))
        return self._at(index - 1) if index else None

    def instants(self) -> list[datetime]:
        """Return all of the day's instants, ascending."""
        if self._listed is not None:
            return self._listed
        midnight, steps = self._midnight, _steps()
        return [midnight + steps[minute] for minute in self._minutes]

    def _at(self, index: int) -> datetime:
        return self._midnight + _steps()[self._minutes[index]]


def _resolve(midnight: datetime, minutes: Sequence[int], zone: ZoneInfo) -> list[datetime]:
    steps = _steps()
    found = (to_utc(midnight + steps[minute], zone) for minute in minutes)
    return [instant for instant in found if instant is not None]


@cache
def _steps() -> tuple[timedelta, ...]:
    """Return the 1,440 offsets of a day's minutes: adding one is much cheaper than making one."""
    return tuple(timedelta(minutes=minute) for minute in range(24 * 60))
