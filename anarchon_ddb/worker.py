"""One invocation: event -> claim -> handler -> finish or let go -> continue.

The order of the writes is the protocol's; what a refusal means is decided there. Nothing here
waits for another invocation, and nothing is reported as done that was not stored.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from anarchon_ddb import codec, ending, logs, metrics, passage, protocol
from anarchon_ddb.clock import SYSTEM_CLOCK, Clock, from_ms, iso, to_ms
from anarchon_ddb.cursor import withheld_for_ms
from anarchon_ddb.ending import Held, Result, result
from anarchon_ddb.errors import (
    CheckpointError,
    InvalidEventError,
    InvalidJobError,
    LeaseLost,
    StopEarly,
    StoreError,
)
from anarchon_ddb.events import SlotEvent, parse_event
from anarchon_ddb.lease import PATIENCE_RESERVE_MS, Lease
from anarchon_ddb.records import RunRecord
from anarchon_ddb.run import Run
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from anarchon_ddb.options import Options
    from anarchon_ddb.records import Terminal, Value


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """A job as one function runs it."""

    name: str
    handler: Callable[[Run], object]
    options: Options


def invoke(job: JobDefinition, event: object, context: Any) -> Result:
    """Work on the slot that an event delivers, as far as this invocation's time goes.

    Raises
    ------
    InvalidEventError, InvalidJobError
        Nothing was written.
    StoreError
        The table did not answer. If that was at the claim, the handler did not run.
    Exception
        What the handler raised, after it was recorded.
    """
    clock = clock_of(context)
    delivery = parse_event(
        event,
        job.name,
        now=from_ms(clock.now_ms()),
        retention=timedelta(milliseconds=job.options.retention),
    )
    if delivery is None:
        return result(job.name, None, None, "ignored")
    return Invocation(job, delivery, context, store_of(clock), clock).work()


def clock_of(context: Any) -> Clock:
    """Return the clock that a context brings, as the testing kit's does; else the machine's.

    A mock brings anything that it is asked for: only a clock that tells a number is one.
    """
    clock: Any = getattr(context, "clock", None)
    now_ms = getattr(clock, "now_ms", None)
    return clock if callable(now_ms) and isinstance(now_ms(), int) else SYSTEM_CLOCK


_store: tuple[tuple[str | None, ...], Store] | None = None


def store_of(clock: Clock) -> Store:
    """Return the store that the environment names, the same one while that stays as it is."""
    global _store  # noqa: PLW0603  one client over the warm invocations of a sandbox
    settings = ("ANARCHON_TABLE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                "AWS_ENDPOINT_URL_DYNAMODB")  # fmt: skip
    named = tuple(os.environ.get(setting) for setting in settings)
    if _store is None or _store[0] != named:
        _store = (named, Store.from_environment())
    _store[1].clock = clock
    return _store[1]


class Invocation:
    """The state of one invocation that delivers a slot."""

    def __init__(
        self, job: JobDefinition, delivery: SlotEvent, context: Any, store: Store, clock: Clock
    ) -> None:
        self.job = job
        self.options = job.options
        self.delivery = delivery
        self.context = context
        self.store = store
        self.clock = clock
        self.key = RunKey(delivery.job, iso(delivery.slot))
        self.params = _params_text(delivery)
        self.owner = uuid4().hex
        self.log = logs.logger()

    def remaining_ms(self) -> int:
        """Return the time that Lambda leaves, asked at this moment: the limit is not fixed."""
        ask = getattr(self.context, "get_remaining_time_in_millis", None)
        remaining = ask() if callable(ask) else None
        if not isinstance(remaining, (int, float)):
            raise TypeError(
                "the second argument of the handler must be Lambda's context, which tells the "
                f"remaining time; got {type(self.context).__name__}. In a test use "
                "anarchon_ddb.testing.LambdaContext()"
            )
        return int(remaining)

    def patience_ms(self) -> int:
        """Return how long a call may be tried while its answer is unknown."""
        return max(0, self.remaining_ms() - PATIENCE_RESERVE_MS)

    def work(self) -> Result:
        """Claim the run, bring it through the gate, and work on it; or say why not, at once."""
        self._check_margin()
        if self.delivery.cause == "catch_up" and self.options.catch_up == "none":
            return self._decline()
        claimed = self._claim()
        if not isinstance(claimed, RunRecord):
            return claimed
        held = self._held(claimed)
        with self._telling(held):
            closed = passage.close_if_due(held)
            if closed is not None:
                return closed
            passed = passage.enter(held, self._claim_other)
        if not isinstance(passed, passage.Passed):
            return passed
        with self._telling(passed.held):
            return self._work_on(passed)

    def _decline(self) -> Result:
        """Record a slot as missed: the resumer could not know yet that the job wants no catch-up.

        A job that never ran has kept no policy; from now on it has.
        """
        passage.keep_policy(self.store, self.key.job, self.options)
        now_ms = self.clock.now_ms()
        values: dict[str, Value] = {
            "state": "missed",
            "reason": "undelivered",
            "cause": "catch_up",
            "now": now_ms,
            "expires_at": (now_ms + self.options.retention) // 1000,
        }
        self.store.write(self.key, protocol.TRACE, values, patience_ms=self.patience_ms())
        return result(self.key.job, self.key.slot, None, "missed", "undelivered")

    def end_as(self, state: Terminal, reason: str) -> Result:
        """Claim the run only to end it: for the resumer, where no function will."""
        claimed = self._claim()
        if not isinstance(claimed, RunRecord):
            return claimed
        held = self._held(claimed)
        with self._telling(held):
            closed = passage.close_if_due(held)
            if closed is not None:
                return closed
            answer = ending.close(held, state, reason)
            passage.leave(held, None)
            return answer

    def _telling(self, held: Held) -> AbstractContextManager[None]:
        record = held.record
        return self.log.append_context_keys(
            job=record.job, slot=record.slot, attempt=record.attempt
        )

    def _claim_other(self, slot: str) -> Held | None:
        """Claim an older run of the job, which nobody holds, for this invocation."""
        key = RunKey(self.key.job, slot)
        owner = uuid4().hex
        values = self._claim_values(owner)
        record = self.store.claim(
            key, protocol.CLAIM_RESUME, values, patience_ms=self.patience_ms()
        )
        if record is None:
            stored = self.store.read_run(key, patience_ms=self.patience_ms())
            if protocol.refused_claim(stored, owner, None, first=False) != "mine":
                return None
            record = stored
        return None if record is None else self._held(record)

    def _check_margin(self) -> None:
        if self.remaining_ms() <= self.options.stop_margin:
            raise InvalidJobError(
                f"job {self.job.name!r}: the function's timeout leaves "
                f"{self.remaining_ms() / 1000:.1f} s, no more than stop_margin "
                f"({self.options.stop_margin / 1000:.1f} s), so no batch could ever run: "
                "raise the function's Timeout or lower stop_margin"
            )

    def _claim_values(self, owner: str) -> dict[str, Value]:
        now_ms = self.clock.now_ms()
        until_ms = protocol.lease_until(now_ms, self.options.lease, self.remaining_ms())
        return {
            "owner": owner,
            "lease_until": until_ms,
            "now": now_ms,
            "expired_before": now_ms - protocol.CLOCK_SKEW_MS,
            "due": until_ms + protocol.CLOCK_SKEW_MS,
            "request_id": str(getattr(self.context, "aws_request_id", "")),
            "function": str(getattr(self.context, "invoked_function_arn", "")),
        }

    def _claim(self) -> RunRecord | Result:
        values = self._claim_values(self.owner)
        write = protocol.CLAIM_RESUME
        if self.delivery.is_first:
            brought = {"params": self.params, "schedule": self.delivery.schedule}
            values["cause"] = self.delivery.cause
            values |= {name: text for name, text in brought.items() if text is not None}
            write = protocol.claim_first(
                with_params="params" in values, with_schedule="schedule" in values
            )
        patience_ms = self.patience_ms()
        granted = self.store.claim(self.key, write, values, patience_ms=patience_ms)
        return granted if granted is not None else self._refused()

    def _refused(self) -> RunRecord | Result:
        """Say what a refused claim means: a normal end, unless the claim was in fact stored."""
        record = self.store.read_run(self.key, patience_ms=self.patience_ms())
        why = protocol.refused_claim(record, self.owner, self.params, first=self.delivery.is_first)
        if why == "mine" and record is not None:
            return record
        if why == "other_params":
            raise InvalidEventError(
                f"{self.key.job} {self.key.slot} was delivered with other params before; its run "
                "keeps those. Give each set of params an instance of its own, such as "
                f"{self.key.job.partition(':')[0]}:name"
            )
        attempt = record.attempt if record else None
        state = record.state if record else "absent"
        self.log.info(
            "Not claimed",
            extra={"job": self.key.job, "slot": self.key.slot, "outcome": why, "state": state},
        )
        outcome = "ignored" if why == "absent" else why
        return result(self.key.job, self.key.slot, attempt, outcome, state)

    def _work_on(self, passed: passage.Passed) -> Result:
        held = passed.held
        try:
            held.lease.check()
        except LeaseLost as lost:
            return ending.overtaken(held, str(lost))
        self._tell_start(held)
        ended = self._attempt(held)
        if ended.is_terminal:
            self._leave(passed, ended.raised)
        if ended.raised is not None:
            raise ended.raised
        return ended.answer

    def _leave(self, passed: passage.Passed, raised: BaseException | None) -> None:
        """Leave the gate. A failure of that must not hide the handler's own error."""
        try:
            passage.leave(passed.held, passed.head)
        except StoreError as fault:
            if raised is None:
                raise
            # Whoever comes next finds the gate left by an ended run, and hands it on.
            self.log.warning("The gate was not left: %s", fault)
            raised.add_note(f"The gate of the job was not left either: {fault}")

    def _attempt(self, held: Held) -> ending.Ended:
        """Let the handler work, and record how it ended."""
        try:
            run = self._run(held)
        except (CheckpointError, LeaseLost) as error:
            return ending.end(held, error, has_progressed=False)
        raised = self._run_handler(run, held.lease)
        return ending.end(held, raised, has_progressed=held.lease.has_progressed)

    def _held(self, record: RunRecord) -> Held:
        lease = Lease(
            self.store,
            record,
            lease_ms=self.options.lease,
            withheld_for_ms=withheld_for_ms(
                record,
                self.options.checkpoint_interval,
                self.options.lease,
                self.options.max_attempts,
            ),
            version=self.options.version,
            remaining_ms=self.remaining_ms,
            clock=self.clock,
        )
        return Held(self.store, lease, record, self.options, self.clock, self.log, self.patience_ms)

    def _run(self, held: Held) -> Run:
        """Return what the handler sees.

        Raises
        ------
        CheckpointError
            If the stored cursor can't be decoded, or belongs to another version of the job.
        LeaseLost
            If another invocation took the run over meanwhile.
        """
        run = Run(
            held.record,
            held.lease,
            stop_margin_ms=self.options.stop_margin,
            deadline_ms=protocol.deadline_ms(held.record, self.options.timeout),
            remaining_ms=self.remaining_ms,
            clock=self.clock,
            logger=self.log,
        )
        if run.is_resuming and held.record.version != self.options.version:
            self._change_version(held, run)
        return run

    def _change_version(self, held: Held, run: Run) -> None:
        was, now = held.record.version, self.options.version
        if self.options.on_version_change == "fail":
            raise CheckpointError(
                f"job {held.record.job!r}, slot {held.record.slot}: the checkpoint was saved by "
                f"version {was!r}, this is {now!r}, and on_version_change is fail"
            )
        self.log.warning("The job's version changed", extra={"was": was, "version": now})
        if self.options.on_version_change == "restart":
            run.restart()

    def _run_handler(self, run: Run, lease: Lease) -> BaseException | None:
        """Run the handler; return what it raised, or the stop that it swallowed."""
        raised: BaseException | None = None
        lease.start()
        try:
            self.job.handler(run)
        except BaseException as error:  # noqa: BLE001  each is recorded, and raised again
            raised = error
        finally:
            lease.stop()
        if raised is None:
            # A handler that caught the stop, or saw should_stop, and returned has not succeeded.
            raised = run.stopped_by or lease.lost
        return raised if lease.lost is not None else self._store_withheld(lease, raised)

    def _store_withheld(self, lease: Lease, raised: BaseException | None) -> BaseException | None:
        """Store the cursor that the handler's last saves withheld; return how the attempt ends.

        It belongs to a batch that is done, whatever came after it.
        """
        try:
            lease.store_withheld()
        except (LeaseLost, StoreError) as fault:
            if raised is None or isinstance(raised, StopEarly):
                return fault
            self.log.warning("The last cursor was not stored: %s", fault)
        return raised

    def _tell_start(self, held: Held) -> None:
        record = held.record
        lost = [past for past in held.lease.past if past not in record.attempts]
        self.log.info(
            "Attempt started",
            extra={
                "cause": self.delivery.cause,
                "checkpoint_bytes": len((record.checkpoint or "").encode()),
                "lost_attempts": len(lost),
            },
        )
        values: dict[metrics.Metric, float] = {"AttemptsStarted": 1}
        if lost:
            values["Takeovers"] = 1
        if record.attempt == 1:
            values["SlotLag"] = max(0, record.claimed_at - to_ms(self.delivery.slot)) / 1000
        held.emit(values)


def _params_text(delivery: SlotEvent) -> str | None:
    """Return the parameters as they are stored, so that two deliveries can be compared."""
    if not delivery.params:
        return None
    try:
        return codec.dumps(dict(delivery.params), canonical=True)
    except CheckpointError as error:
        raise InvalidEventError(f"params of {delivery.job!r} can't be stored: {error}") from None


def warm_up() -> None:
    """Make the client, and load what its first call needs, during Lambda's init: a full CPU.

    Raises
    ------
    StoreError
        If no table is named: found at start-up, before any call.
    """
    codecs.lookup("idna")  # what a first connection would import, for the name of its host
    _ = store_of(SYSTEM_CLOCK).client
