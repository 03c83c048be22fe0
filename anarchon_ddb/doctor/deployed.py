"""What runs, compared with what the template says: somebody changed it by hand, or never deployed.

Reads only. What the template leaves unresolved is not compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from anarchon_ddb.doctor.finding import Finding, Rule
from anarchon_ddb.doctor.scope import Reference
from anarchon_ddb.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anarchon_ddb.doctor.finding import Hit
    from anarchon_ddb.doctor.model import Function, Model, Planned
    from anarchon_ddb.doctor.scope import Node

_CONFIG = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 3})


def _nothing(_model: Model) -> Iterator[Hit]:
    return iter(())


SCHEDULE = Rule(
    "deployed-schedule",
    "error",
    "A schedule runs otherwise than it is written",
    "The next deploy changes it back, or it was never deployed: until then the job is not as you "
    "read it.",
    "Deploy the template, or write into it what runs.",
    _nothing,
)
EXTRA = Rule(
    "deployed-extra",
    "warning",
    "A schedule of the group that the template does not have",
    "The resumer counts its slots as due: they run, or are told as missed.",
    "Write it into the template, or delete it: aws scheduler delete-schedule.",
    _nothing,
)
FUNCTION = Rule(
    "deployed-function",
    "error",
    "A function runs otherwise than it is written",
    "Its settings are not those you read: a timeout, a policy of the job, a retry of Lambda.",
    "Deploy the template, or write into it what runs.",
    _nothing,
)
TABLE = Rule(
    "deployed-table",
    "error",
    "The table is missing, or another one",
    "No slot can be claimed, or open runs are not found.",
    "Deploy the template; with ExistingTableName give the name of a table that exists.",
    _nothing,
)
RULES = (SCHEDULE, EXTRA, FUNCTION, TABLE)


def compare(model: Model, stack: str) -> tuple[Finding, ...]:
    """Return where a deployed stack differs from a model that was read with the stack's name.

    Raises
    ------
    StoreError
        If AWS does not answer, or does not let you look.
    """
    looked = _Look(stack)
    found = [*looked.schedules(model)]
    for function in model.functions:
        found += looked.function(function)
    found += looked.table(model)
    return tuple(found)


def _finding(rule: Rule, node: Node, what: str) -> Finding:
    return Finding(node.path, node.line, rule.id, rule.level, what, rule.why, rule.fix)


class _Look:
    """Asks AWS; what is not there is None."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self._session = Session()
        self._clients: dict[str, Any] = {}
        self._settings: dict[str, str] = {}

    def _ask(self, service: str, operation: str, **arguments: str) -> dict[str, Any] | None:
        try:
            if service not in self._clients:
                self._clients[service] = self._session.create_client(service, config=_CONFIG)
            found: dict[str, Any] = getattr(self._clients[service], operation)(**arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] in {"ResourceNotFoundException", "ResourceNotFound"}:
                return None
            raise StoreError(f"{service} {operation} {arguments}: {error}") from None
        except BotoCoreError as error:
            raise StoreError(f"{service} {operation} {arguments}: {error}") from None
        return found

    def schedules(self, model: Model) -> Iterator[Finding]:
        """Compare the schedules of the stack's group."""
        written: set[str] = set()
        for planned in model.schedules:
            name = planned.properties.get("Name")
            if planned.kind == "scheduler" and name is not None and name.text:
                written.add(name.text)
                yield from self._schedule(planned, name.text)
        for name_there in self._names():
            if name_there not in written:
                root = model.scopes[0].root
                yield _finding(EXTRA, root, f"schedule {name_there} of group {self.stack}")

    def _names(self) -> Iterator[str]:
        arguments = {"GroupName": self.stack}
        while True:
            page = self._ask("scheduler", "list_schedules", **arguments) or {}
            yield from (one["Name"] for one in page.get("Schedules", ()))
            if not page.get("NextToken"):
                return
            arguments["NextToken"] = page["NextToken"]

    def _schedule(self, planned: Planned, name: str) -> Iterator[Finding]:
        found = self._ask("scheduler", "get_schedule", GroupName=self.stack, Name=name)
        if found is None:
            yield _finding(SCHEDULE, planned.node, f"schedule {name} is not deployed")
            return
        retries = found["Target"].get("RetryPolicy", {})
        zone = planned.zone
        pairs = [
            (planned.expression, found["ScheduleExpression"], "ScheduleExpression"),
            (zone, found.get("ScheduleExpressionTimezone") or "UTC", "ScheduleExpressionTimezone"),
            (planned.input, found["Target"].get("Input"), "Input"),
        ]
        pairs += [
            (planned.target.get("RetryPolicy", key), retries.get(key), key)
            for key in ("MaximumEventAgeInSeconds", "MaximumRetryAttempts")
        ]
        for node, there, key in pairs:
            if node is not None and node.is_known and not _same(node.value, there):
                what = f"schedule {name}: {key} is {node.value}, deployed is {there}"
                yield _finding(SCHEDULE, node, what)
        yield from _state(planned, name, found.get("State", "ENABLED"))

    def function(self, function: Function) -> Iterator[Finding]:
        """Compare a function's settings."""
        name = function.get("FunctionName")
        if name is None or not name.text:
            return
        found = self._ask("lambda", "get_function_configuration", FunctionName=name.text)
        if found is None:
            yield _finding(FUNCTION, function.node, f"function {name.text} is not deployed")
            return
        there = found.get("Environment", {}).get("Variables", {})
        self._settings.update(there)
        for key in ("Timeout", "MemorySize", "Runtime", "Handler"):
            node = function.get(key)
            if node is not None and node.is_known and not _same(node.value, found.get(key)):
                what = f"function {name.text}: {key} is {node.value}, deployed is {found.get(key)}"
                yield _finding(FUNCTION, node, what)
        yield from _variables(function, name.text, there)
        yield from self._invoke_config(function, name.text)

    def _invoke_config(self, function: Function, name: str) -> Iterator[Finding]:
        written = function.get("EventInvokeConfig")
        if written is None or not written.is_known:
            return
        found = self._ask("lambda", "get_function_event_invoke_config", FunctionName=name) or {}
        for key in ("MaximumRetryAttempts", "MaximumEventAgeInSeconds"):
            node = written.get(key)
            if node is not None and node.is_known and not _same(node.value, found.get(key)):
                what = f"function {name}: {key} is {node.value}, deployed is {found.get(key)}"
                yield _finding(FUNCTION, node, what)

    def table(self, model: Model) -> Iterator[Finding]:
        """Look at the table that the deployed functions name."""
        name = self._settings.get("ANARCHON_TABLE")
        if not name or not model.jobs:
            return
        place = model.jobs[0].place("Environment", "Variables", "ANARCHON_TABLE")
        found = self._ask("dynamodb", "describe_table", TableName=name)
        if found is None:
            yield _finding(TABLE, place, f"table {name} does not exist")
            return
        keys = [one["AttributeName"] for one in found["Table"]["KeySchema"]]
        indexes = [one["IndexName"] for one in found["Table"].get("GlobalSecondaryIndexes", ())]
        if keys != ["pk", "sk"] or "open-runs" not in indexes:
            yield _finding(TABLE, place, f"table {name} has keys {keys}, indexes {indexes}")


def _same(written: Any, there: Any) -> bool:
    return str(written) == str(there)


def _state(planned: Planned, name: str, there: str) -> Iterator[Finding]:
    written = {"enabled": "ENABLED", "disabled": "DISABLED"}.get(planned.state)
    if written is not None and written != there:
        node = planned.properties.get("State") or planned.node
        yield _finding(SCHEDULE, node, f"schedule {name}: State is {written}, deployed is {there}")


def _variables(function: Function, name: str, there: Mapping[str, str]) -> Iterator[Finding]:
    for key, node in function.environment.items():
        if not key.startswith("ANARCHON_"):
            continue
        if key not in there:
            yield _finding(FUNCTION, node, f"function {name}: {key} is not deployed")
        elif (
            node.is_known
            and not isinstance(node.value, Reference)
            and not _same(node.value, there[key])
        ):
            what = f"function {name}: {key} is {node.value}, deployed is {there[key]}"
            yield _finding(FUNCTION, node, what)
    for key in sorted(there.keys() - function.environment.keys()):
        if key.startswith("ANARCHON_"):
            what = f"function {name}: {key} is deployed as {there[key]}, and not written"
            yield _finding(FUNCTION, function.node, what)
