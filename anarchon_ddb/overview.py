"""What jobs there are, when each is due next, and how its last run went.

The jobs are those of the registry, and those that have an open run all the same. For people: no
decision is taken here, nothing is written and nothing printed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from anarchon_ddb import catch_up, gate, history
from anarchon_ddb.clock import from_ms
from anarchon_ddb.records import Damaged, Head, RunRecord
from anarchon_ddb.schedule import parse
from anarchon_ddb.zones import load, to_utc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anarchon_ddb.catch_up import Policy
    from anarchon_ddb.history import Row
    from anarchon_ddb.listing import Listing, Registered
    from anarchon_ddb.reading import ReadingStore
    from anarchon_ddb.schedule import Schedule

WORKERS = 10
"""Calls at once: as many as the SDK keeps connections."""

_MINUTE = timedelta(minutes=1)
_FORWARD = "does not exist that day: the clock is set forward; no slot"


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job at a glance."""

    job: str
    entries: tuple[Registered, ...]
    """Its schedules; none for a job that has runs only."""
    next_slot: datetime | None
    last: Row | None
    open: tuple[Row, ...]
    head: Head | Damaged

    @property
    def policy(self) -> Policy | None:
        """The part of its policy that its head keeps; None before its first run."""
        if isinstance(self.head, Damaged) or not (self.head.rev or self.head.policy):
            return None
        return catch_up.policy_of(self.head)

    def is_paused(self, now_ms: int) -> bool:
        """Tell whether nothing of the job runs now."""
        return isinstance(self.head, Head) and gate.is_paused(self.head, now_ms)


def jobs(store: ReadingStore, listing: Listing) -> list[JobRow]:
    """Return all jobs, by name.

    Calls: one query a job, one read for a hundred gates, one for a hundred open runs, and the
    pages of the index.
    """
    open_runs: dict[str, list[Row]] = {}
    for row in history.open_runs(store):
        open_runs.setdefault(row.job, []).append(row)
    names = sorted({entry.job for entry in listing.registered} | set(open_runs))
    heads = store.read_heads(names)
    with ThreadPoolExecutor(WORKERS) as pool:
        latest = dict(zip(names, pool.map(lambda job: history.latest(store, job), names),
                          strict=True))  # fmt: skip
    now = from_ms(store.clock.now_ms())
    found = []
    for job in names:
        entries = tuple(listing.of(job))
        coming = upcoming(entries, now, 1, latest[job])
        found.append(
            JobRow(
                job=job,
                entries=entries,
                next_slot=coming[0].slot if coming else None,
                last=latest[job],
                open=tuple(open_runs.get(job, ())),
                head=heads[job],
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A slot to come, or a local time at which none will be."""

    slot: datetime | None
    """None where the clock is set forward over the time."""
    local: datetime
    """On the schedule's own clock; naive where that never shows it."""
    zone: str
    schedule: str
    note: str = ""


def upcoming(
    entries: Sequence[Registered], now: datetime, count: int, last: Row | None = None
) -> list[Upcoming]:
    """Return the coming slots of a job's enabled schedules, with the gaps between them.

    Parameters
    ----------
    count : int
        Slots; gaps come on top.
    last : Row, optional
        The job's newest run: a rate counts from a moment that AWS does not tell, so its slots are
        those that follow the last one delivered.
    """
    found: list[Upcoming] = []
    for entry in entries:
        if entry.is_enabled:
            found += _coming(entry, now, count, last)
    found.sort(key=_order)
    kept: list[Upcoming] = []
    slots = 0
    for one in found:
        slots += one.slot is not None
        if slots > count:
            break
        kept.append(one)
    return kept


def _order(one: Upcoming) -> tuple[datetime, bool]:
    """Sort by instant. A gap ends where the slot behind it may be: it comes before that."""
    # Compared in UTC: Python calls a time in a gap unequal to every other.
    instant = one.slot or one.local.replace(tzinfo=load(one.zone)).astimezone(UTC)
    return instant, one.slot is not None


def _coming(entry: Registered, now: datetime, count: int, last: Row | None) -> list[Upcoming]:
    schedule, note = entry.schedule, ""
    if not schedule.is_anchored:
        schedule, note = _anchored(schedule, last)
    slots = list(islice(_following(schedule, now), count))
    if not slots:
        return []
    zone = schedule.timezone
    told = [
        Upcoming(slot, schedule.local(slot), zone, entry.name, note or _repeat(schedule, slot))
        for slot in slots
    ]
    return told + list(_gaps(entry, schedule, now, slots[-1]))


def _following(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    slot = schedule.next(now)
    while slot is not None:
        yield slot
        slot = schedule.next(slot)


def _anchored(schedule: Schedule, last: Row | None) -> tuple[Schedule, str]:
    if not isinstance(last, RunRecord):
        return schedule, "about: a rate counts from a moment that AWS does not tell"
    start = datetime.fromisoformat(last.slot)
    return parse(
        schedule.expression, schedule.timezone, schedule.kind, start=start, end=schedule.end
    ), "counted from the last slot delivered"


def _repeat(schedule: Schedule, slot: datetime) -> str:
    """Mark a local time that the clock shows twice: only the first of the two is a slot."""
    if schedule.form != "cron":
        return ""
    zone = load(schedule.timezone)
    first = slot.astimezone(zone)
    second = first.replace(fold=1)
    if first.utcoffset() == second.utcoffset():
        return ""
    again = second.astimezone(UTC)
    return f"the clock shows it twice; due the first time only, not at {again:%H:%M} UTC"


def _gaps(
    entry: Registered, schedule: Schedule, now: datetime, until: datetime
) -> Iterator[Upcoming]:
    """Yield the local times that the expression names and the clock never shows."""
    if schedule.form != "cron" or schedule.timezone == "UTC":
        return
    zone = load(schedule.timezone)
    # Read as if it were UTC, the expression gives the times on the wall.
    on_the_wall = parse(schedule.expression, "UTC", schedule.kind)
    first, last = (at.astimezone(zone).replace(tzinfo=UTC).replace(fold=0) for at in (now, until))
    if first.replace(tzinfo=None) > last.replace(tzinfo=None):
        return
    previous: datetime | None = None
    for wall in on_the_wall.between(first, last):
        local = wall.replace(tzinfo=None)
        if to_utc(local, zone) is not None:
            continue
        if previous is None or local - previous > _MINUTE:  # a row for all minutes of one gap
            yield Upcoming(None, local, schedule.timezone, entry.name, _FORWARD)
        previous = local
