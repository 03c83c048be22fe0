"""The open runs as they go on: how much is done, how fast, how long it takes still.

For people: nothing is written, and nothing printed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anarchon_ddb import history
from anarchon_ddb.records import Damaged

if TYPE_CHECKING:
    from anarchon_ddb.history import Row
    from anarchon_ddb.reading import ReadingStore

_SAMPLES = 30
"""Looks that a rate is measured over."""


@dataclass(frozen=True, slots=True)
class Look:
    """One open run at one moment."""

    row: Row
    now_ms: int
    rate_per_s: float | None
    """Measured between looks; None until something was seen to be done."""

    @property
    def lease_left_ms(self) -> int | None:
        """How long its holder's lease is good; negative once it ran out, None if nobody holds."""
        if isinstance(self.row, Damaged) or self.row.state != "running":
            return None
        return self.row.lease_until - self.now_ms

    @property
    def share(self) -> float | None:
        """How much is done, from 0 to 1; None if the handler gives no total."""
        if isinstance(self.row, Damaged) or self.row.done is None or not self.row.total:
            return None
        return min(1.0, max(0.0, self.row.done / self.row.total))

    @property
    def eta_ms(self) -> int | None:
        """How long it takes still at this rate."""
        if isinstance(self.row, Damaged) or not self.rate_per_s:
            return None
        if self.row.done is None or self.row.total is None:
            return None
        return round(1000 * max(0, self.row.total - self.row.done) / self.rate_per_s)


@dataclass(slots=True)
class Watch:
    """Looks again and again, and remembers what it saw."""

    store: ReadingStore
    job: str | None = None
    _seen: dict[tuple[str, str], deque[tuple[int, int]]] = field(default_factory=dict)

    def look(self) -> list[Look]:
        """Return the open runs as they stand now, the oldest slot first."""
        rows = history.open_runs(self.store, self.job)
        now_ms = self.store.clock.now_ms()
        present = {(row.job, row.slot) for row in rows}
        for gone in set(self._seen) - present:
            del self._seen[gone]
        return [Look(row, now_ms, self._rate(row, now_ms)) for row in rows]

    def _rate(self, row: Row, now_ms: int) -> float | None:
        if isinstance(row, Damaged) or row.done is None:
            return None
        samples = self._seen.setdefault((row.job, row.slot), deque(maxlen=_SAMPLES))
        if samples and row.done < samples[-1][1]:
            samples.clear()  # it began anew
        samples.append((now_ms, row.done))
        (first_ms, first), (last_ms, last) = samples[0], samples[-1]
        if last_ms <= first_ms or last <= first:
            return None
        return 1000 * (last - first) / (last_ms - first_ms)
