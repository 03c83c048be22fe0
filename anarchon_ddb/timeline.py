"""Runs and their attempts as bars over time: the values that a picture is drawn from.

For people: nothing is written, and nothing printed or drawn here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from anarchon_ddb import history
from anarchon_ddb.clock import to_ms
from anarchon_ddb.records import Damaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anarchon_ddb.reading import ReadingStore
    from anarchon_ddb.records import RunRecord


@dataclass(frozen=True, slots=True)
class Segment:
    """One attempt."""

    number: int
    start_ms: int
    end_ms: int
    outcome: str
    """How it ended; ``running`` or ``expired`` for one that has not told yet."""
    place: str
    """Where it ended: how much was done, or how its cursor begins."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One run."""

    slot: str
    slot_ms: int
    state: str
    told: str
    """Its state in words, with what the state alone hides."""
    segments: tuple[Segment, ...]
    progress: str
    error: str

    @property
    def end_ms(self) -> int:
        """When its last attempt ended, or when it was due if it has none."""
        return max((segment.end_ms for segment in self.segments), default=self.slot_ms)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The runs of a job in a span of time, oldest first."""

    job: str
    since_ms: int
    now_ms: int
    bars: tuple[Bar, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many runs are in each state, the most first."""
        return dict(Counter(bar.state for bar in self.bars).most_common())


@dataclass(frozen=True, slots=True)
class Axis:
    """Where an instant is drawn: on one axis of time, or as the time since each run was due."""

    start_ms: int | None
    """None where each run begins at 0."""
    length_ms: int

    def share(self, bar: Bar, at_ms: int) -> float:
        """Return where an instant lies, from 0 to 1."""
        start_ms = bar.slot_ms if self.start_ms is None else self.start_ms
        return min(1.0, max(0.0, (at_ms - start_ms) / self.length_ms))


def axis_of(bars: Sequence[Bar]) -> Axis:
    """Choose the axis of some runs: where they are short beside the time between, each has its own.

    Parameters
    ----------
    bars : sequence of Bar
        At least one.
    """
    start_ms = min(bar.slot_ms for bar in bars)
    end_ms = max(*(bar.end_ms for bar in bars), start_ms + 1_000)
    longest_ms = max(*(bar.end_ms - bar.slot_ms for bar in bars), 1_000)
    if longest_ms * 3 < end_ms - start_ms:
        return Axis(None, longest_ms)
    return Axis(start_ms, end_ms - start_ms)


def timeline(store: ReadingStore, job: str, since: datetime) -> Timeline:
    """Return the runs of the slots since an instant."""
    now_ms = store.clock.now_ms()
    rows = history.runs(store, job, since=since).rows
    bars = tuple(_bar(row, to_ms(since), now_ms) for row in reversed(rows))
    return Timeline(job, to_ms(since), now_ms, bars)


def _bar(row: history.Row, since_ms: int, now_ms: int) -> Bar:
    if isinstance(row, Damaged):  # even its slot may be none
        return Bar(row.slot, since_ms, "damaged", "damaged", (), "", row.problem)
    slot_ms = to_ms(datetime.fromisoformat(row.slot))
    return Bar(
        slot=row.slot,
        slot_ms=slot_ms,
        state=row.state,
        told=history.condition(row, now_ms),
        segments=tuple(_segments(row, now_ms)),
        progress=progress(row),
        error=row.error or "",
    )


def progress(record: RunRecord) -> str:
    """Say how much of a run is done, as its handler counted.

    Returns
    -------
    str
        ``400 of 1,000``, ``400``, or nothing.
    """
    if record.done is None:
        return ""
    return f"{record.done:,} of {record.total:,}" if record.total else f"{record.done:,}"


def _segments(record: RunRecord, now_ms: int) -> list[Segment]:
    found = []
    for attempt in history.attempts(record, now_ms):
        under_way = record.state == "running" and attempt.number == record.attempt
        alive = "running" if history.is_held(record, now_ms) else "expired"
        found.append(
            Segment(
                attempt.number,
                attempt.claimed_at_ms,
                attempt.ended_at_ms,
                alive if under_way else attempt.end,
                attempt.place,
            )
        )
    return found
