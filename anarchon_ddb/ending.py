"""How an attempt ends: finished, let go of, or overtaken, each with its one write.

An ending is stored before it is told: the log line, the metrics and the result follow the write.
A refused ending may have been stored with only its reply lost; the item says which.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anarchon_ddb import dispatch, metrics, protocol, records
from anarchon_ddb.errors import LeaseLost, StopEarly, StoreError
from anarchon_ddb.schema import pack_attempts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_lambda_powertools import Logger

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.lease import Lease
    from anarchon_ddb.options import Options
    from anarchon_ddb.records import AttemptEnd, Released, RunRecord, Terminal
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


def end(held: Held, error: BaseException | None, *, has_progressed: bool) -> Result:
    """Record how the handler ended; return the result, or raise what the handler raised.

    Parameters
    ----------
    error : BaseException or None
        What it raised, or the stop that it swallowed; None if it returned.
    has_progressed : bool
        Whether it stored a new cursor in this attempt.
    """
    if error is None:
        return _succeed(held)
    if isinstance(error, LeaseLost):
        return _overtaken(held, str(error))
    if isinstance(error, StopEarly):
        return _interrupt(held, error, has_progressed=has_progressed)
    _fail(held, error, strikes=1 if has_progressed else held.record.strikes)
    raise error


def give_up(held: Held, reason: str) -> Result:
    """End a run whose attempts used up its strikes, without running the handler once more."""
    strikes = held.record.strikes - 1
    at = (held.record.checkpoint or "the beginning")[:60]
    explained = f"no progress at cursor {at} in {strikes} attempts"
    if not _finish(held, "failed", reason, "failed", explained):
        return _overtaken(held, "while giving up")
    held.log.error("Run failed", extra={"outcome": "failed", "reason": reason, "strikes": strikes})
    held.emit(_failed(held))
    return held.result("failed", reason)


def _succeed(held: Held) -> Result:
    if not _finish(held, "succeeded", "done", "succeeded"):
        return _overtaken(held, "its end was refused")
    held.log.info("Run succeeded", extra={"outcome": "succeeded"})
    held.emit({"RunsSucceeded": 1, **_totals(held)})
    return held.result("succeeded")


def _interrupt(held: Held, stop: StopEarly, *, has_progressed: bool) -> Result:
    if not _let_go(held, "interrupted", "interrupted", until_ms=0, forgive=has_progressed):
        return _overtaken(held, "its interruption was refused")
    held.log.info("Attempt interrupted", extra={"outcome": "interrupted", "reason": str(stop)})
    held.emit({"AttemptsInterrupted": 1})
    if held.options.continuation == "self":
        fault = dispatch.send(held.store, held.record.function, held.lease.key)
        if fault is not None:
            held.log.warning(
                "The function could not be invoked to go on; the resumer will do it",
                extra={"fault": fault},
            )
    return held.result("interrupted", "time_short")


def _fail(held: Held, error: BaseException, *, strikes: int) -> None:
    """Record a handler's error: a backoff, or the end of the run."""
    options = held.options
    decision = protocol.retry_decision(
        strikes,
        options.max_attempts,
        options.retry_delay,
        random.random(),  # noqa: S311
    )
    outcome = "retrying" if decision.again else "failed"
    held.log.error(
        "Attempt failed",
        exc_info=error,
        extra={"outcome": outcome, "strikes": strikes, "retry_in_s": decision.delay_ms / 1000},
    )
    text = f"{type(error).__name__}: {error}"[: records.ERROR_TEXT_LIMIT]
    try:
        if decision.again:
            until_ms = held.clock.now_ms() + decision.delay_ms
            stored = _let_go(held, "retrying", "failed", until_ms=until_ms, explained=text)
        else:
            stored = _finish(held, "failed", "error", "failed", text)
    except StoreError as fault:
        held.log.warning("The failure was not recorded; the lease will run out: %s", fault)
        stored = False
    if stored and not decision.again:
        held.emit(_failed(held))
    else:
        held.emit({"AttemptsFailed": 1})


def _overtaken(held: Held, detail: str) -> Result:
    held.log.warning("Lease lost: %s", detail, extra={"outcome": "lost"})
    return held.result("lost", "lease_lost")


def _failed(held: Held) -> dict[metrics.Metric, float]:
    return {"AttemptsFailed": 1, "RunsFailed": 1, **_totals(held)}


def _totals(held: Held) -> dict[metrics.Metric, float]:
    duration_ms = held.clock.now_ms() - held.record.started_at
    return {"RunDuration": duration_ms / 1000, "RunAttempts": held.record.attempt}


def _finish(
    held: Held, state: Terminal, reason: str, ended: AttemptEnd, explained: str | None = None
) -> bool:
    now_ms = held.clock.now_ms()
    values: dict[str, str | int] = {
        "state": state,
        "reason": reason,
        "now": now_ms,
        # Seconds: DynamoDB's TTL takes nothing else. Housekeeping, never a lock.
        "expires_at": (now_ms + held.options.retention) // 1000,
    }
    return _end_write(held, protocol.finish(explained=explained is not None), values, state,
                      ended, explained)  # fmt: skip


def _let_go(
    held: Held,
    state: Released,
    ended: AttemptEnd,
    *,
    until_ms: int,
    forgive: bool = False,
    explained: str | None = None,
) -> bool:
    values: dict[str, str | int] = {
        "state": state,
        "lease_until": until_ms,
        "due": max(until_ms, held.clock.now_ms()),
    }
    write = protocol.let_go(forgive=forgive, explained=explained is not None)
    return _end_write(held, write, values, state, ended, explained)


def _end_write(
    held: Held,
    write: protocol.Write,
    values: dict[str, str | int],
    state: str,
    ended: AttemptEnd,
    explained: str | None,
) -> bool:
    """Send an ending; True if it is stored, also if only its reply was lost."""
    lease = held.lease
    latest = records.Attempt(
        lease.attempt, lease.claimed_at_ms, held.clock.now_ms(), ended, lease.seq
    )
    values |= {
        "owner": lease.owner,
        "attempt": lease.attempt,
        "attempts": pack_attempts(records.with_attempt(lease.past, latest)),
    }
    if explained is not None:
        values["error"] = explained
    patience_ms = held.patience_ms()
    if held.store.write(lease.key, write, values, patience_ms=patience_ms) is not None:
        return True
    stored = held.store.read_run(lease.key, patience_ms=held.patience_ms())
    return protocol.was_stored(stored, lease.owner, lease.attempt, state)
