"""A stack that can be played: what to create, what runs, when it is fired, and what is left out.

Values only: ``reader`` makes them from a template, and ``cloud`` plays them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from anarchon_ddb import schedule

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

REGION = "eu-west-1"
ACCOUNT = "123456789012"  # moto's


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a template something stands."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class Unplayed:
    """Something of a template that is left out, and why."""

    place: Place
    what: str
    why: str

    @property
    def name(self) -> str:
        """What it is called, without its type."""
        return self.what.partition(" (")[0]

    def __str__(self) -> str:
        return f"{self.place}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A Lambda function of the template, Globals merged in, its environment resolved."""

    logical_id: str
    name: str
    handler: str
    code: Path
    timeout_s: float
    memory_mb: int
    environment: Mapping[str, str]
    retries: int = 2
    """Further tries of a queued event whose invocation failed; Lambda's default."""
    max_event_age_s: int = 21_600
    """How old a queued event may get; Lambda's default."""
    concurrency: int | None = None
    """``ReservedConcurrentExecutions``."""
    may_recurse: bool = False
    """``RecursiveLoop: Allow``."""
    failure_queue: str | None = None
    """The ARN of the queue that is told of events that were given up."""
    place: Place | None = None

    @property
    def arn(self) -> str:
        """The function's ARN, unqualified."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.name}"

    def with_settings(self, *, timeout_s: float | None = None, **environment: str) -> FunctionSpec:
        """Return the function with another timeout, and more or other variables."""
        return replace(
            self,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            environment={**self.environment, **environment},
        )


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """A schedule of EventBridge Scheduler, or a scheduled rule, and the function it fires."""

    name: str
    group: str
    """Of a rule its event bus."""
    expression: str
    timezone: str
    function: str
    input: str | None
    """As the template has it, placeholders not yet replaced; None for the default envelope."""
    kind: Literal["scheduler", "rule"] = "scheduler"
    enabled: bool = True
    start: datetime | None = None
    end: datetime | None = None
    window_s: int = 0
    """``FlexibleTimeWindow``: a delivery may come as much later."""
    retries: int = 185
    max_event_age_s: int = 86_400
    dead_letter_queue: str | None = None
    """The ARN of the queue for events that could not be delivered."""
    place: Place | None = None

    @property
    def arn(self) -> str:
        """The schedule's ARN, or the rule's."""
        if self.kind == "rule":
            path = self.name if self.group == "default" else f"{self.group}/{self.name}"
            return f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{path}"
        return f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/{self.group}/{self.name}"

    def slots(self, created: datetime) -> schedule.Schedule:
        """Return when it is due. A rate is due first one period after the schedule was created.

        Raises
        ------
        InvalidScheduleError
            If AWS would refuse the expression.
        """
        parsed = schedule.parse(self.expression, self.timezone, self.kind, self.start, self.end)
        if parsed.period is None or self.start is not None:
            return parsed
        first = created + parsed.period
        return schedule.parse(self.expression, self.timezone, self.kind, first, self.end)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A DynamoDB table: the arguments of ``CreateTable``, and the attribute of its TTL."""

    name: str
    arguments: Mapping[str, Any]
    ttl_attribute: str | None


@dataclass(frozen=True, slots=True)
class Stack:
    """All of a template that the local cloud plays."""

    name: str
    path: Path
    functions: Mapping[str, FunctionSpec]
    """By the function's name."""
    schedules: Mapping[str, ScheduleSpec]
    tables: tuple[TableSpec, ...]
    buckets: tuple[str, ...]
    queues: tuple[str, ...]
    unplayed: tuple[Unplayed, ...] = ()

    def function(self, logical_id: str) -> FunctionSpec:
        """Return a function by its logical id."""
        return next(spec for spec in self.functions.values() if spec.logical_id == logical_id)

    def with_function(self, changed: FunctionSpec) -> Stack:
        """Return the stack with one function replaced."""
        return replace(self, functions={**self.functions, changed.name: changed})

    def merged(self, other: Stack) -> Stack:
        """Return both as one: a stack and one that is nested in it."""
        return replace(
            self,
            functions={**self.functions, **other.functions},
            schedules={**self.schedules, **other.schedules},
            tables=self.tables + other.tables,
            buckets=self.buckets + other.buckets,
            queues=self.queues + other.queues,
            unplayed=self.unplayed + other.unplayed,
        )
