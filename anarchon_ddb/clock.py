"""The one place where time comes from.

Everything that decides on time takes a ``Clock``; nothing else may read the system's. The testing
kit has one that is moved by hand, so a test never sleeps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the package needs to know of time."""

    def now_ms(self) -> int:
        """Return the wall clock, in epoch milliseconds: stored, and used in conditions."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds from an arbitrary start, never going back. Measures durations."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait, between two tries of a call that was throttled."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the machine's monotonic clock in milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait for real."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def to_ms(moment: datetime) -> int:
    """Return an aware datetime as milliseconds since the epoch."""
    return round(moment.timestamp() * 1000)


def from_ms(epoch_ms: int) -> datetime:
    """Return milliseconds since the epoch as an aware UTC datetime."""
    return datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)


def iso(moment: datetime) -> str:
    """Return an aware datetime as a slot is written: UTC, whole seconds, ``Z``.

    Examples
    --------
    >>> from datetime import datetime, timezone
    >>> iso(datetime(2026, 11, 29, 12, tzinfo=timezone.utc))
    '2026-11-29T12:00:00Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
