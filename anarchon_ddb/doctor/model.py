"""A template as the doctor sees it: functions, their schedules, the tables, over all nestings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from anarchon_ddb import options as job_options
from anarchon_ddb.doctor import functions, handlers
from anarchon_ddb.doctor.scope import Node, Reference, Scope, Unresolved
from anarchon_ddb.errors import InvalidJobError, InvalidScheduleError
from anarchon_ddb.schedule import parse
from anarchon_ddb.template.source import Map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anarchon_ddb.doctor.finding import Hit
    from anarchon_ddb.options import Options
    from anarchon_ddb.schedule import Kind, Schedule

State = Literal["enabled", "disabled", "unknown"]

RESUMER = "anarchon_ddb.resumer.handler"
NESTED = (
    ("AWS::Serverless::Application", "Location"),
    ("AWS::CloudFormation::Stack", "TemplateURL"),
)
FUNCTIONS = ("AWS::Serverless::Function", "AWS::Lambda::Function")
_LAMBDA_TIMEOUT_S = 3


@dataclass(frozen=True)
class Function:
    """A Lambda function; what Globals say counts where it says nothing itself."""

    logical_id: str
    node: Node
    globals: Node | None

    @property
    def scope(self) -> Scope:
        """The template that it is written in."""
        return self.node.scope

    def get(self, *keys: str) -> Node | None:
        """Return a property, or that of Globals."""
        own = self.node.get("Properties", *keys)
        if own is None and self.globals is not None:
            return self.globals.get(*keys)
        return own

    @cached_property
    def environment(self) -> dict[str, Node]:
        """Its variables, Globals merged in."""
        found: dict[str, Node] = {}
        for owner in (self.globals, self.node.get("Properties")):
            variables = owner.get("Environment", "Variables") if owner else None
            found.update(variables.items() if variables else ())
        return found

    @property
    def own_settings(self) -> list[str]:
        """The ``ANARCHON_*`` variables that it sets itself."""
        variables = self.node.get("Properties", "Environment", "Variables")
        names = [name for name, _ in variables.items()] if variables else []
        return [name for name in names if name.startswith(job_options.PREFIX)]

    @property
    def handler(self) -> str | None:
        """Its Handler, if that can be told."""
        node = self.get("Handler")
        return node.text if node else None

    @property
    def is_resumer(self) -> bool:
        """Whether it is the resumer of this package."""
        return self.handler == RESUMER

    @cached_property
    def file(self) -> handlers.HandlerFile | None:
        """The file of its handler, if its code is a folder here."""
        code = self.get("CodeUri") or self.get("Code")
        if self.handler is None or code is None or code.text is None:
            return None
        return handlers.find(code.path.parent / code.text, self.handler)

    @property
    def timeout_s(self) -> int | None:
        """How long an invocation may take; None if that can't be told."""
        node = self.get("Timeout")
        return _LAMBDA_TIMEOUT_S if node is None else node.number

    @property
    def declared(self) -> handlers.Declared | None:
        """What ``@job`` says above its handler."""
        return self.file.declared if self.file else None

    @cached_property
    def options(self) -> Options | InvalidJobError:
        """The effective options as far as they are known, or what is wrong with them."""
        return self._resolved(self._known_settings)

    @cached_property
    def policy(self) -> Options:
        """The effective options; defaults in place of what is wrong, which a rule tells."""
        found = self.options
        settings = {
            name: value
            for name, value in self._known_settings.items()
            if problem_of(name, value) is None
        }
        for more in ((), ("RETENTION", "CATCH_UP_WINDOW")):
            if isinstance(found, InvalidJobError):
                dropped = {job_options.PREFIX + name for name in more}
                found = self._resolved({k: v for k, v in settings.items() if k not in dropped})
        return job_options.Options() if isinstance(found, InvalidJobError) else found

    @property
    def _known_settings(self) -> dict[str, str]:
        known = {name: node.value for name, node in self.environment.items() if node.is_known}
        return {name: value for name, value in known.items() if isinstance(value, str)}

    def _resolved(self, settings: Mapping[str, str]) -> Options | InvalidJobError:
        try:
            given = dict(self.declared.options) if self.declared else {}
            return job_options.resolve(self.logical_id, given, settings)[0]
        except InvalidJobError as error:
            return error

    def place(self, *keys: str) -> Node:
        """Return the node of a property, or the function's own where it is not set."""
        return self.get(*keys) or self.node


@dataclass(frozen=True)
class Planned:
    """A schedule of a function: an event of it, or a resource of its own."""

    name: str
    node: Node
    kind: Kind
    expression: Node
    target: Node
    """What has Input, RetryPolicy and DeadLetterConfig."""
    properties: Node
    function: Function | None
    is_event: bool

    @cached_property
    def zone(self) -> Node | None:
        """Its time zone as written."""
        return self.properties.get("ScheduleExpressionTimezone")

    @cached_property
    def parsed(self) -> Schedule | InvalidScheduleError | Unresolved:
        """The schedule, or what AWS would refuse, or why it can't be told."""
        parts = [node for node in (self.expression, self.zone) if node is not None]
        for node in parts:
            if not node.is_known:
                value = node.value
                return value if isinstance(value, Unresolved) else Unresolved(f"it is {value}")
        zone = self.zone.value if self.zone and self.kind == "scheduler" else "UTC"
        try:
            return parse(self.expression.value, zone, self.kind)
        except InvalidScheduleError as error:
            return error

    @cached_property
    def input(self) -> Node | None:
        """What the function is sent."""
        return self.target.get("Input")

    @cached_property
    def sent(self) -> dict[str, Any] | None:
        """The Input as an object, if it is one that can be read."""
        text = self.input.value if self.input else None
        if not isinstance(text, str):
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def job(self) -> str | None:
        """The job that its Input names, without the instance."""
        name = self.sent.get("job") if self.sent else None
        return name.partition(":")[0] if isinstance(name, str) else None

    @cached_property
    def state(self) -> State:
        """Whether it fires. A value that can't be told is never taken for true (C45)."""
        state = self.properties.get("State")
        if state is not None:
            text = state.text
            return "unknown" if text is None else "disabled" if text == "DISABLED" else "enabled"
        enabled = self.properties.get("Enabled")
        if enabled is None or not self.takes_enabled:
            return "enabled"
        if isinstance(enabled.value, bool):
            return "enabled" if enabled.value else "disabled"
        return "unknown"

    @property
    def takes_enabled(self) -> bool:
        """Whether ``Enabled`` means anything here: on SAM's ``Schedule`` only."""
        return self.is_event and self.kind == "rule"


@dataclass
class Model:
    """All that the rules look at."""

    scopes: list[Scope]
    problems: list[Hit] = field(default_factory=list)
    """Nested templates that are named as files and can't be read."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def functions(self) -> list[Function]:
        """Every Lambda function that may be deployed."""
        return [
            Function(logical_id, node, scope.root.get("Globals", "Function") if is_sam else None)
            for scope in self.scopes
            for logical_id, node in resources(scope)
            for is_sam in [_type(node) == FUNCTIONS[0]]
            if _type(node) in FUNCTIONS
        ]

    @cached_property
    def schedules(self) -> list[Planned]:
        """Every schedule, in the order of the files."""
        events = [planned for function in self.functions for planned in _events(function)]
        own = [planned for scope in self.scopes for planned in self._resources(scope)]
        return events + own

    @cached_property
    def jobs(self) -> list[Function]:
        """The functions that run on this package, without the resumer."""
        return [one for one in self.functions if not one.is_resumer and self._is_job(one)]

    @property
    def resumers(self) -> list[Function]:
        """The functions that are the resumer."""
        return [function for function in self.functions if function.is_resumer]

    @cached_property
    def job_schedules(self) -> list[tuple[Planned, Function]]:
        """The schedules of jobs."""
        ours = {id(function) for function in self.jobs}
        pairs = [(one, one.function) for one in self.schedules if one.function is not None]
        return [(planned, function) for planned, function in pairs if id(function) in ours]

    def of(self, function: Function) -> list[Planned]:
        """Return the schedules of a function."""
        return [planned for planned in self.schedules if planned.function is function]

    def _is_job(self, function: Function) -> bool:
        if function.declared is not None or function.own_settings:
            return True
        planned = self.of(function)
        if any(one.sent and {"job", "slot"} <= one.sent.keys() for one in planned):
            return True
        shared = any(name.startswith(job_options.PREFIX) for name in function.environment)
        is_other_code = function.file is not None and function.file.is_readable
        return shared and bool(planned) and not is_other_code

    def _resources(self, scope: Scope) -> Iterator[Planned]:
        for logical_id, node in resources(scope):
            properties = node.get("Properties")
            expression = properties.get("ScheduleExpression") if properties else None
            if properties is None or expression is None:
                continue
            if _type(node) == "AWS::Scheduler::Schedule":
                target = properties.get("Target") or properties
                yield self._own(logical_id, node, "scheduler", expression, target)
            if _type(node) == "AWS::Events::Rule":
                targets = properties.get("Targets")
                for target in targets.elements() if targets else ():
                    yield self._own(logical_id, node, "rule", expression, target)

    def _own(
        self, logical_id: str, node: Node, kind: Kind, expression: Node, target: Node
    ) -> Planned:
        properties = node.get("Properties") or node
        function = self._function_of(target.get("Arn"))
        return Planned(
            logical_id, node, kind, expression, target, properties, function, is_event=False
        )

    def _function_of(self, arn: Node | None) -> Function | None:
        if arn is None or not isinstance(arn.value, Reference):
            return None
        return next(
            (
                function
                for function in self.functions
                if function.logical_id == arn.value.logical_id and function.scope is arn.value.scope
            ),
            None,
        )


def problem_of(name: str, value: Any) -> str | None:
    """Return what is wrong with one setting by itself, None for nothing."""
    if not name.startswith(job_options.PREFIX):
        return None
    # So that the window and the retention are not measured against each other here.
    others = {"ANARCHON_CATCH_UP_WINDOW": "1s"} if name == "ANARCHON_RETENTION" else {}
    if name == "ANARCHON_CATCH_UP_WINDOW":
        others = {"ANARCHON_RETENTION": "999999999d"}
    try:
        # Lambda's variables are texts, whatever YAML made of the value.
        job_options.resolve("job", {}, {name: str(value), **others})
    except InvalidJobError as error:
        return str(error).removeprefix("job 'job': ")
    return None


def resources(scope: Scope) -> Iterator[tuple[str, Node]]:
    """Yield the resources that may be deployed: not those whose condition is false."""
    found = scope.root.get("Resources")
    for logical_id, node in found.items() if found else ():
        condition = node.value.get("Condition") if isinstance(node.value, Map) else None
        if isinstance(condition, str) and functions.holds(scope, condition) is False:
            continue
        yield logical_id, node


def _type(node: Node) -> str:
    kind = node.get("Type")
    return (kind.text if kind else None) or ""


def of_type(scope: Scope, kind: str) -> Iterator[tuple[str, Node]]:
    """Yield the resources of a type."""
    return ((name, node) for name, node in resources(scope) if _type(node) == kind)


def _events(function: Function) -> Iterator[Planned]:
    events = function.node.get("Properties", "Events")
    kinds: Mapping[str, tuple[Kind, str]] = {
        "Schedule": ("rule", "Schedule"),
        "ScheduleV2": ("scheduler", "ScheduleExpression"),
    }
    for name, node in events.items() if events else ():
        kind, key = kinds.get(_type(node), (None, ""))
        properties = node.get("Properties")
        expression = properties.get(key) if properties else None
        if kind is not None and properties is not None and expression is not None:
            yield Planned(
                name, node, kind, expression, properties, properties, function, is_event=True
            )
