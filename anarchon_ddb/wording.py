"""Times, durations and states in words, for people. No I/O, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from anarchon_ddb.clock import from_ms

if TYPE_CHECKING:
    from datetime import tzinfo

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def span(milliseconds: float) -> str:
    """Return a duration in its two largest units.

    Examples
    --------
    >>> span(125_000), span(86_400_000), span(400), span(0)
    ('2 min 5 s', '1 d', '0.4 s', '0 s')
    """
    if 0 < milliseconds < 1_000:
        return f"{max(milliseconds, 100) / 1000:.1f} s"
    left = round(milliseconds / 1000)
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def relative(at_ms: int, now_ms: int) -> str:
    """Say how far an instant is from now.

    Examples
    --------
    >>> relative(60_000, 0), relative(0, 5_000)
    ('in 1 min', '5 s ago')
    """
    return f"in {span(at_ms - now_ms)}" if at_ms > now_ms else f"{span(now_ms - at_ms)} ago"


def moment(at: datetime | int, zone: tzinfo | None = None) -> str:
    """Return an instant in UTC, and on the job's own clock where that differs.

    Examples
    --------
    >>> moment(0)
    '1970-01-01 00:00:00 UTC'
    """
    utc = (from_ms(at) if isinstance(at, int) else at).astimezone(UTC)
    text = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    if zone is None or utc.astimezone(zone).utcoffset() == timedelta():
        return text
    local = utc.astimezone(zone)
    day = "" if local.date() == utc.date() else f"{local:%Y-%m-%d} "
    return f"{text} ({day}{local:%H:%M:%S} in {zone})"


def clock_time(at_ms: int, beside: datetime) -> str:
    """Return the time of day in UTC, with its date where that is not that of ``beside``."""
    utc = from_ms(at_ms)
    if utc.date() == beside.astimezone(UTC).date():
        return f"{utc:%H:%M:%S}"
    return f"{utc:%Y-%m-%d %H:%M:%S}"


REASONS = {
    "overlap": "an older slot of the job was still being worked on, and its overlap is skip",
    "paused": "the job was paused",
    "undelivered": "it was never delivered, and the job's catch-up did not run it",
    "error": "its handler raised an error, and no tries were left",
    "stalled": "its last tries stored no new checkpoint",
    "lost": "its only try was killed or frozen",
    "timed_out": "it used up its own timeout",
    "orphaned": "no schedule and no function of the stack runs the job any more",
    "cancelled": "a person cancelled it",
    "done": "its handler returned",
}
"""Why a run ended, by its stored reason."""

ENDS = {
    "succeeded": "succeeded",
    "interrupted": "stopped early, as planned, its cursor stored",
    "failed": "failed",
    "lost": "was lost: killed, timed out or frozen",
    "cancelled": "was cancelled",
    "released": "took the lease from the attempt before, for a person",
    "waited": "waited for the gate; its handler did not run",
    "skipped": "was skipped; its handler did not run",
}
"""How an attempt ended, by its stored end."""

CAUSES = {
    "schedule": "EventBridge delivered it",
    "person": "a person ran it by hand",
    "backfill": "a backfill delivered it",
    "catch_up": "the resumer caught it up",
    "retry": "a person asked for it again",
}
"""Who made a run, by its stored cause."""
