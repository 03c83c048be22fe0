"""The way of one run through the gate of its job, and how it leaves it.

The decisions are in ``gate``; here are the calls, in the protocol's order. A run whose lease is
held passes, or ends as skipped, or is let go of to wait. Every branch ends with a write that the
next invocation, whoever it is, can go on from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anarchon_ddb import catch_up, dispatch, ending, gate, protocol
from anarchon_ddb.schema import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from anarchon_ddb.ending import Held, Result
    from anarchon_ddb.options import Options
    from anarchon_ddb.records import Head, Released, RunRecord, Value
    from anarchon_ddb.store import Store

    Claim = Callable[[str], Held | None]

_ROUNDS = 20
"""Each further round means that another worker changed the gate meanwhile."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A run that may be worked on: perhaps an older one than was delivered."""

    held: Held
    head: Head | None
    """The gate as it was passed; None where overlap is allowed."""


def enter(held: Held, claim: Claim) -> Passed | Result:
    """Bring a run through the gate.

    Parameters
    ----------
    held : Held
        The run that was delivered, its lease held.
    claim : callable
        Claims another slot of the job for this invocation; None if it is refused.
    """
    if held.options.overlap == "allow":
        head = held.store.read_head(held.record.job, patience_ms=held.patience_ms())
        if gate.is_paused(head, held.clock.now_ms()):
            return _pause(held)
        keep_policy(held.store, held.record.job, held.options, head)
        keep_rule(held, head)
        return Passed(held, None)
    for _ in range(_ROUNDS):
        entered = _try(held, claim)
        if entered is not None:
            return entered
    return _step_back(held, "pending", "the gate changed too often")


def keep_policy(store: Store, job: str, options: Options, head: Head | None = None) -> None:
    """Keep a job's policy for the resumer where it is not the one that is kept already."""
    head = store.read_head(job) if head is None else head
    policy = catch_up.policy_text(options)
    if policy != head.policy:
        values: dict[str, Value] = {"policy": policy, "read_policy": head.policy}
        store.write_head(job, gate.POLICY, values)


def keep_rule(held: Held, head: Head) -> None:
    """Let the resumer find a job that a rule fires: no schedule group lists it."""
    arn = held.record.schedule or ""
    if ":rule/" not in arn or (head.rule, head.function) == (arn, held.record.function):
        return
    values: dict[str, Value] = {
        "rule": arn,
        "read_rule": head.rule,
        "function": held.record.function,
        "now": held.clock.now_ms(),
    }
    held.store.write_head(held.record.job, gate.RULE, values, patience_ms=held.patience_ms())


def leave(held: Held, head: Head | None) -> None:
    """Leave the gate after the run has ended: open it, or hand it to the oldest who waits.

    ``head`` is the gate as this attempt passed it, None if it was not read. Whoever finds the gate
    left by an ended run does the same, so a crash before this costs only time.
    """
    record, store = held.record, held.store
    if held.options.overlap == "allow":
        return
    for _ in range(_ROUNDS):
        if head is None:
            head = store.read_head(record.job, patience_ms=held.patience_ms())
            if not gate.is_left_by(head, record.slot, record.attempt):
                return
        write, values, following = gate.leaving(head, record.slot, record.attempt)
        left = store.write_head(record.job, write, values, patience_ms=held.patience_ms())
        if left is not None:
            if following is not None:
                _send(held, following)
            return
        head = None


def _try(held: Held, claim: Claim) -> Passed | Result | None:
    """Write the gate once, and act on a refusal; None to try again."""
    record, store, clock = held.record, held.store, held.clock
    values: dict[str, Value] = {
        "slot": record.slot,
        "attempt": record.attempt,
        "now": clock.now_ms(),
    }
    policy = catch_up.policy_text(held.options)
    if policy:
        values["policy"] = policy
    write = gate.passing(with_policy=bool(policy))
    head = store.write_head(record.job, write, values, patience_ms=held.patience_ms())
    if head is not None:
        keep_rule(held, head)
        return Passed(held, head)
    head = store.read_head(record.job, patience_ms=held.patience_ms())
    active = _active(held, head)
    now_ms = clock.now_ms()
    decision = gate.decide(
        head,
        record,
        active,
        overlap=held.options.overlap,
        now_ms=now_ms,
        claimable=active is not None and protocol.is_claimable(active, now_ms),
    )
    return _act(held, claim, head, decision)


def _active(held: Held, head: Head) -> RunRecord | None:
    if head.active_slot in {None, held.record.slot}:
        return None
    key = RunKey(held.record.job, head.active_slot or "")
    return held.store.read_run(key, patience_ms=held.patience_ms())


def _act(held: Held, claim: Claim, head: Head, decision: gate.Decision) -> Passed | Result | None:
    match decision:
        case gate.Paused():
            return _pause(held)
        case gate.TryAgain():
            return None
        case gate.Overtaken():
            return ending.overtaken(held, "a later attempt has passed the gate")
        case gate.HandTo():
            return _hand(held, head, decision)
        case gate.TakeOver(slot):
            return _take_over(held, claim, slot)
        case gate.Skip():
            return ending.skip(held, "overlap")
        case gate.Wait(waiting):
            return _wait(held, head, waiting)


def _hand(held: Held, head: Head, decision: gate.HandTo) -> Passed | Result | None:
    """Give the free gate to the oldest: on with it if that is this run, else wait in its place."""
    mine = decision.slot == held.record.slot
    values: dict[str, Value] = {
        "slot": decision.slot,
        "attempt": held.record.attempt if mine else 0,
        "rev": head.rev,
        "now": held.clock.now_ms(),
    }
    if decision.waiting:
        values["waiting"] = decision.waiting
    write = gate.hand(some_wait=bool(decision.waiting))
    passed = held.store.write_head(held.record.job, write, values, patience_ms=held.patience_ms())
    if passed is None:
        return None
    if mine:
        return Passed(held, passed)
    result = _step_back(held, "pending", "overlap")
    _send(held, decision.slot)
    return result


def _take_over(held: Held, claim: Claim, slot: str) -> Passed | Result | None:
    """Work on an abandoned older run instead; this slot is skipped only once that one is held."""
    other = claim(slot)
    if other is None:
        return ending.skip(held, "overlap")
    if close_if_due(other) is not None:
        return None  # it has ended at its claim: the gate is free for this slot
    ending.skip(held, "overlap")
    return enter(other, claim)


def close_if_due(held: Held) -> Result | None:
    """End a run at its claim, where it was cancelled, timed out, or used up its attempts."""
    options = held.options
    closing = protocol.must_end(
        held.record, held.clock.now_ms(), options.timeout, options.max_attempts
    )
    if closing is None:
        return None
    answer = ending.close(held, *closing)
    leave(held, None)
    return answer


def _wait(held: Held, head: Head, waiting: frozenset[str]) -> Result | None:
    """Join those who wait, if the gate is still as it was read; then let go."""
    values: dict[str, Value] = {"waiting": waiting, "rev": head.rev}
    job = held.record.job
    if held.store.write_head(job, gate.WAIT, values, patience_ms=held.patience_ms()) is None:
        return None
    return _step_back(held, "pending", "overlap")


def _pause(held: Held) -> Result:
    """Do not run: a new slot is skipped, a run that was open goes back to what it was."""
    if held.record.former_state in {"absent", "missed"}:
        return ending.skip(held, "paused")
    former = held.record.former_state
    state: Released = "interrupted" if former == "running" else former  # type: ignore[assignment]
    return _step_back(held, state, "paused")


def _step_back(held: Held, state: Released, reason: str) -> Result:
    return ending.step_back(held, state, reason)


def _send(held: Held, slot: str) -> None:
    """Send another slot of the job on its way, as the job's continuation says."""
    if held.options.continuation == "self":
        dispatch.send(held.store, held.record.function, RunKey(held.record.job, slot))
