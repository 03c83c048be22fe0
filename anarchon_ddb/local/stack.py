"""A template as a stack that can be played: what to create, what runs, and when it is fired.

Values only: nothing is created here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from anarchon_ddb.local import template
from anarchon_ddb.local.template import Resolver, TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REGION = "eu-west-1"
ACCOUNT = "123456789012"  # moto's

DEFAULT_TIMEOUT_S = 3  # Lambda's
DEFAULT_MEMORY_MB = 128

_TABLE_ARGUMENTS = (
    "AttributeDefinitions",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
    "ProvisionedThroughput",
    "StreamSpecification",
)


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
    """A schedule of EventBridge Scheduler, and the function it fires."""

    name: str
    group: str
    expression: str
    timezone: str
    function: str
    input: str | None
    """As the template has it, placeholders not yet replaced; None for the default envelope."""

    @property
    def arn(self) -> str:
        """The schedule's ARN."""
        return f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/{self.group}/{self.name}"


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

    def function(self, logical_id: str) -> FunctionSpec:
        """Return a function by its logical id."""
        return next(spec for spec in self.functions.values() if spec.logical_id == logical_id)

    def with_function(self, changed: FunctionSpec) -> Stack:
        """Return the stack with one function replaced."""
        return replace(self, functions={**self.functions, changed.name: changed})


def read(path: Path, *, name: str = "local", parameters: Mapping[str, str] | None = None) -> Stack:
    """Return the stack of a template.

    Raises
    ------
    TemplateError
        If it can't be read, lacks a parameter, or has what can't be resolved here.
    """
    return _read(path, name, parameters or {})[0]


def _read(path: Path, name: str, parameters: Mapping[str, str]) -> tuple[Stack, Mapping[str, str]]:
    """Return the stack of a template, those nested in it included, and its Outputs."""
    data = template.load(path)
    values = _parameters(path, data, parameters) | _pseudo(name)
    resolver = Resolver(path, values, {}, data.get("Conditions"))
    resources: dict[str, dict[str, Any]] = {
        logical_id: resource
        for logical_id, resource in data["Resources"].items()
        if "Condition" not in resource or resolver.condition(resource["Condition"])
    }
    # Two rounds: a name may refer to a parameter, an environment to any resource.
    for logical_id, resource in resources.items():
        _name_resource(name, logical_id, resource, resolver)
    nested = _nested(path, name, resources, resolver)
    functions = _functions(path, data.get("Globals") or {}, resources, resolver)
    own = Stack(
        name=name,
        path=path,
        functions={spec.name: spec for spec in functions},
        schedules={spec.name: spec for spec in _schedules(resources, resolver)},
        tables=tuple(_tables(resources, resolver)),
        buckets=_refs(resources, "AWS::S3::Bucket", resolver),
        queues=_names(resources, "AWS::SQS::Queue", resolver),
    )
    return _merged(own, nested), _outputs(data, resolver)


def _nested(path: Path, name: str, resources: Mapping[str, Any], resolver: Resolver) -> list[Stack]:
    """Return the stacks nested in a template. One's parameters may come from another's outputs."""
    waiting = _of_type(resources, "AWS::Serverless::Application")
    stacks: list[Stack] = []
    while waiting:
        fault: TemplateError | None = None
        for logical_id, properties in list(waiting.items()):
            try:
                parameters = resolver.resolve(properties.get("Parameters") or {})
            except TemplateError as error:  # perhaps after another one is read
                fault = error
                continue
            location = resolver.resolve(properties.get("Location"))
            if not isinstance(location, str):
                raise TemplateError(f"{path}: {logical_id}: only a local Location can be played")
            inner, outputs = _read(path.parent / location, f"{name}-{logical_id}", parameters)
            for output, value in outputs.items():
                resolver.attributes[f"{logical_id}.Outputs.{output}"] = value
            stacks.append(inner)
            del waiting[logical_id]
            break
        else:
            raise fault or TemplateError(f"{path}: nested stacks can't be read")
    return stacks


def _merged(own: Stack, nested: list[Stack]) -> Stack:
    for inner in nested:
        own = replace(
            own,
            functions={**own.functions, **inner.functions},
            schedules={**own.schedules, **inner.schedules},
            tables=own.tables + inner.tables,
            buckets=own.buckets + inner.buckets,
            queues=own.queues + inner.queues,
        )
    return own


def _outputs(data: dict[str, Any], resolver: Resolver) -> dict[str, str]:
    """Return the Outputs that can be resolved; one that can't is missed where it is used."""
    outputs = {}
    for name, declared in (data.get("Outputs") or {}).items():
        with contextlib.suppress(TemplateError):
            outputs[name] = str(resolver.resolve(declared["Value"]))
    return outputs


def _parameters(path: Path, data: dict[str, Any], given: Mapping[str, str]) -> dict[str, str]:
    values = {}
    for name, declared in (data.get("Parameters") or {}).items():
        if name not in given and "Default" not in declared:
            raise TemplateError(f"{path}: parameter {name} has no default; give it a value")
        values[name] = str(given.get(name, declared.get("Default")))
    return values


def _pseudo(name: str) -> dict[str, str]:
    return {
        "AWS::AccountId": ACCOUNT,
        "AWS::Partition": "aws",
        "AWS::Region": REGION,
        "AWS::StackName": name,
        "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{name}/local",
        "AWS::URLSuffix": "amazonaws.com",
    }


# The property that names a resource, and its ARN after `arn:aws:`.
_NAMED = {
    "AWS::DynamoDB::Table": ("TableName", "dynamodb:{region}:{account}:table/{name}"),
    "AWS::S3::Bucket": ("BucketName", "s3:::{name}"),
    "AWS::SQS::Queue": ("QueueName", "sqs:{region}:{account}:{name}"),
    "AWS::SNS::Topic": ("TopicName", "sns:{region}:{account}:{name}"),
    "AWS::Scheduler::ScheduleGroup": (
        "Name",
        "scheduler:{region}:{account}:schedule-group/{name}",
    ),
    "AWS::Serverless::Function": ("FunctionName", "lambda:{region}:{account}:function:{name}"),
}


def _name_resource(
    stack: str, logical_id: str, resource: dict[str, Any], resolver: Resolver
) -> None:
    """Record what ``Ref`` and ``GetAtt … Arn`` give for a resource."""
    setting, arn = _NAMED.get(resource.get("Type", ""), ("", "local:::{name}"))
    given = (resource.get("Properties") or {}).get(setting)
    name = f"{stack}-{logical_id}" if given is None else str(resolver.resolve(given))
    is_bucket = resource.get("Type") == "AWS::S3::Bucket"
    name = name.lower() if is_bucket else name
    is_queue = resource.get("Type") == "AWS::SQS::Queue"
    url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"
    resolver.values[logical_id] = url if is_queue else name
    full = arn.format(region=REGION, account=ACCOUNT, name=name)
    resolver.attributes[f"{logical_id}.Arn"] = f"arn:aws:{full}"
    if is_queue:
        resolver.attributes[f"{logical_id}.QueueName"] = name


def _of_type(resources: Mapping[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {
        logical_id: resource.get("Properties") or {}
        for logical_id, resource in resources.items()
        if resource.get("Type") == kind
    }


def _refs(resources: Mapping[str, Any], kind: str, resolver: Resolver) -> tuple[str, ...]:
    return tuple(resolver.values[logical_id] for logical_id in _of_type(resources, kind))


def _names(resources: Mapping[str, Any], kind: str, resolver: Resolver) -> tuple[str, ...]:
    return tuple(value.rpartition("/")[2] for value in _refs(resources, kind, resolver))


def _functions(
    path: Path, shared: Mapping[str, Any], resources: Mapping[str, Any], resolver: Resolver
) -> list[FunctionSpec]:
    return [
        _function(path, logical_id, shared.get("Function") or {}, own, resolver)
        for logical_id, own in _of_type(resources, "AWS::Serverless::Function").items()
    ]


def _function(
    path: Path, logical_id: str, shared: dict[str, Any], own: dict[str, Any], resolver: Resolver
) -> FunctionSpec:
    merged = {**shared, **own}
    if "Handler" not in merged:
        raise TemplateError(f"{path}: function {logical_id} has no Handler")
    variables = {**_variables(shared), **_variables(own)}
    return FunctionSpec(
        logical_id=logical_id,
        name=resolver.values[logical_id],
        handler=str(resolver.resolve(merged["Handler"])),
        code=(path.parent / str(resolver.resolve(merged.get("CodeUri", ".")))).resolve(),
        timeout_s=float(resolver.resolve(merged.get("Timeout", DEFAULT_TIMEOUT_S))),
        memory_mb=int(resolver.resolve(merged.get("MemorySize", DEFAULT_MEMORY_MB))),
        environment={name: _text(value) for name, value in resolver.resolve(variables).items()},
    )


def _variables(function: dict[str, Any]) -> dict[str, Any]:
    variables: dict[str, Any] = (function.get("Environment") or {}).get("Variables") or {}
    return variables


def _text(value: Any) -> str:
    """Return an environment's value as CloudFormation writes it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _schedules(resources: Mapping[str, Any], resolver: Resolver) -> list[ScheduleSpec]:
    found = []
    for logical_id, function in _of_type(resources, "AWS::Serverless::Function").items():
        for event_id, event in (function.get("Events") or {}).items():
            if event.get("Type") == "ScheduleV2":
                properties = resolver.resolve(event.get("Properties") or {})
                name = f"{logical_id}{event_id}"  # as SAM names it
                target = resolver.values[logical_id]
                found.append(_schedule(name, target, properties))
    return found


def _schedule(name: str, target: str, properties: dict[str, Any]) -> ScheduleSpec:
    return ScheduleSpec(
        name=properties.get("Name", name),
        group=properties.get("GroupName", "default"),
        expression=properties["ScheduleExpression"],
        timezone=properties.get("ScheduleExpressionTimezone", "UTC"),
        function=target,
        input=properties.get("Input"),
    )


def _tables(resources: Mapping[str, Any], resolver: Resolver) -> list[TableSpec]:
    tables = []
    for logical_id, unresolved in _of_type(resources, "AWS::DynamoDB::Table").items():
        properties = resolver.resolve(unresolved)
        arguments = {name: properties[name] for name in _TABLE_ARGUMENTS if name in properties}
        ttl = properties.get("TimeToLiveSpecification") or {}
        attribute = ttl.get("AttributeName") if ttl.get("Enabled") else None
        tables.append(TableSpec(resolver.values[logical_id], arguments, attribute))
    return tables
