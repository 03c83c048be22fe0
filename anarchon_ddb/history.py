"""What happened: the runs of a job, newest first, and the open runs of all jobs.

For people. Every page is followed, every item is read consistently on the base table, and one that
is damaged is a row like any other. Nothing is decided or written here, and nothing is printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from anarchon_ddb import gate, protocol, records
from anarchon_ddb.clock import iso
from anarchon_ddb.errors import RefusedError
from anarchon_ddb.records import Damaged, RunRecord

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from anarchon_ddb.reading import ReadingStore

Row = RunRecord | Damaged

FIRST_SLOT, LAST_SLOT = "", "~"
"""Before and behind every slot, and what else a damaged key may hold."""


@dataclass(frozen=True, slots=True)
class Page:
    """The newest runs that match, and whether there are more."""

    rows: tuple[Row, ...]
    has_more: bool


def runs(
    store: ReadingStore,
    job: str,
    *,
    states: Collection[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = None,
) -> Page:
    """Return the runs of a job, newest slot first.

    Parameters
    ----------
    states : collection of str
        Only these; a damaged item that has no state is listed all the same.
    since, until : datetime, optional
        Aware; slots from the first to the last, both included.
    limit : int, optional
        Rows that match, however many items must be looked at for them.
    """
    found = store.query_runs(
        job,
        first=FIRST_SLOT if since is None else iso(since),
        last=LAST_SLOT if until is None else iso(until),
        states=states,
        page=limit + 1 if limit is not None and not states else 0,
    )
    rows = tuple(found if limit is None else islice(found, limit + 1))
    return Page(rows[:limit], limit is not None and len(rows) > limit)


def latest(store: ReadingStore, job: str) -> Row | None:
    """Return the run of a job's newest slot."""
    rows = runs(store, job, limit=1).rows
    return rows[0] if rows else None


def latest_slot(store: ReadingStore, job: str) -> str:
    """Return the newest slot of a job that left a trace.

    Raises
    ------
    RefusedError
        If there is none.
    """
    row = latest(store, job)
    if row is None:
        raise RefusedError(f"{job} has no run yet; is the job's name right?")
    return row.slot


def open_runs(store: ReadingStore, job: str | None = None) -> list[Row]:
    """Return the open runs of all jobs, or of one, the oldest slot first.

    The index names candidates; each is read on the base table.
    """
    keys = [key for key in store.open_runs(gate.FOREVER_MS) if job in {None, key.job}]
    found = store.read_runs(sorted(keys, key=lambda key: (key.slot, key.job)))
    rows = [row for row in found if isinstance(row, Damaged) or records.is_open(row)]
    return sorted(rows, key=lambda row: (row.slot, row.job))


def condition(row: Row, now_ms: int) -> str:
    """Say in a few words how a run stands now: its state, and what the state alone hides.

    A killed attempt can't tell of itself: its run is ``running`` until somebody takes it over.
    """
    if isinstance(row, Damaged):
        return "damaged"
    if row.state == "running":
        return f"running{_lease_note(row, now_ms)}"
    if not records.is_open(row):
        told = row.reason if row.reason not in {None, row.state, "done"} else None
        return f"{row.state} ({told})" if told else row.state
    return row.state


def is_held(record: RunRecord, now_ms: int) -> bool:
    """Tell whether somebody works on a run: nobody else may claim it."""
    return record.state == "running" and not protocol.is_claimable(record, now_ms)


def _lease_note(record: RunRecord, now_ms: int) -> str:
    if record.stop_requested:
        return f", {record.stop_requested} asked"
    return ", lease expired" if record.lease_until <= now_ms else ""


def first_claimed_at(record: RunRecord) -> int | None:
    """Return when a run was first claimed; None if it never was, or it is not kept any more."""
    past = records.history(record)
    if past and past[0].number == 1:
        return past[0].claimed_at_ms
    return record.claimed_at if record.attempt == 1 and record.claimed_at else None


def attempts(record: RunRecord, now_ms: int) -> tuple[records.Attempt, ...]:
    """Return the attempts that are kept, the one under way with ``now`` as its end.

    An attempt writes its end together with the run's; while a run is ``running`` the last one has
    none.
    """
    past = records.history(record)
    if record.state != "running":
        return past
    end_ms = now_ms if is_held(record, now_ms) else min(now_ms, record.lease_until)
    reached = records.place(record.checkpoint, record.done)
    under_way = records.Attempt(
        record.attempt, record.claimed_at, end_ms, "lost", record.seq, reached
    )
    return (*past, under_way)
