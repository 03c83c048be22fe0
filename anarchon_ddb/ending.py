"""How an attempt ends: finished, let go of, or overtaken, each with its one write.

An ending is stored before it is told: the log line, the metrics and the result follow the write.
A refused ending may have been stored with only its reply lost; the item says which.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anarchon_ddb import dispatch, interventions, metrics, protocol, records
from anarchon_ddb.errors import Cancelled, Stop, StopEarly, StoreError
from anarchon_ddb.schema import pack_attempts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools import Logger

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.lease import Lease
    from anarchon_ddb.options import Options
    from anarchon_ddb.records import AttemptEnd, Released, RunRecord, State, Terminal, Value
    from anarchon_ddb.store import Store

Result = dict[str, Any]
"""``job, slot, attempt, outcome`` and perhaps ``reason``."""


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt that was claimed, with all that its ending needs."""

    store: Store
    lease: Lease
    record: RunRecord
    options: Options
    clock: Clock
    log: Logger
    patience_ms: Callable[[], int]

    def result(self, outcome: str, reason: str | None = None) -> Result:
        """Return what the invocation answers."""
        return result(self.record.job, self.record.slot, self.record.attempt, outcome, reason)

    def emit(self, values: dict[metrics.Metric, float]) -> None:
        """Write a metrics record of this attempt."""
        record = self.record
        fields = {"slot": record.slot, "attempt": record.attempt, "instance": record.job}
        metrics.emit(values, job=record.job, fields=fields)


def result(
    job: str, slot: str | None, attempt: int | None, outcome: str, reason: str | None = None
) -> Result:
    """Return the small dict that an invocation answers."""
    answer: Result = {"job": job, "slot": slot, "attempt": attempt, "outcome": outcome}
    return answer | ({"reason": reason} if reason else {})


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of an attempt."""

    answer: Result
    is_terminal: bool
    """The run has ended: it leaves the gate."""
    raised: BaseException | None = None
    """What the handler raised: to be raised again, so that Lambda's own metrics see it."""


def end(held: Held, error: BaseException | None, *, has_progressed: bool) -> Ended:
    """Record how the handler ended.

    Parameters
    ----------
    error : BaseException or None
        What it raised, or the stop that it swallowed; None if it returned.
    has_progressed : bool
        Whether it stored a new cursor in this attempt.
    """
    if error is not None and not isinstance(error, Stop):
        return _fail(held, error, strikes=1 if has_progressed else held.record.strikes)
    if error is None:
        answer = close(held, "succeeded", "done")
    elif isinstance(error, Cancelled):
        answer = close(held, "cancelled", "cancelled")
    elif isinstance(error, StopEarly):
        answer = _stop_early(held, error, has_progressed=has_progressed)
    else:
        answer = overtaken(held, str(error))
    return Ended(answer, answer["outcome"] in records.TERMINAL_STATES)


def _stop_early(held: Held, stop: StopEarly, *, has_progressed: bool) -> Result:
    if stop.reason == "timed_out":
        return close(held, "failed", "timed_out")
    return _interrupt(held, stop, has_progressed=has_progressed)


def close(held: Held, state: Terminal, reason: str) -> Result:
    """End a run."""
    ended: dict[Terminal, AttemptEnd] = {"succeeded": "succeeded", "cancelled": "cancelled"}
    explained = None
    if reason in {"stalled", "lost"}:
        at = (held.record.checkpoint or "the beginning")[:60]
        explained = f"no progress at cursor {at} in {held.record.strikes - 1} attempts"
    if not _finish(held, state, reason, ended.get(state, "failed"), explained):
        return overtaken(held, "its end was refused")
    held.log.info("Run ended", extra={"outcome": state, "reason": reason})
    if state == "succeeded":
        held.emit({"RunsSucceeded": 1, **_totals(held)})
    elif state == "failed":
        held.emit(_failed(held))
    return held.result(state, None if state == "succeeded" else reason)


def skip(held: Held, reason: str) -> Result:
    """End a run that is not to be run at all; its handler has not been called."""
    if not _finish(held, "skipped", reason, "skipped"):
        return overtaken(held, "its end was refused")
    held.log.info("Slot skipped", extra={"outcome": "skipped", "reason": reason})
    held.emit({"SlotsSkipped": 1})
    return held.result("skipped", reason)


def step_back(held: Held, state: Released, reason: str) -> Result:
    """Let go of a run whose handler was not called: this attempt counts for nothing."""
    record = held.record
    stored = _let_go(
        held,
        state,
        "waited",
        until_ms=0,
        strikes=record.strikes - 1,
        clock_stops=True,
    )
    if stored is None:
        return overtaken(held, "its release was refused")
    if stored == "cancelled":
        return held.result("cancelled", "cancelled")
    held.log.info("Not run now", extra={"outcome": state, "reason": reason})
    return held.result(state, reason)


def _interrupt(held: Held, stop: StopEarly, *, has_progressed: bool) -> Result:
    stored = _let_go(
        held,
        "interrupted",
        "interrupted",
        until_ms=0,
        strikes=0 if has_progressed else None,
        clock_stops=stop.reason == "paused",
    )
    if stored is None:
        return overtaken(held, "its interruption was refused")
    if stored == "cancelled":
        return held.result("cancelled", "cancelled")
    held.log.info(
        "Attempt interrupted",
        extra={"outcome": "interrupted", "reason": stop.reason, "detail": str(stop)},
    )
    held.emit({"AttemptsInterrupted": 1})
    if held.options.continuation == "self" and stop.reason == "time_short":
        fault = dispatch.send(held.store, held.record.function, held.lease.key)
        if fault is not None:
            held.log.warning(
                "The function could not be invoked to go on; the resumer will do it",
                extra={"fault": str(fault)},
            )
    return held.result("interrupted", stop.reason)


def _fail(held: Held, error: BaseException, *, strikes: int) -> Ended:
    """Record a handler's error: a backoff, or the end of the run."""
    options = held.options
    decision = protocol.retry_decision(
        strikes,
        options.max_attempts,
        options.retry_delay,
        random.random(),  # noqa: S311  spread, not secrecy
    )
    outcome = "retrying" if decision.again else "failed"
    held.log.error(
        "Attempt failed",
        exc_info=error,
        extra={"outcome": outcome, "strikes": strikes, "retry_in_s": decision.delay_ms / 1000},
    )
    stored: State | None = None
    try:
        stored = _record_failure(held, error, decision)
    except StoreError as fault:
        held.log.warning("The failure was not recorded; the lease will run out: %s", fault)
    held.emit(_failed(held) if stored == "failed" else {"AttemptsFailed": 1})
    return Ended(held.result(outcome, "error"), stored in records.TERMINAL_STATES, error)


def _record_failure(
    held: Held, error: BaseException, decision: protocol.RetryDecision
) -> State | None:
    """Store how it failed; return the state that the run has now, None if it was refused."""
    text = f"{type(error).__name__}: {error}"[: records.ERROR_TEXT_LIMIT]
    if not decision.again:
        return "failed" if _finish(held, "failed", "error", "failed", text) else None
    until_ms = held.clock.now_ms() + decision.delay_ms
    return _let_go(held, "retrying", "failed", until_ms=until_ms, explained=text)


def overtaken(held: Held, detail: str) -> Result:
    """Tell that another invocation holds the run: nothing of this one was stored."""
    held.log.warning("Lease lost: %s", detail, extra={"outcome": "lost"})
    return held.result("lost", "lease_lost")


def _failed(held: Held) -> dict[metrics.Metric, float]:
    return {"AttemptsFailed": 1, "RunsFailed": 1, **_totals(held)}


def _totals(held: Held) -> dict[metrics.Metric, float]:
    duration_ms = protocol.used_ms(held.record, held.clock.now_ms())
    return {"RunDuration": duration_ms / 1000, "RunAttempts": held.record.attempt}


def _finish(
    held: Held, state: Terminal, reason: str, ended: AttemptEnd, explained: str | None = None
) -> bool:
    now_ms = held.clock.now_ms()
    values: dict[str, Value] = {
        "state": state,
        "reason": reason,
        "now": now_ms,
        # Seconds: DynamoDB's TTL takes nothing else. Housekeeping, never a lock.
        "expires_at": (now_ms + held.options.retention) // 1000,
    }
    write = protocol.finish(explained=explained is not None)
    return _end_write(held, write, values, state, ended, explained) is not None


def _let_go(
    held: Held,
    state: Released,
    ended: AttemptEnd,
    *,
    until_ms: int,
    strikes: int | None = None,
    clock_stops: bool = False,
    explained: str | None = None,
) -> State | None:
    """Leave the run open; return the state that it has now, None if it was refused."""
    values: dict[str, Value] = {
        "state": state,
        "lease_until": until_ms,
        "due": max(until_ms, held.clock.now_ms()),
    }
    if strikes is not None:
        values["strikes"] = strikes
    if clock_stops:
        values["used_ms"] = protocol.used_ms(held.record, held.clock.now_ms())
    write = protocol.let_go(
        clock_stops=clock_stops, recount=strikes is not None, explained=explained is not None
    )
    before = _end_write(held, write, values, state, ended, explained)
    if before is None:
        return None
    # The let-go takes a stop that was asked for away, obeyed by it if it was a pause.
    is_cancelled = before.get("stop_requested", {}).get("S") == "cancel"
    return "cancelled" if is_cancelled and _cancel(held, state, until_ms) else state


def _cancel(held: Held, state: Released, until_ms: int) -> bool:
    """End a run that was let go of before its holder knew that it was cancelled."""
    now_ms = held.clock.now_ms()
    values: dict[str, Value] = {
        "reason": "cancelled",
        "now": now_ms,
        "expires_at": (now_ms + held.options.retention) // 1000,
        "read_state": state,
        "read_attempt": held.lease.attempt,
        "read_lease_until": until_ms,
    }
    try:
        is_cancelled = _is_cancelled(held, values)
    except StoreError as fault:
        # The let-go is stored: how the attempt ended is told as it is.
        held.log.warning(
            "The run was cancelled, and that was not stored: cancel it again: %s", fault
        )
        return False
    if not is_cancelled:
        held.log.warning("The run was cancelled, and claimed again before that: cancel it again")
        return False
    held.log.info("Run ended", extra={"outcome": "cancelled", "reason": "cancelled"})
    return True


def _is_cancelled(held: Held, values: dict[str, Value]) -> bool:
    """Send the cancel; tell whether it is stored, also if only its reply was lost."""
    key, patience_ms = held.lease.key, held.patience_ms()
    if held.store.write(key, interventions.CANCEL, values, patience_ms=patience_ms) is not None:
        return True
    stored = held.store.read_run(key, patience_ms=held.patience_ms())
    return stored is not None and (stored.state, stored.attempt) == (
        "cancelled",
        held.lease.attempt,
    )


def _end_write(
    held: Held,
    write: protocol.Write,
    values: dict[str, Value],
    state: str,
    ended: AttemptEnd,
    explained: str | None,
) -> dict[str, Any] | None:
    """Send an ending; return the item as it was before, None if it is not stored.

    If only its reply was lost, what was before is not known: nothing is returned of it.
    """
    lease = held.lease
    latest = records.Attempt(
        lease.attempt, lease.claimed_at_ms, held.clock.now_ms(), ended, lease.seq, lease.place
    )
    values |= {
        "owner": lease.owner,
        "attempt": lease.attempt,
        "attempts": pack_attempts(records.with_attempt(lease.past, latest)),
    }
    if explained is not None:
        values["error"] = explained
    patience_ms = held.patience_ms()
    before = held.store.write(
        lease.key, write, values, patience_ms=patience_ms, returning="ALL_OLD"
    )
    if before is not None:
        return before
    stored = held.store.read_run(lease.key, patience_ms=held.patience_ms())
    return {} if protocol.was_stored(stored, lease.owner, lease.attempt, state) else None
