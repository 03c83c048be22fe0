"""A clock that is moved by hand."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from anarchon_ddb.clock import SYSTEM_CLOCK, from_ms, to_ms


class SettableClock:
    """A clock that stands still until it is moved. Waiting moves it.

    Parameters
    ----------
    start : datetime or str, optional
        Aware, or as ``2026-11-29T12:00:00Z``; now if not given.
    """

    def __init__(self, start: datetime | str | None = None) -> None:
        self._lock = threading.Lock()
        self._now_ms = SYSTEM_CLOCK.now_ms() if start is None else to_ms(as_moment(start))

    def now_ms(self) -> int:
        """Return the time in epoch milliseconds."""
        return self._now_ms

    def monotonic_ms(self) -> int:
        """Return the same time: it never goes back unless a test sets it back."""
        return self._now_ms

    def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting."""
        self.advance(seconds=seconds)

    @property
    def now(self) -> datetime:
        """The time as an aware UTC datetime."""
        return from_ms(self._now_ms)

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        """Move the clock forward."""
        step = timedelta(seconds=seconds, minutes=minutes, hours=hours)
        with self._lock:
            self._now_ms += round(step.total_seconds() * 1000)

    def set(self, moment: datetime | str) -> None:
        """Set the clock."""
        with self._lock:
            self._now_ms = to_ms(as_moment(moment))


def as_moment(moment: datetime | str) -> datetime:
    """Return a moment given as text or as datetime as an aware UTC datetime.

    Raises
    ------
    ValueError
        If it has no time zone.
    """
    parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    if parsed.utcoffset() is None:
        raise ValueError(f"{moment!r} has no time zone; write 2026-11-29T12:00:00Z")
    return parsed.astimezone(UTC)
