"""What the registry lists: the schedules of the jobs, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from anarchon_ddb.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Registered:
    """One schedule of the group, of one job."""

    job: str
    """The job, or an instance of it."""
    name: str
    arn: str
    schedule: Schedule
    is_enabled: bool
    function: str
    """The ARN of the function that runs the job."""
    params: Mapping[str, Any]
    since: datetime
    """Created or last modified: what was due before is not known."""
    flexible_s: int
    """The width of its flexible time window."""
    event_age_s: int
    """How long Scheduler tries to deliver, and Lambda then keeps the event, together."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The group as far as it was read."""

    registered: tuple[Registered, ...] = ()
    faults: tuple[str, ...] = ()
    """What could not be read or understood, in words; the rest is listed all the same."""
    is_complete: bool = False
    """False if the list or a schedule is missing: then nothing follows from an absence."""

    def with_more(self, other: Listing) -> Listing:
        """Return both lists as one."""
        return Listing(
            self.registered + other.registered,
            self.faults + other.faults,
            self.is_complete and other.is_complete,
        )

    def of(self, job: str) -> list[Registered]:
        """Return the schedules of a job."""
        return [entry for entry in self.registered if entry.job == job]
