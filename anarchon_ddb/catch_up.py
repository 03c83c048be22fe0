"""What is to be done about slots that were due and have left no trace: pure decisions.

A slot is looked at once it has settled: Scheduler delivers within its minute and its flexible
window, and Lambda's queue adds to it. It is called missed only when nobody can deliver it any more.

No I/O, no clock, no environment.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from anarchon_ddb.clock import to_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from anarchon_ddb.listing import Registered
    from anarchon_ddb.options import CatchUp, Options, Overlap
    from anarchon_ddb.records import Head

SETTLE_S = 120
"""Not before this much beyond the flexible window: a slot on its way must not be stolen."""

SLOTS_A_PASS = 500
"""Slots of one job looked at in one pass; the next pass goes on behind them."""

Action = Literal["run", "miss", "skip", "leave"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The part of a job's policy that the resumer needs, as the job's head keeps it."""

    catch_up: CatchUp = "latest"
    window_ms: int = 86_400_000
    timeout_ms: int = 86_400_000
    retention_ms: int = 30 * 86_400_000
    overlap: Overlap = "skip"
    """For people; the resumer does not look at it."""


DEFAULT_POLICY = Policy()


def policy_text(options: Options) -> str:
    """Return the snapshot of a job's policy; empty for the defaults, which need none.

    Examples
    --------
    >>> from anarchon_ddb.options import Options
    >>> policy_text(Options())
    ''
    >>> policy_text(Options(catch_up="all"))
    '["all",86400000,86400000,2592000000,"skip"]'
    """
    policy = Policy(
        options.catch_up,
        options.catch_up_window,
        options.timeout,
        options.retention,
        options.overlap,
    )
    # Where overlap is allowed the snapshot is a write of its own: not for this alone.
    if policy in {DEFAULT_POLICY, Policy(overlap="allow")}:
        return ""
    return json.dumps(astuple(policy), separators=(",", ":"))


def policy_of(head: Head) -> Policy:
    """Return the policy that a job's head keeps; the defaults if it keeps none."""
    try:
        return Policy(*json.loads(head.policy)) if head.policy else DEFAULT_POLICY
    except (TypeError, ValueError):
        return DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class Due:
    """A slot that an enabled schedule of a job made due."""

    slot: datetime
    entry: Registered


def due_slots(
    entries: Sequence[Registered], head: Head, policy: Policy, now: datetime
) -> list[Due]:
    """Return the settled slots of a job that have not been looked at, oldest first.

    Parameters
    ----------
    entries : sequence of Registered
        The job's schedules.
    head : Head
        Its gate, which keeps how far earlier passes came.
    now : datetime
        Aware.
    """
    checked = datetime.fromtimestamp(head.checked_until / 1000, UTC) if head.checked_until else None
    begin = checked or now - timedelta(milliseconds=policy.window_ms)
    found: dict[datetime, Due] = {}
    for entry in entries:
        if not entry.is_enabled:
            continue
        settled = now - timedelta(seconds=SETTLE_S + entry.flexible_s)
        after = max(begin, entry.since)
        for count, slot in enumerate(_slots(entry, after, settled)):
            if count == SLOTS_A_PASS:
                break
            found.setdefault(slot, Due(slot, entry))
    return [found[slot] for slot in sorted(found)][:SLOTS_A_PASS]


def _slots(entry: Registered, after: datetime, until: datetime) -> Iterable[datetime]:
    """Return the slots behind ``after``, up to ``until``; a rate counts from its creation."""
    second = timedelta(seconds=1)
    if entry.schedule.form != "rate" or entry.schedule.is_anchored:
        return entry.schedule.between(after + second, until + second)
    return _rate_slots(entry, after, until)


def _rate_slots(entry: Registered, after: datetime, until: datetime) -> Iterable[datetime]:
    period = entry.schedule.period or timedelta(minutes=1)
    anchor = entry.since.replace(microsecond=0)
    slot = anchor + ((max(after, anchor) - anchor) // period + 1) * period
    while slot <= until:
        yield slot
        slot += period


def is_covered(due: Due, existing: Collection[datetime]) -> bool:
    """Tell whether a slot has left a trace: a rate's by any run within half a period.

    The phase of a rate isn't known: its slots are those that were delivered.
    """
    period = due.entry.schedule.period
    if period is None:
        return due.slot in existing
    return any(abs(slot - due.slot) <= period / 2 for slot in existing)


def is_newest(due: Due, now: datetime) -> bool:
    """Tell whether no later slot of its schedule is due by now."""
    if due.entry.schedule.period is not None:
        return due.slot + due.entry.schedule.period > now
    following = due.entry.schedule.next(due.slot)
    return following is None or following > now


def was_paused(head: Head, slot: datetime) -> bool:
    """Tell whether a slot fell into the job's pause, or its last one."""
    at_ms = to_ms(slot)
    end_ms = head.paused_until or head.unpaused_at
    return bool(head.paused_from) and head.paused_from <= at_ms < end_ms


def decide(due: Due, head: Head, policy: Policy, now: datetime) -> Action:
    """Decide what becomes of a slot that has left no trace.

    ``leave`` looks at it again in the next pass.
    """
    if was_paused(head, due.slot):
        return "skip"
    if head.paused_until > to_ms(now):
        return "leave"  # it was due before the pause: nothing of the job runs now
    in_window = due.slot >= now - timedelta(milliseconds=policy.window_ms)
    wanted = policy.catch_up == "all" or (policy.catch_up == "latest" and is_newest(due, now))
    if wanted and in_window:
        return "run"
    given_up = due.slot + timedelta(seconds=SETTLE_S + due.entry.flexible_s + due.entry.event_age_s)
    return "miss" if now >= given_up else "leave"


def walk(
    due: Sequence[Due],
    existing: Collection[datetime],
    choose: Callable[[Due], Action],
) -> tuple[list[tuple[Due, Action]], datetime | None]:
    """Return what to do, in order, and how far the job is settled afterwards.

    A slot that is run or left is not settled: its trace is yet to come.
    """
    todo: list[tuple[Due, Action]] = []
    settled: datetime | None = None
    is_settled = True
    for one in due:
        if not is_covered(one, existing):
            action = choose(one)
            if action != "leave":
                todo.append((one, action))
            is_settled = is_settled and action in {"miss", "skip"}
        if is_settled:
            settled = one.slot
    return todo, settled
