"""Running the slots of a span of time that did not succeed: planned first, then done.

The plan is a value that can be shown. Each slot goes through its function, its claim and the gate,
as any; an interrupted backfill is begun again and finds what is left.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from anarchon_ddb import by_hand, catch_up, dispatch, history, operations, records
from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.errors import AnarchonError, RefusedError
from anarchon_ddb.records import Damaged, RunRecord
from anarchon_ddb.schema import RunKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from anarchon_ddb.by_hand import Caller
    from anarchon_ddb.history import Row
    from anarchon_ddb.listing import Registered

MOST_SLOTS = 10_000
"""More than this in one plan is a mistake in the dates."""

Kind = Literal["missing", "failed", "skipped"]
Action = Literal["run", "retry", "restart", "leave"]

KINDS: tuple[Kind, ...] = ("missing", "failed", "skipped")
_KIND_OF_STATE: dict[str, Kind] = {"missed": "missing", "failed": "failed", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class Item:
    """One slot of a plan."""

    slot: str
    action: Action
    why: str
    """How it stands now, or why it is left alone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one slot."""

    slot: str
    is_good: bool
    text: str


def plan(
    caller: Caller,
    start: datetime,
    end: datetime,
    *,
    only: Collection[Kind] = KINDS,
    force: bool = False,
) -> list[Item]:
    """Return what a backfill would do, oldest slot first.

    Parameters
    ----------
    start, end : datetime
        Aware; the end is not included.
    only : collection
        What is run: slots that left no run or were missed, runs that failed, slots that were
        skipped.
    force : bool
        Also runs that succeeded or were cancelled; those that succeeded from their start.

    Raises
    ------
    RefusedError
        If nothing lies between, or too much.
    """
    now = from_ms(caller.store.clock.now_ms())
    end = min(end, now)
    if start >= end:
        raise RefusedError(
            f"nothing lies between {iso(start)} and {iso(end)}: the end is not included, and what "
            "is yet to come can't be filled in"
        )
    last = end - timedelta(seconds=1)
    rows = history.runs(caller.store, caller.job, since=start, until=last).rows
    found: dict[str, Row] = {row.slot: row for row in rows}
    slots = set(found)
    if "missing" in only:
        slots |= {iso(slot) for slot in _due(caller, start, end, found)}
    if len(slots) > MOST_SLOTS:
        raise RefusedError(f"that are {len(slots):,} slots, more than {MOST_SLOTS:,}: take fewer")
    oldest = iso(now - timedelta(milliseconds=catch_up.policy_of(caller.head).retention_ms))
    return [_item(slot, found.get(slot), only, oldest, force=force) for slot in sorted(slots)]


def _due(
    caller: Caller, start: datetime, end: datetime, found: dict[str, Row]
) -> Iterator[datetime]:
    """Yield the slots of the job's schedules, up to one more than a plan may have."""
    for entry in caller.entries:
        slots = _slots(caller, entry, start, end, found)
        for count, slot in enumerate(slots):
            yield slot
            if count > MOST_SLOTS:
                break


def _slots(
    caller: Caller, entry: Registered, start: datetime, end: datetime, found: dict[str, Row]
) -> Iterator[datetime]:
    period = entry.schedule.period
    if period is None:
        yield from entry.schedule.between(start, end)
        return
    # A rate's phase is that of what was delivered; near a run nothing is missing.
    last = history.latest(caller.store, caller.job)
    if last is None:
        raise RefusedError(
            f"{caller.job} is due at a rate, and has no run yet that tells since when: run one "
            f"slot by hand: anarchon-ddb run {caller.job} --slot {iso(start)}"
        )
    anchor = datetime.fromisoformat(last.slot)
    existing = sorted(datetime.fromisoformat(slot) for slot in found)
    slot = anchor + -((anchor - start) // period) * period
    while slot < end:
        near = any(abs(other - slot) <= period / 2 for other in existing)
        if slot >= start and not near:
            yield slot
        slot += period


def _item(slot: str, row: Row | None, only: Collection[Kind], oldest: str, *, force: bool) -> Item:
    if isinstance(row, Damaged):
        return Item(slot, "leave", "damaged")
    if row is None or row.state == "missed":
        why = "missing" if row is None else "missed"
        if slot < oldest:
            return Item(slot, "leave", f"{why}, older than the retention")
        return Item(slot, "run" if "missing" in only else "leave", why)
    told = row.reason not in {None, row.state, "done"}
    why = f"{row.state} ({row.reason})" if told else row.state
    if records.is_open(row):
        return Item(slot, "leave", f"{row.state}: it goes on by itself")
    if _KIND_OF_STATE.get(row.state) in only:
        return Item(slot, "retry", why)
    if force and row.state in {"succeeded", "cancelled"}:
        return Item(slot, "restart" if row.state == "succeeded" else "retry", why)
    return Item(slot, "leave", why)


def execute(
    caller: Caller, items: Sequence[Item], *, max_parallel: int, poll_s: float = by_hand.POLL_S
) -> Iterator[Outcome]:
    """Do a plan: never more than so many runs under way; yield each outcome as it is known.

    Parameters
    ----------
    max_parallel : int
        Runs under way at once, at least 1. Under ``overlap: skip`` and ``queue`` the gate lets
        them pass one by one all the same.
    """
    store = caller.store
    waiting = deque(item for item in items if item.action != "leave")
    under_way: dict[str, int] = {}
    while waiting or under_way:
        while waiting and len(under_way) < max_parallel:
            item = waiting.popleft()
            fault = _start(caller, item)
            if fault is None:
                under_way[item.slot] = store.clock.now_ms()
            else:
                yield Outcome(item.slot, is_good=False, text=fault)
        for outcome in _ended(caller, under_way):
            del under_way[outcome.slot]
            yield outcome
        if under_way and by_hand.is_paused(store, caller.job):
            yield from _stopped_by_pause(under_way, waiting)
            return
        if under_way:
            store.clock.sleep(poll_s)


def _stopped_by_pause(under_way: dict[str, int], waiting: Iterable[Item]) -> Iterator[Outcome]:
    for slot in under_way:
        yield Outcome(slot, is_good=False, text="the job was paused; it goes on when unpaused")
    for item in waiting:
        yield Outcome(item.slot, is_good=False, text="the job was paused; not sent")


def _start(caller: Caller, item: Item) -> str | None:
    """Send one slot on its way; return why it could not be."""
    slot = datetime.fromisoformat(item.slot)
    try:
        if item.action == "run":
            by_hand.run(caller, slot, cause="backfill")
        else:
            anew = item.action == "restart"
            operations.retry(caller.store, caller.job, slot, from_start=anew, force=anew)
            caller.send(dispatch.resume_payload(RunKey(caller.job, item.slot)))
    except AnarchonError as error:
        return str(error)
    return None


def _ended(caller: Caller, under_way: dict[str, int]) -> list[Outcome]:
    now_ms = caller.store.clock.now_ms()
    keys = [RunKey(caller.job, slot) for slot in under_way]
    rows = {row.slot: row for row in caller.store.read_runs(keys)}
    found = (_outcome(slot, rows.get(slot), now_ms, sent) for slot, sent in under_way.items())
    return [outcome for outcome in found if outcome is not None]


def _outcome(slot: str, row: Row | None, now_ms: int, sent_ms: int) -> Outcome | None:
    """Return how a slot ended, None while it is under way."""
    if isinstance(row, Damaged):
        return Outcome(slot, is_good=False, text=row.problem)
    if row is None or row.state == "missed":
        if now_ms - sent_ms <= by_hand.START_PATIENCE_MS:
            return None
        return Outcome(slot, is_good=False, text="sent, and not claimed after 2 minutes")
    if records.is_open(row):
        return None
    return _told(slot, row, now_ms)


def _told(slot: str, row: RunRecord, now_ms: int) -> Outcome:
    return Outcome(slot, is_good=row.state == "succeeded", text=history.condition(row, now_ms))
