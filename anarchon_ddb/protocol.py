"""The protocol of a run, as values: what each write sets, on what condition, what a refusal means.

A run is one item. Every change to it is one conditional ``UpdateItem``, named below, so that a
reviewer reads the whole protocol here. The story of a run:

* ``CLAIM`` takes the lease: a fresh random owner, the next attempt number (the fencing token), and
  an instant before which nobody else may claim. It touches lease fields only and never puts a
  whole item, so a checkpoint survives every takeover.
* ``save`` stores the cursor and prolongs the lease in the same write. ``RENEW`` only prolongs.
* ``let_go`` gives the lease up without ending the run; ``FINISH`` ends it.

This module does no I/O, reads no clock and no environment, and imports nothing that does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

from anarchon_ddb.records import RunRecord, Terminal, is_open

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCK_SKEW_MS = 5_000
"""How far the clocks of two sandboxes may differ. A takeover of a running run waits this long."""

LEASE_GRACE_MS = 1_000
"""How far a lease may reach past the invocation's own deadline: Lambda kills at the deadline."""

MAX_RETRY_DELAY_MS = 15 * 60 * 1000

RUNNING_RUN = {"running": "running"}


@dataclass(frozen=True)
class Write:
    """One conditional ``UpdateItem``: the expressions, precomputed.

    ``#name`` stands for the attribute ``name`` everywhere, since ``state``, ``owner`` and ``ttl``
    are reserved words of DynamoDB. ``:name`` stands for a value that the caller gives.
    """

    name: str
    sets: tuple[str, ...]
    requires: tuple[str, ...]
    removes: tuple[str, ...] = ()
    constants: Mapping[str, str | int] = field(default_factory=dict)

    @cached_property
    def update(self) -> str:
        """The update expression."""
        removes = f" REMOVE {', '.join(self.removes)}" if self.removes else ""
        return f"SET {', '.join(self.sets)}{removes}"

    @cached_property
    def condition(self) -> str:
        """The condition expression: all of ``requires``."""
        return " AND ".join(self.requires)

    @cached_property
    def names(self) -> dict[str, str]:
        """The attribute behind each ``#name``."""
        found = re.findall(r"#\w+", f"{self.sets} {self.removes} {self.condition}")
        return {placeholder: placeholder[1:] for placeholder in sorted(set(found))}


# AND binds closer than OR, so a group of ANDs stands without parentheses.

# --- claim -------------------------------------------------------------------------------------

# A run nobody has touched, or one that was recorded as missed and is delivered after all. Only a
# first delivery may create: a resume of a run that does not exist must leave no trace.
FIRST = "attribute_not_exists(#pk) OR #state = :missed"
# A holder whose lease ran out. DynamoDB conditions can't add: the caller gives now - clock skew.
EXPIRED = "#state = :running AND #lease_until < :expired_before"
# A run that was let go of has no holder to wait for, only perhaps a backoff.
LET_GO = "#state IN (:pending, :interrupted, :retrying) AND #lease_until <= :now"

_CLAIM_SETS = (
    "#state = :running",
    "#owner = :owner",
    "#attempt = if_not_exists(#attempt, :zero) + :one",
    # Counted at the start: an attempt that is killed can't count itself at its end.
    "#strikes = if_not_exists(#strikes, :zero) + :one",
    "#seq = if_not_exists(#seq, :zero)",
    "#lease_until = :lease_until",
    "#previous_claimed_at = if_not_exists(#claimed_at, :now)",
    # What the run was before, for a claim that must give it back untouched.
    "#former_state = if_not_exists(#state, :absent)",
    "#claimed_at = :now",
    "#started_at = if_not_exists(#started_at, :now)",
    "#open = :shard",
    "#due = :due",
    "#request_id = :request_id",
    "#function = :function",
)
_CLAIM_CONSTANTS: dict[str, str | int] = {
    "running": "running",
    "pending": "pending",
    "interrupted": "interrupted",
    "retrying": "retrying",
    "absent": "absent",
    "zero": 0,
    "one": 1,
}

CLAIM_RESUME = Write(
    name="claim",
    sets=_CLAIM_SETS,
    removes=("#reason", "#expires_at", "#finished_at"),
    requires=(f"({EXPIRED} OR {LET_GO})",),
    constants=_CLAIM_CONSTANTS,
)


@cache
def claim_first(*, with_params: bool, with_schedule: bool = False) -> Write:
    """Return the claim of a delivery that may create the run.

    Its parameters must be those stored with the run: a second delivery with others is a mistake
    that must be told, not a duplicate. The schedule that fired it is kept with the run, since a
    resume does not name it.
    """
    stored = "#params = :params" if with_params else "attribute_not_exists(#params)"
    same = f"({FIRST} OR {stored})" if with_params else stored
    optional = {
        "#params = if_not_exists(#params, :params)": with_params,
        "#schedule = if_not_exists(#schedule, :schedule)": with_schedule,
    }
    wanted = (setting for setting, on in optional.items() if on)
    return Write(
        name="claim",
        sets=(*_CLAIM_SETS, "#cause = if_not_exists(#cause, :cause)", *wanted),
        removes=("#reason", "#expires_at", "#finished_at"),
        requires=(f"({FIRST} OR {EXPIRED} OR {LET_GO})", same),
        constants=_CLAIM_CONSTANTS | {"missed": "missed"},
    )


# --- the holder's writes -----------------------------------------------------------------------

# Both, since an owner is never used twice but a person's `release` raises the attempt only.
HELD = ("#state = :running", "#owner = :owner", "#attempt = :attempt")
# A delayed copy of an older save (a retry inside the SDK) must not move the checkpoint back.
NOT_OVERTAKEN = "#seq <= :seq"
# A copy of a commit must not be stored at all: the user's part of it may be an addition.
NOT_REPEATED = "#seq < :seq"

OUT_OF_INDEX = ("#open", "#due")

_PROLONG = ("#lease_until = :lease_until", "#seq = :seq")
_PACE = "#longest_batch_ms = :longest_batch_ms, #longest_save_ms = :longest_save_ms"


@dataclass(frozen=True, slots=True)
class SaveShape:
    """What a save stores beside the lease: each shape is one precomputed write."""

    clear: bool
    """Forget the cursor instead of storing one."""
    progressed: bool
    """The cursor is a new one, and strikes before this attempt are stored: they no longer count."""
    counted: bool
    """The handler said how much is done."""
    totalled: bool
    """The handler said of how much."""
    versioned: bool
    """The job has a version, which says how the cursor is to be read."""
    history: bool
    """Record what became of the predecessors: the holder's first write does."""
    committed: bool = False
    """Part of a transaction with writes of the user's, which must not be repeated."""
    same_pace: bool = False
    """The longest batch and save are stored as they are: nothing of them to send."""


@cache
def save(shape: SaveShape) -> Write:
    """Return the write that stores a cursor and prolongs the lease."""
    optional = {
        _PACE: not shape.same_pace,
        "#checkpoint = :checkpoint, #checkpoint_at = :now": not shape.clear,
        "#strikes = :one": shape.progressed,
        "#done = :done": shape.counted,
        "#total = :total": shape.totalled,
        "#version = :version": shape.versioned,
        "#attempts = :attempts": shape.history,
    }
    cursor = ("#checkpoint", "#checkpoint_at", "#done", "#total", "#version")
    return Write(
        name="save",
        sets=(*_PROLONG, *(setting for setting, wanted in optional.items() if wanted)),
        removes=cursor if shape.clear else (),
        requires=(*HELD, NOT_REPEATED if shape.committed else NOT_OVERTAKEN),
        constants=RUNNING_RUN | ({"one": 1} if shape.progressed else {}),
    )


# What a transaction of the user's own takes in, to be stored only while this attempt holds the run.
HOLDS = Write(name="condition_check", sets=(), requires=HELD, constants=RUNNING_RUN)


RENEW = Write(
    name="renew",
    sets=_PROLONG,
    requires=(*HELD, NOT_OVERTAKEN),
    constants=RUNNING_RUN,
)


@cache
def let_go(*, clock_stops: bool, recount: bool, explained: bool) -> Write:
    """Return the write that gives the lease up and leaves the run open.

    The owner stays: it decides a lost reply.

    Parameters
    ----------
    clock_stops : bool
        Waiting and pauses don't count in the run's own timeout: keep what was used of it, and let
        the next claim start anew.
    recount : bool
        Set the strikes: 0 after an interruption with progress, one less where the handler did not
        run in this attempt.
    explained : bool
        Store the error.
    """
    optional = {
        "#strikes = :strikes": recount,
        "#error = :error": explained,
        "#used_ms = :used_ms": clock_stops,
    }
    always = ("#state = :state", "#lease_until = :lease_until", "#due = :due")
    wanted = (setting for setting, on in optional.items() if on)
    return Write(
        name="let_go",
        sets=(*always, "#attempts = :attempts", *wanted),
        # A pause that was asked for is obeyed by this.
        removes=("#stop_requested", *(("#started_at",) if clock_stops else ())),
        requires=HELD,
        constants=RUNNING_RUN,
    )


@cache
def finish(*, explained: bool) -> Write:
    """Return the write that ends the run. The owner stays: it decides a lost reply."""
    sets = (
        "#state = :state",
        "#reason = :reason",
        "#attempts = :attempts",
        "#finished_at = :now",
        "#expires_at = :expires_at",
    )
    return Write(
        name="finish",
        sets=(*sets, "#error = :error") if explained else sets,
        removes=(*OUT_OF_INDEX, "#stop_requested", *(() if explained else ("#error",))),
        requires=HELD,
        constants=RUNNING_RUN,
    )


# A slot that was never delivered: missed, or skipped since the job was paused.
TRACE = Write(
    name="trace",
    sets=(
        "#state = :state",
        "#reason = :reason",
        "#attempt = :zero",
        # A person's write compares it: what is absent equals nothing.
        "#lease_until = :zero",
        "#cause = :cause",
        "#finished_at = :now",
        "#expires_at = :expires_at",
    ),
    requires=("attribute_not_exists(#pk)",),
    constants={"zero": 0},
)


# The resumer's mark: not sent on its way again within the interval, by nobody.
DISPATCH = Write(
    name="dispatch",
    sets=("#dispatched_at = :now",),
    requires=(
        "attribute_exists(#open)",
        "#attempt = :attempt",
        "(attribute_not_exists(#dispatched_at) OR #dispatched_at < :dispatched_before)",
    ),
)


# --- decisions ---------------------------------------------------------------------------------


def is_claimable(record: RunRecord, now_ms: int) -> bool:
    """Tell whether a claim at ``now_ms`` would be granted: its condition, read back."""
    if record.state == "running":
        return record.lease_until < now_ms - CLOCK_SKEW_MS
    return is_open(record) and record.lease_until <= now_ms


RefusedBecause = Literal["busy", "duplicate", "mine", "absent", "other_params"]


def refused_claim(
    record: RunRecord | None, owner: str, params: str | None, *, first: bool
) -> RefusedBecause:
    """Say what a refused claim means, from a consistent read made after it.

    ``mine``: the claim was stored and its reply was lost, so the SDK's own retry was refused.
    ``params`` is what a first delivery brought; a resume brings none.
    """
    if record is None:
        return "absent"
    if record.owner == owner and record.state == "running":
        return "mine"
    if first and record.params != params:
        return "other_params"
    return "busy" if is_open(record) else "duplicate"


def deadline_ms(record: RunRecord, timeout_ms: int) -> int:
    """Return when the run's own timeout is over, counted over all its invocations."""
    return record.started_at + timeout_ms - record.used_ms


def used_ms(record: RunRecord, now_ms: int) -> int:
    """Return how long the run has been worked on, without waiting and pauses."""
    return record.used_ms + now_ms - record.started_at


Closing = tuple[Terminal, str]
"""A terminal state and its reason."""


def must_end(record: RunRecord, now_ms: int, timeout_ms: int, max_attempts: int) -> Closing | None:
    """Say how a run that was just claimed must end instead of going on; None if it need not.

    The strike of this claim is already counted, so ``max_attempts`` of them came before it.
    """
    if record.stop_requested == "cancel":
        return "cancelled", "cancelled"
    if now_ms >= deadline_ms(record, timeout_ms):
        return "failed", "timed_out"
    if record.strikes > max_attempts:
        return "failed", "lost" if max_attempts == 1 else "stalled"
    return None


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What follows an error of the handler."""

    again: bool
    delay_ms: int = 0


def retry_decision(
    strikes: int, max_attempts: int, retry_delay_ms: int, jitter: float
) -> RetryDecision:
    """Decide what follows an error: exponential backoff with full jitter, or the end.

    Parameters
    ----------
    strikes : int
        Attempts since the last new checkpoint, this one included.
    jitter : float
        A random number from 0 to 1. The source of the rule is "Exponential Backoff And Jitter",
        AWS Architecture Blog, 2015.

    Examples
    --------
    >>> retry_decision(strikes=2, max_attempts=3, retry_delay_ms=30_000, jitter=0.5)
    RetryDecision(again=True, delay_ms=30000)
    >>> retry_decision(strikes=3, max_attempts=3, retry_delay_ms=30_000, jitter=0.5).again
    False
    """
    if strikes >= max_attempts:
        return RetryDecision(again=False)
    ceiling = min(MAX_RETRY_DELAY_MS, retry_delay_ms * 2 ** min(strikes - 1, 20))
    return RetryDecision(again=True, delay_ms=round(ceiling * jitter))


def lease_until(now_ms: int, lease_ms: int, remaining_ms: int) -> int:
    """Return the end of a lease: never beyond the invocation's deadline plus a small grace.

    So a function that is killed at its deadline is taken over at once.

    Examples
    --------
    >>> lease_until(now_ms=1_000_000, lease_ms=60_000, remaining_ms=870_000)
    1060000
    >>> lease_until(now_ms=1_000_000, lease_ms=60_000, remaining_ms=5_000)
    1006000
    """
    return now_ms + min(lease_ms, max(0, remaining_ms) + LEASE_GRACE_MS)


def needed_ms(stop_margin_ms: int, longest_batch_ms: int, longest_save_ms: int) -> int:
    """Return the time a further batch needs: the margin, or half as much again as the longest.

    Examples
    --------
    >>> needed_ms(stop_margin_ms=5_000, longest_batch_ms=8_000, longest_save_ms=20)
    12020
    """
    return max(stop_margin_ms, longest_batch_ms * 3 // 2 + longest_save_ms)


def was_stored(record: RunRecord | None, owner: str, attempt: int, state: str) -> bool:
    """Tell whether a refused finish or let-go was in fact stored, and only its reply lost.

    A successor may already hold the run by then: what the history says of this attempt decides.
    """
    if record is None:
        return False
    if record.owner == owner and record.attempt == attempt:
        return record.state == state
    return any(past.number == attempt and past.end != "lost" for past in record.attempts)
