"""The gate of a job, as values: its writes, and what the job's head means for a slot that wants in.

Under ``overlap: skip`` and ``queue`` one slot at a time passes the gate: the job's ``head`` item
names it, with the attempt that passed, and the slots that wait. "Is it still taken?" and "I wait"
are one write, so no wake-up is lost and nobody overtakes.

Why each detail is there, each found by exploring what happens without it:

* the attempt in the gate: else a late clear of A's first attempt opens it beside A's second;
* ``<= :attempt``: a delayed copy of an old gate write must not take it back;
* ``rev`` as read, wherever a decision was taken from the head: else B waits for an A that has
  ended, or a slot is handed the gate twice.

No I/O, no clock, no environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from anarchon_ddb.protocol import Write
from anarchon_ddb.records import Head, RunRecord, is_open

if TYPE_CHECKING:
    from anarchon_ddb.options import Overlap
    from anarchon_ddb.records import Value

FOREVER_MS = 253_402_300_799_000
"""The end of the year 9999: a pause without an end."""

RULES_SHARD = "rules"
"""The partition of the index that lists the jobs that rules fire."""

NOT_PAUSED = "(attribute_not_exists(#paused_until) OR #paused_until <= :now)"
FREE = "attribute_not_exists(#active_slot) AND attribute_not_exists(#waiting)"
MINE = "#active_slot = :slot AND #active_attempt <= :attempt"
AS_READ = "#rev = :rev"

_COUNT = "#rev = if_not_exists(#rev, :zero) + :one"
_ACTIVE = ("#active_slot = :slot", "#active_attempt = :attempt")
_CONSTANTS: dict[str, str | int] = {"zero": 0, "one": 1}


@cache
def passing(*, with_policy: bool) -> Write:
    """Return the write that passes the gate; it keeps the job's policy for the resumer."""
    return Write(
        name="pass",
        sets=(*_ACTIVE, _COUNT, *(("#policy = :policy",) if with_policy else ())),
        removes=() if with_policy else ("#policy",),
        requires=(NOT_PAUSED, f"({FREE} OR {MINE})"),
        constants=_CONSTANTS,
    )


# Where overlap is allowed nothing is passed: the policy is written when it changed.
POLICY = Write(
    name="policy",
    sets=("#policy = :policy",),
    requires=("(attribute_not_exists(#policy) OR #policy = :read_policy)",),
)

# A job that a rule fires is in no group: from its first delivery on its head stands in the index,
# in a partition of its own, for the resumer to find.
RULE = Write(
    name="rule",
    sets=(
        "#rule = :rule",
        "#function = :function",
        "#rule_since = if_not_exists(#rule_since, :now)",
        "#open = :rules",
        "#due = :zero",
    ),
    requires=("(attribute_not_exists(#rule) OR #rule = :read_rule)",),
    constants={"rules": RULES_SHARD, "zero": 0},
)

# How far the resumer came. Only forward: two passes may be under way.
CHECKED = Write(
    name="checked",
    sets=("#checked_until = :checked_until",),
    requires=("(attribute_not_exists(#checked_until) OR #checked_until < :checked_until)",),
)


@cache
def _waiting(*, some: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the set and remove clauses that store who waits: a set may not be empty."""
    return (("#waiting = :waiting",), ()) if some else ((), ("#waiting",))


@cache
def hand(*, some_wait: bool) -> Write:
    """Return the write that gives a gate that nobody uses to the oldest who wants it."""
    sets, removes = _waiting(some=some_wait)
    return Write(
        name="hand",
        sets=(*_ACTIVE, _COUNT, *sets),
        removes=removes,
        requires=(AS_READ, NOT_PAUSED),
        constants=_CONSTANTS,
    )


@cache
def wait(*, some_wait: bool) -> Write:
    """Return the write that changes who waits, if the gate is still as it was read."""
    sets, removes = _waiting(some=some_wait)
    return Write(
        name="wait",
        sets=(_COUNT, *sets),
        removes=removes,
        requires=(AS_READ,),
        constants=_CONSTANTS,
    )


WAIT = wait(some_wait=True)

# Who passed leaves the gate, and nobody waits for it.
CLEAR = Write(
    name="clear",
    sets=(_COUNT,),
    removes=("#active_slot", "#active_attempt"),
    requires=(MINE, AS_READ),
    constants=_CONSTANTS,
)


@cache
def hand_over(*, some_wait: bool) -> Write:
    """Return the write by which who passed gives the gate to the oldest who waits."""
    sets, removes = _waiting(some=some_wait)
    return Write(
        name="hand_over",
        sets=("#active_slot = :next", "#active_attempt = :zero", _COUNT, *sets),
        removes=removes,
        requires=(MINE, AS_READ),
        constants=_CONSTANTS,
    )


@cache
def pause(*, fresh: bool) -> Write:
    """Return the write that pauses a job; ``fresh`` if its head does not exist yet."""
    return Write(
        name="pause",
        sets=("#paused_until = :until", "#paused_from = :now", "#pause_note = :note", _COUNT),
        requires=("attribute_not_exists(#rev)" if fresh else AS_READ,),
        constants=_CONSTANTS,
    )


UNPAUSE = Write(
    name="unpause",
    sets=("#unpaused_at = :now", _COUNT),
    removes=("#paused_until", "#pause_note"),
    requires=(AS_READ,),
    constants=_CONSTANTS,
)


# --- decisions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing of the job may run now."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The gate is this slot's own already, or has changed: write again."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A later attempt at this slot has passed: this one holds nothing any more."""


@dataclass(frozen=True, slots=True)
class HandTo:
    """The gate is free, or was left by a run that has ended: it goes to the oldest."""

    slot: str
    waiting: frozenset[str]
    """Who waits afterwards."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """An older run has the gate and nobody holds it: work on that one instead."""

    slot: str


@dataclass(frozen=True, slots=True)
class Skip:
    """An older run is being worked on: this slot is not run."""


@dataclass(frozen=True, slots=True)
class Wait:
    """An older run has the gate: this slot is run after it."""

    waiting: frozenset[str]


Decision = Paused | TryAgain | Overtaken | HandTo | TakeOver | Skip | Wait


def is_paused(head: Head, now_ms: int) -> bool:
    """Tell whether the job is paused now."""
    return head.paused_until > now_ms


def decide(
    head: Head,
    mine: RunRecord,
    active: RunRecord | None,
    *,
    overlap: Overlap,
    now_ms: int,
    claimable: bool,
) -> Decision:
    """Decide what a refused ``PASS`` means, from consistent reads made after it.

    Parameters
    ----------
    head : Head
        The gate.
    mine : RunRecord
        The run that wants in; its lease is held.
    active : RunRecord or None
        The run that the head names, unless it is this one or none.
    claimable : bool
        Whether a claim of ``active`` would be granted now.
    """
    if is_paused(head, now_ms):
        return Paused()
    if head.rev == 0:  # no head: the gate can't have refused, unless it was deleted since
        return TryAgain()
    if head.active_slot == mine.slot:
        return TryAgain() if head.active_attempt <= mine.attempt else Overtaken()
    if head.active_slot is None or active is None or not is_open(active):
        wanting = head.waiting | {mine.slot}
        oldest = min(wanting)  # slots are written so that text order is time order
        return HandTo(oldest, wanting - {oldest})
    if overlap == "skip" and mine.cause == "schedule":
        return TakeOver(active.slot) if claimable else Skip()
    return Wait(head.waiting | {mine.slot})


def waiting_without(head: Head, slot: str) -> tuple[Write, dict[str, Value]]:
    """Return the write by which a slot that was cancelled waits no longer."""
    waiting = head.waiting - {slot}
    values: dict[str, Value] = {"rev": head.rev}
    if waiting:
        values["waiting"] = waiting
    return wait(some_wait=bool(waiting)), values


def is_left_by(head: Head, slot: str, attempt: int) -> bool:
    """Tell whether the gate still names a run that has ended in this attempt."""
    return head.active_slot == slot and head.active_attempt <= attempt


def leaving(head: Head, slot: str, attempt: int) -> tuple[Write, dict[str, Value], str | None]:
    """Return the write with which a run that has ended leaves the gate, and who gets it."""
    values: dict[str, Value] = {"slot": slot, "attempt": attempt, "rev": head.rev}
    if not head.waiting:
        return CLEAR, values, None
    oldest = min(head.waiting)
    waiting = head.waiting - {oldest}
    values["next"] = oldest
    if waiting:
        values["waiting"] = waiting
    return hand_over(some_wait=bool(waiting)), values, oldest
