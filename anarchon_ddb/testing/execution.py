"""One execution of a job's slot: invocation after invocation, until the run has ended.

What EventBridge, Lambda and the resumer do, without waiting: the slot is delivered, an open run is
resumed as soon as it may be claimed, and the clock is moved to that instant.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anarchon_ddb import codec, protocol, worker
from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.errors import InvalidEventError, InvalidJobError
from anarchon_ddb.options import duration_ms
from anarchon_ddb.records import TERMINAL_STATES
from anarchon_ddb.schema import HeadKey, RunKey
from anarchon_ddb.testing.clock import SettableClock, as_moment
from anarchon_ddb.testing.context import LambdaContext
from anarchon_ddb.testing.events import resume_event, scheduler_event
from anarchon_ddb.testing.inside import Order, Outcome
from anarchon_ddb.testing.sandbox import Point, Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from anarchon_ddb.job import Job
    from anarchon_ddb.options import Duration
    from anarchon_ddb.records import RunRecord
    from anarchon_ddb.testing.sandbox import Announced

START_AFTER_SLOT_MS = 5_000
"""When a slot is delivered, if the test has no clock of its own."""

_POINT = re.compile(r"(before|after) (\S.*?)(?: (\d+))?")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One invocation of the run."""

    number: int | None
    """The attempt it made; None if it did not claim the run."""
    from_cursor: Any
    """The cursor that was stored before it; None if there was none."""
    to_cursor: Any
    """The cursor that was stored after it."""
    ended: str
    """As the invocation answered: ``succeeded``, ``interrupted``, ``pending``, ``skipped`` …;
    ``failed`` if the handler raised; ``killed``; ``killed at its timeout``."""
    error: str | None = None
    """What the handler raised."""


@dataclass(frozen=True, slots=True)
class FinalRun:
    """The run as it is stored at the end."""

    state: str
    reason: str | None
    attempt: int
    checkpoint: Any
    """The last cursor, decoded."""
    done: int | None
    total: int | None
    error: str | None


@dataclass(slots=True)
class Execution:
    """One way a run may go.

    Parameters
    ----------
    job : Job
        The handler.
    kills : list of str
        Where it is killed, in this order: ``"before save 3"``.
    stops : bool
        Leave no time for a second batch, in any invocation.
    meanwhile : callable, optional
        Called after each kill, before the next invocation.
    """

    job: Job
    name: str
    slot: datetime
    timeout_ms: int
    clock: SettableClock
    params: Mapping[str, Any] | None = None
    kills: list[str] = field(default_factory=list)
    stops: bool = False
    meanwhile: Callable[[], object] | None = None
    quiet: bool = False
    max_invocations: int = 100
    attempts: list[Attempt] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    """Every instant at which it could have been killed, in order."""
    killed_at: list[int] = field(default_factory=list)
    """Which of the points it was killed at."""
    stops_raised: int = 0
    """The most stops that one attempt raised."""
    failure: str = ""
    """The traceback of the handler's last error."""
    _sandbox: Sandbox | None = None
    _counts: Counter[str] = field(default_factory=Counter)

    @property
    def key(self) -> RunKey:
        """Where the run is stored."""
        return RunKey(self.name, iso(self.slot))

    def read(self) -> RunRecord | None:
        """Return the run as it is stored now."""
        return worker.store_of(self.clock).read_run(self.key)

    def run_in_sandboxes(self) -> FinalRun:
        """Run to the end in child processes, a new one after each kill."""
        try:
            return self._run(self._invoke_in_sandbox)
        finally:
            if self._sandbox is not None:
                self._sandbox.kill()

    def run_here(self) -> FinalRun:
        """Run to the end in this process."""
        return self._run(self._invoke_here)

    def _run(self, invoke: Callable[[dict[str, Any]], Outcome]) -> FinalRun:
        after = self.read()
        for _ in range(self.max_invocations):
            before = after
            outcome = invoke(self._next_event(before))
            after = self.read()
            self._note(before, after, outcome)
            if after is not None and after.state in TERMINAL_STATES:
                return _final(after)
        told = "\n".join(f"  {attempt}" for attempt in self.attempts[-5:])
        raise AssertionError(
            f"{self.name} {iso(self.slot)} has not ended after {self.max_invocations} invocations; "
            f"the last of them:\n{told}"
        )

    def _next_event(self, record: RunRecord | None) -> dict[str, Any]:
        """Move the clock to where the run may be claimed; return the event that makes it go on."""
        if record is None:
            return scheduler_event(self.name, self.slot, params=self.params)
        is_held = record.state == "running"
        due_ms = record.lease_until + (protocol.CLOCK_SKEW_MS + 1 if is_held else 0)
        if self.clock.now_ms() < due_ms:
            self.clock.set(from_ms(due_ms))
        return resume_event(self.name, self.slot)

    def _note(self, before: RunRecord | None, after: RunRecord | None, outcome: Outcome) -> None:
        claimed = after is not None and (before is None or before.attempt != after.attempt)
        self.attempts.append(
            Attempt(
                after.attempt if after is not None and claimed else None,
                _cursor(before),
                _cursor(after),
                outcome.outcome,
                outcome.error,
            )
        )
        self.stops_raised = max(self.stops_raised, outcome.stops)
        self.failure = outcome.traceback or self.failure
        if outcome.invalid:
            raise AssertionError(f"{self.name} can't be run: {outcome.error}\n{outcome.traceback}")

    def _invoke_here(self, event: dict[str, Any]) -> Outcome:
        context = LambdaContext(
            clock=self.clock, remaining_ms=self.timeout_ms, function_name=self.job.name
        )
        try:
            outcome = Outcome(str(self.job(event, context)["outcome"]))
        except (InvalidEventError, InvalidJobError):
            raise
        except Exception as error:  # noqa: BLE001  a handler's error is how an attempt may end
            outcome = Outcome("failed", f"{type(error).__name__}: {error}")
        if context.remaining_ms < 0:
            raise AssertionError(
                f"an invocation went on {-context.remaining_ms / 1000:.1f} s beyond the function's "
                f"timeout of {self.timeout_ms / 1000:.0f} s, where Lambda kills it: make the batch "
                "shorter or the timeout longer; kill_at=[] plays the kill in a child process"
            )
        return outcome

    def _invoke_in_sandbox(self, event: dict[str, Any]) -> Outcome:
        if self._sandbox is None or not self._sandbox.is_alive:
            self._sandbox = Sandbox(self.job, self.clock, quiet=self.quiet)
        order = Order(event, self.clock.now_ms(), self.timeout_ms, self.stops)
        outcome = self._sandbox.invoke(order, self._is_killed_at)
        if outcome.outcome.startswith("killed") and self.meanwhile is not None:
            self.meanwhile()
        return outcome

    def _is_killed_at(self, announced: Announced) -> bool:
        phase, call, target, own = announced
        self._counts[call] += phase == "before"
        point = Point(phase, call, self._counts[call], target, own)
        self.points.append(point)
        if not self.kills or str(point) != self.kills[0]:
            return False
        self.kills.pop(0)
        self.killed_at.append(len(self.points) - 1)
        return True


def new_execution(
    job: Job,
    slot: datetime | str,
    *,
    timeout: Duration,
    clock: SettableClock | None,
    instance: str | None,
    params: Mapping[str, Any] | None,
) -> Execution:
    """Return an execution that has not begun.

    Raises
    ------
    TypeError
        If the handler is no job.
    """
    if not hasattr(job, "definition"):
        raise TypeError(f"{job!r} is no job: decorate the handler with @job")
    moment = as_moment(slot)
    if clock is None:
        clock = SettableClock(moment)
        clock.advance(seconds=START_AFTER_SLOT_MS / 1000)
    return Execution(
        job, instance or job.name, moment, duration_ms(timeout, "timeout"), clock, params
    )


def as_point(kill: str) -> str:
    """Return a kill in full: the first call of that name if it has no number.

    Raises
    ------
    ValueError
        If it names no point.

    Examples
    --------
    >>> as_point("after PutItem")
    'after PutItem 1'
    """
    found = _POINT.fullmatch(kill)
    if found is None:
        raise ValueError(
            f'kill_at is {kill!r}, expected "before" or "after", the name of a call, and which '
            'of them: "before save 3", "after PutItem 7"'
        )
    return f"{found[1]} {found[2]} {found[3] or 1}"


def forget(execution: Execution) -> None:
    """Delete the run and its job's gate, so that the slot can be run anew."""
    store = worker.store_of(execution.clock)
    for key in (execution.key, HeadKey(execution.name)):
        store.client.delete_item(TableName=store.table, Key=key.wire)


def _cursor(record: RunRecord | None) -> Any:
    return codec.loads(record.checkpoint) if record and record.checkpoint is not None else None


def _final(record: RunRecord) -> FinalRun:
    return FinalRun(
        record.state,
        record.reason,
        record.attempt,
        _cursor(record),
        record.done,
        record.total,
        record.error,
    )
