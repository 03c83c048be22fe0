"""EventBridge, played: each slot of a schedule is delivered, late within the minute, or given up.

One timer a schedule stands for its next slot. A delivery that chaos makes later than the schedule's
event age is not made: the event goes to the dead-letter queue, as on AWS.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from anarchon_ddb.clock import iso, to_ms
from anarchon_ddb.local.scheduler import event_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from anarchon_ddb.local.chaos import Chaos
    from anarchon_ddb.local.engine import Engine
    from anarchon_ddb.local.functions import Function
    from anarchon_ddb.local.stack import ScheduleSpec

WITHIN_S = 60
"""EventBridge delivers within the minute of the slot."""

DUPLICATE_WITHIN_S = 30


@dataclass(frozen=True, slots=True)
class Delivered:
    """A slot was handed to a function."""

    schedule: str
    function: str
    slot: datetime
    delivery: int
    """1 for the first."""
    request_id: str
    late_s: float


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A slot was given up; its event is in the queue, if the schedule has one."""

    schedule: str
    function: str
    slot: datetime
    why: str
    queue: str | None


class EventBridge:
    """The schedules and rules of a stack, fired by the cloud's clock.

    Parameters
    ----------
    functions : mapping
        By name.
    put : callable
        Puts a message with attributes into a queue, by its ARN.
    tell : callable
        Called with each ``Delivered`` and ``Undelivered``.
    """

    def __init__(
        self,
        schedules: Mapping[str, ScheduleSpec],
        functions: Mapping[str, Function],
        engine: Engine,
        chaos: Chaos,
        *,
        put: Callable[[str, str, Mapping[str, str]], None],
        tell: Callable[[Delivered | Undelivered], None],
    ) -> None:
        self._schedules = schedules
        self._functions = functions
        self._engine = engine
        self._chaos = chaos
        self._put = put
        self._tell = tell

    def start(self, created: datetime) -> None:
        """Let the schedules fire from now on; in the engine's thread."""
        for spec in self._schedules.values():
            if spec.enabled:
                self._plan(spec, created, created - timedelta(seconds=1))

    def stop(self, names: set[str]) -> None:
        """Let some schedules fire no more."""
        self._schedules = {
            name: spec for name, spec in self._schedules.items() if name not in names
        }

    def deliver(self, spec: ScheduleSpec, slot: datetime, number: int = 1) -> str:
        """Deliver a slot now; return the id of the invocation."""
        event = event_for(spec, slot, attempt=number)
        request_id = self._functions[spec.function].send(event)
        late_s = (self._engine.clock.now_ms() - to_ms(slot)) / 1000
        self._tell(Delivered(spec.name, spec.function, slot, number, request_id, late_s))
        return request_id

    def _plan(self, spec: ScheduleSpec, created: datetime, after: datetime) -> None:
        slot = spec.slots(created).next(after)
        if slot is not None:
            self._engine.at(to_ms(slot), lambda: self._due(spec, created, slot))

    def _due(self, spec: ScheduleSpec, created: datetime, slot: datetime) -> None:
        if spec.name not in self._schedules:
            return
        self._plan(spec, created, slot)
        what = (spec.name, iso(slot))
        wait_s = self._chaos.draw("delivered", *what) * (WITHIN_S + spec.window_s - 1)
        more_s = self._chaos.lateness_s(*what)
        if more_s > spec.max_event_age_s:
            self._engine.after(spec.max_event_age_s, lambda: self._give_up(spec, slot))
            return
        self._engine.after(wait_s + more_s, lambda: self._try(spec, slot, 1))
        if self._chaos.happens("duplicate", *what):
            again_s = self._chaos.draw("duplicate after", *what) * DUPLICATE_WITHIN_S
            self._engine.after(wait_s + more_s + again_s, lambda: self._try(spec, slot, 2))

    def _try(self, spec: ScheduleSpec, slot: datetime, number: int) -> None:
        try:
            self.deliver(spec, slot, number)
        except ValueError as error:
            self._tell(
                Undelivered(spec.name, spec.function, slot, f"its Input is no JSON: {error}", None)
            )

    def _give_up(self, spec: ScheduleSpec, slot: datetime) -> None:
        queue = spec.dead_letter_queue
        if queue is not None:
            attributes = {
                "ERROR_CODE": "Lambda.TooManyRequestsException",
                "ERROR_MESSAGE": "Rate Exceeded.",
                "EXHAUSTED_RETRY_CONDITION": "MaximumEventAgeInSeconds",
                "SCHEDULED_TIME": iso(slot),
                ("RULE_ARN" if spec.kind == "rule" else "SCHEDULE_ARN"): spec.arn,
            }
            body: Any = event_for(spec, slot)
            self._put(queue, json.dumps(body), attributes)
        why = f"older than {spec.max_event_age_s} s, its event age"
        self._tell(Undelivered(spec.name, spec.function, slot, why, queue))
