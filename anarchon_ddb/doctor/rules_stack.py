"""Rules on what jobs share: group, table, resumer; and on what each may call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anarchon_ddb.doctor.finding import Chapter, Hit, at
from anarchon_ddb.doctor.model import NESTED, of_type
from anarchon_ddb.doctor.policies import grants
from anarchon_ddb.doctor.scope import Holed, Reference
from anarchon_ddb.schedule import Schedule
from anarchon_ddb.template.source import Map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.doctor.model import Function, Model
    from anarchon_ddb.doctor.policies import Grants
    from anarchon_ddb.doctor.scope import Node

CHAPTER = Chapter()

JOB_ACTIONS = ("dynamodb:GetItem", "dynamodb:UpdateItem")
RESUMER_ACTIONS = (
    *JOB_ACTIONS,
    "dynamodb:Query",
    "scheduler:ListSchedules",
    "scheduler:GetSchedule",
    "lambda:InvokeFunction",
    "lambda:GetFunctionEventInvokeConfig",
)
_FULL = (
    "AdministratorAccess",
    "PowerUserAccess",
    "AmazonDynamoDBFullAccess",
    "AWSLambda_FullAccess",
    "AmazonEventBridgeFullAccess",
    "AmazonEventBridgeSchedulerFullAccess",
)
_NO_RESOURCE = ("scheduler:ListSchedules", "xray:", "cloudwatch:PutMetricData", "ec2:")
"""What IAM can't narrow to a resource, or what AWS itself grants on all."""


def _all_of_ours(model: Model) -> list[Function]:
    return [*model.jobs, *model.resumers]


@CHAPTER.rule(
    "setting-missing",
    "error",
    title="The job does not know its table, its group or its stack",
    why="Without ANARCHON_TABLE nothing runs; without the group nothing is caught up; "
    "without the stack alarms stay silent.",
    fix="Write all three into Globals.Function.Environment.Variables.",
)
def _setting_missing(model: Model) -> Iterator[Hit]:
    for function in _all_of_ours(model):
        variables = function.get("Environment", "Variables")
        if variables is not None and not variables.is_known:
            continue
        for name in ("ANARCHON_TABLE", "ANARCHON_SCHEDULE_GROUP", "ANARCHON_STACK"):
            if name not in function.environment:
                yield at(function.node, f"{function.logical_id} has no {name}")


@CHAPTER.rule(
    "group",
    "error",
    title="A schedule outside the stack's group",
    why="The resumer reads the group ANARCHON_SCHEDULE_GROUP only: this job is not listed nor "
    "caught up, and its open runs end as orphaned.",
    fix="Write GroupName: !Ref Schedules, the group that ANARCHON_SCHEDULE_GROUP names.",
)
def _group(model: Model) -> Iterator[Hit]:
    for planned, function in model.job_schedules:
        if planned.kind != "scheduler":
            continue
        group = planned.properties.get("GroupName")
        wanted = function.environment.get("ANARCHON_SCHEDULE_GROUP")
        if group is None:
            yield at(planned.node, f"{planned.name} has no GroupName: it is in the group default")
        elif wanted is not None and _differ(group, wanted):
            what = f"{planned.name} is in {group.value}, ANARCHON_SCHEDULE_GROUP is {wanted.value}"
            yield at(group, what)


def _differ(one: Node, other: Node) -> bool:
    """Return whether two names surely differ; what can't be told does not."""
    left, right = _name_of(one), _name_of(other)
    return left is not None and right is not None and left != right


def _name_of(node: Node) -> str | None:
    """Return the name of a group, or of what a reference points at."""
    value = node.value
    if isinstance(value, Reference):
        resource = value.scope.resource(value.logical_id)
        name = resource.get("Properties", "Name") if resource else None
        return (
            str(name.value) if name and isinstance(name.value, str) else f"${{{value.logical_id}}}"
        )
    return value if isinstance(value, str) else None


@CHAPTER.rule(
    "resumer-missing",
    "error",
    title="No resumer",
    why="Nothing goes on after an interruption, a crash or a backoff, and no missed slot is seen.",
    fix="Nest infra/resumer.yaml: `anarchon-ddb init` writes it and prints the lines.",
)
def _resumer_missing(model: Model) -> Iterator[Hit]:
    if model.jobs and not model.resumers and not _may_be_elsewhere(model):
        yield at(
            model.jobs[0].node,
            f"{model.jobs[0].logical_id} is a job, and no function has the handler "
            f"anarchon_ddb.resumer.handler",
        )


def _may_be_elsewhere(model: Model) -> bool:
    """Whether a nested template could not be read, which may hold it."""
    for scope in model.scopes:
        for kind, _ in NESTED:
            if any(name not in scope.nested for name, _ in of_type(scope, kind)):
                return True
    return False


@CHAPTER.rule(
    "resumer-schedule",
    "error",
    title="The resumer is not fired each minute",
    why="An interrupted run waits for its next pass; the alarm resumer-silent rings.",
    fix="Write ScheduleExpression: rate(1 minute), and no State.",
)
def _resumer_schedule(model: Model) -> Iterator[Hit]:
    for function in model.resumers:
        own = model.of(function)
        if not own:
            yield at(function.node, f"{function.logical_id} has no schedule")
        for planned in own:
            if planned.state == "disabled":
                node = planned.properties.get("State") or planned.node
                yield at(node, f"{planned.name} is disabled")
            elif isinstance(planned.parsed, Schedule) and not _is_each_minute(planned.parsed):
                yield at(planned.expression, f"{planned.name}: {planned.expression.value}")


def _is_each_minute(schedule: Schedule) -> bool:
    period = schedule.period
    return period.total_seconds() == 60 if period else schedule.expression.startswith("cron(* *")


@CHAPTER.rule(
    "resumer-timeout",
    "warning",
    title="A pass of the resumer may outlive its minute",
    why="Passes pile up: no harm, but each is paid for.",
    fix="Write Timeout: 50.",
)
def _resumer_timeout(model: Model) -> Iterator[Hit]:
    for function in model.resumers:
        if function.timeout_s is not None and not 10 <= function.timeout_s <= 60:
            what = f"{function.logical_id}: Timeout {function.timeout_s} s"
            yield at(function.place("Timeout"), what)


# --- the table ------------------------------------------------------------------------------------


def _tables(model: Model) -> Iterator[tuple[str, Node]]:
    seen: set[int] = set()
    for function in _all_of_ours(model):
        node = function.environment.get("ANARCHON_TABLE")
        if node is None or not isinstance(node.value, Reference):
            continue
        found = node.value.scope.resource(node.value.logical_id)
        if found is not None and id(found.value) not in seen:
            seen.add(id(found.value))
            yield node.value.logical_id, found


@CHAPTER.rule(
    "table-key",
    "error",
    title="Not the table of this package",
    why="Every claim is refused by DynamoDB, or open runs are not found.",
    fix="Nest infra/table.yaml, or copy keys and index from it: pk and sk, open-runs over open "
    "and due.",
)
def _table_key(model: Model) -> Iterator[Hit]:
    for logical_id, table in _tables(model):
        keys = table.get("Properties", "KeySchema")
        if keys is None:
            yield at(table, f"{logical_id} is no table with keys pk and sk")
        elif _keys(keys) not in ([("pk", "HASH"), ("sk", "RANGE")], None):
            yield at(keys, f"{logical_id}: the keys are {_keys(keys)}")
        if keys is not None:
            yield from _index(logical_id, table)


def _keys(node: Node) -> list[tuple[str, str]] | None:
    found = node.deep()
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        return None
    return [(str(one.get("AttributeName")), str(one.get("KeyType"))) for one in found]


def _index(logical_id: str, table: Node) -> Iterator[Hit]:
    indexes = table.get("Properties", "GlobalSecondaryIndexes")
    if indexes is not None and not indexes.is_known:
        return
    named: dict[object, Node] = {}
    for one in indexes.elements() if indexes else ():
        name = one.get("IndexName")
        named[name.value if name else None] = one
    index = named.get("open-runs")
    keys = index.get("KeySchema") if index else None
    if index is None:
        yield at(indexes or table, f"{logical_id} has no index open-runs")
    elif keys is None or _keys(keys) not in ([("open", "HASH"), ("due", "RANGE")], None):
        yield at(keys or index, f"{logical_id}: the index open-runs has other keys")


@CHAPTER.rule(
    "table-ttl",
    "warning",
    title="Old runs are never deleted",
    why="The table grows with each slot, and so do listings.",
    fix="Write TimeToLiveSpecification: { AttributeName: expires_at, Enabled: true }.",
)
def _table_ttl(model: Model) -> Iterator[Hit]:
    for logical_id, table in _tables(model):
        ttl = table.get("Properties", "TimeToLiveSpecification")
        found = ttl.deep() if ttl else None
        if ttl is None or (
            isinstance(found, dict)
            and (
                found.get("AttributeName") != "expires_at"
                or found.get("Enabled") not in (True, "true")
            )
        ):
            yield at(ttl or table, f"{logical_id}: the time to live is not on expires_at")


@CHAPTER.rule(
    "table-kept",
    "warning",
    title="The table goes with the stack",
    why="A rename or `sam delete` takes all checkpoints and what ran: every slot may run anew.",
    fix="Write DeletionPolicy: Retain and UpdateReplacePolicy: Retain.",
)
def _table_kept(model: Model) -> Iterator[Hit]:
    for logical_id, table in _tables(model):
        for key in ("DeletionPolicy", "UpdateReplacePolicy"):
            node = table.get(key)
            if node is None or (node.is_known and node.value != "Retain"):
                yield at(node or table, f"{logical_id}: {key} is not Retain")


# --- permissions ----------------------------------------------------------------------------------


@CHAPTER.rule(
    "permission-missing",
    "error",
    title="A call that is not allowed",
    why="The first such call fails with AccessDenied: no slot is claimed, or no run goes on.",
    fix="Add !Ref JobPolicy (of the resumer: ResumerPolicy) to Policies.",
)
def _permission_missing(model: Model) -> Iterator[Hit]:
    for function in _all_of_ours(model):
        granted = grants(function)
        if granted.unknown or _names_full(granted):
            continue
        for action in _needed(function):
            if not granted.allow(action) and not _template_allows(granted, action):
                node = function.get("Policies") or function.node
                yield at(node, f"{function.logical_id} may not {action}")


def _needed(function: Function) -> tuple[str, ...]:
    if function.is_resumer:
        return RESUMER_ACTIONS
    # Whoever ends a run sends the next one of the gate on its way.
    invokes = function.policy.continuation == "self"
    return (*JOB_ACTIONS, *(("lambda:InvokeFunction",) if invokes else ()))


def _names_full(granted: Grants) -> bool:
    return any(full in str(node.value) for node in granted.named for full in _FULL)


def _template_allows(granted: Grants, action: str) -> bool:
    """Whether one of SAM's policy templates grants it."""
    service, _, call = action.partition(":")
    templates = {key for node in granted.named if isinstance(node.value, Map) for key in node.value}
    if service == "dynamodb":
        reads = {"DynamoDBReadPolicy"} if call in {"GetItem", "Query"} else {"DynamoDBWritePolicy"}
        return bool(templates & (reads | {"DynamoDBCrudPolicy"}))
    return service == "lambda" and call == "InvokeFunction" and "LambdaInvokePolicy" in templates


@CHAPTER.rule(
    "permission-window",
    "warning",
    title="The job may not read its schedule",
    why="run.window and run.scheduled_at fail with AccessDenied.",
    fix="Allow scheduler:GetSchedule on schedule/${Schedules}/*, as JobPolicy does.",
)
def _permission_window(model: Model) -> Iterator[Hit]:
    for planned, function in model.job_schedules:
        granted = grants(function)
        action = "scheduler:GetSchedule" if planned.kind == "scheduler" else "events:DescribeRule"
        if not granted.unknown and not granted.allow(action) and not _names_full(granted):
            yield at(
                function.get("Policies") or function.node, f"{function.logical_id} may not {action}"
            )
            return


@CHAPTER.rule(
    "permission-wide",
    "warning",
    title="More is allowed than a job calls",
    why="A fault in one handler reaches other tables, other jobs, other stacks.",
    fix="Name the actions and the resource, as JobPolicy does.",
)
def _permission_wide(model: Model) -> Iterator[Hit]:
    seen: set[tuple[Any, int]] = set()
    for function in _all_of_ours(model):
        granted = grants(function)
        for statement in granted.statements:
            for what in _wide(statement.effect, statement.actions, statement.resources):
                if (statement.node.path, statement.node.line) not in seen:
                    seen.add((statement.node.path, statement.node.line))
                    yield at(statement.node, f"{function.logical_id}: {what}")
        for node in granted.named:
            if any(full in str(node.value) for full in _FULL):
                yield at(node, f"{function.logical_id} has the policy {node.value}")


def _wide(effect: str, actions: tuple[str, ...], resources: tuple[Node, ...]) -> Iterator[str]:
    if effect != "Allow":
        return
    broad = [action for action in actions if action == "*" or action.endswith(":*")]
    if broad:
        yield f"it may {broad[0]}"
    elif any(node.value == "*" for node in resources):
        narrow = [action for action in actions if not action.startswith(_NO_RESOURCE)]
        if narrow:
            yield f"it may {narrow[0]} on everything"


@CHAPTER.rule(
    "circular-permission",
    "error",
    title="A function's own ARN in its own policy",
    why="The role waits for the function, the function for the role: CloudFormation refuses it, "
    "after SAM's linter has passed it.",
    fix="Write the name: !Sub "
    "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}-*",
)
def _circular_permission(model: Model) -> Iterator[Hit]:
    seen: set[tuple[Any, int]] = set()
    for function in model.functions:
        for resource in (one for stated in grants(function).statements for one in stated.resources):
            place = (resource.path, resource.line)
            if place not in seen and _points_at(resource, function):
                seen.add(place)
                yield at(resource, f"{function.logical_id} is named by its own policy")


def _points_at(resource: Node, function: Function) -> bool:
    value = resource.value
    if isinstance(value, Reference):
        return value.scope is function.scope and value.logical_id == function.logical_id
    if isinstance(value, Holed) and resource.scope is function.scope:
        own = function.logical_id
        return f"${{{own}}}" in value or f"${{{own}." in value
    return False


@CHAPTER.rule(
    "function-name",
    "warning",
    title="The function's name does not begin with that of the stack",
    why="Policies cover function:<stack>-*: nobody may invoke this one, so its runs do not go on.",
    fix="Write FunctionName: !Sub ${AWS::StackName}-NAME, or leave it out.",
)
def _function_name(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        node = function.get("FunctionName")
        stack = function.environment.get("ANARCHON_STACK")
        if node is None or stack is None or not isinstance(node.value, str):
            continue
        if isinstance(stack.value, str) and not node.value.startswith(f"{stack.value}-"):
            yield at(node, f"{function.logical_id}: FunctionName is {node.value}")


@CHAPTER.rule(
    "lambda-loop",
    "note",
    title="A function that invokes itself without this package",
    why="Such a chain has no lease and no checkpoint: a duplicate event makes a second chain.",
    fix="docs/migrate.md shows the way over.",
)
def _lambda_loop(model: Model) -> Iterator[Hit]:
    ours = {id(function) for function in _all_of_ours(model)}
    for function in model.functions:
        node = function.get("RecursiveLoop")
        if id(function) not in ours and node is not None and node.value == "Allow":
            yield at(node, f"{function.logical_id} allows a loop, and is no job")
