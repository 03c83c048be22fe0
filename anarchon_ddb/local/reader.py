"""A template -> the stack that is played. What can't be played is left out, named with its line.

Functions and their settings are read here; ``timetable`` reads what fires them, ``names`` says what
each resource is called.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from anarchon_ddb.local import names, template, timetable
from anarchon_ddb.local.stack import FunctionSpec, Place, Stack, TableSpec, Unplayed
from anarchon_ddb.local.template import Resolver, TemplateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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
_PLAYED = {
    "AWS::DynamoDB::Table", "AWS::Events::Rule", "AWS::S3::Bucket", "AWS::SQS::Queue",
    "AWS::Scheduler::Schedule", "AWS::Scheduler::ScheduleGroup",
    "AWS::Serverless::Application", "AWS::Serverless::Function", "AWS::Serverless::SimpleTable",
}  # fmt: skip
_UNREAD = ("AWS::CloudWatch::", "AWS::IAM::", "AWS::Lambda::Permission", "AWS::Logs::",
           "AWS::S3::BucketPolicy", "AWS::SNS::", "AWS::SQS::QueuePolicy")  # fmt: skip
UNWRITTEN = "it is not written as a resource is: with a Type, and a mapping named Properties"
UNREAD = "nothing on this machine reads it"
"""Why permissions, alarms and their like are left out: the functions run the same without."""


def read(path: Path, *, name: str = "local", parameters: Mapping[str, str] | None = None) -> Stack:
    """Return the stack of a template.

    Parameters
    ----------
    name : str
        Of the stack: what ``AWS::StackName`` gives.
    parameters : mapping, optional
        Values for the template's parameters, in place of their defaults.

    Raises
    ------
    TemplateError
        If it can't be read, or a parameter has no value.
    """
    given = dict(parameters or {})
    declared = template.load(path).get("Parameters") or {}
    if unknown := sorted(set(given) - set(declared)):
        raise TemplateError(
            f"{path}: no parameter named {unknown[0]!r}; "
            f"it has {', '.join(sorted(declared)) or 'none'}"
        )
    return _read(path, name, given)[0]


def _read(path: Path, name: str, parameters: Mapping[str, str]) -> tuple[Stack, Mapping[str, str]]:
    """Return the stack of a template, those nested in it included, and its Outputs."""
    data = template.load(path)
    values = _parameters(path, data, parameters) | names.pseudo(name)
    resolver = Resolver(path, values, {}, data.get("Conditions"), data.get("Mappings"))
    declared = data["Resources"]
    resources: dict[str, dict[str, Any]] = {
        logical_id: resource
        for logical_id, resource in declared.items()
        if _is_written(resource)
        and ("Condition" not in resource or resolver.condition(resource["Condition"]))
    }
    # Two rounds: a name may refer to a parameter, an environment to any resource.
    for logical_id, resource in resources.items():
        names.record(name, logical_id, resource, resolver)
    reader = _Reader(path, resolver, resources, getattr(declared, "lines", {}))
    for logical_id, resource in declared.items():
        if not _is_written(resource):
            reader.leave_out(reader.lines.get(logical_id, 0), str(logical_id), UNWRITTEN)
    inner = _nested(path, name, reader)  # their outputs are what the environments refer to
    own = reader.stack(name, data.get("Globals") or {})
    for nested in inner:
        own = own.merged(nested)
    return own, _outputs(data, resolver)


def _is_written(resource: object) -> bool:
    return (
        isinstance(resource, dict)
        and isinstance(resource.get("Type"), str)
        and isinstance(resource.get("Properties") or {}, dict)
    )


class _Reader:
    """Reads the resources of one template, and keeps what can't be played."""

    def __init__(
        self,
        path: Path,
        resolver: Resolver,
        resources: Mapping[str, dict[str, Any]],
        lines: Mapping[str, int],
    ) -> None:
        self.path = path
        self.resolver = resolver
        self.resources = resources
        self.lines = lines
        self.unplayed: list[Unplayed] = []

    def stack(self, name: str, shared: Mapping[str, Any]) -> Stack:
        functions = [
            spec
            for logical_id, own in self.of_type("AWS::Serverless::Function").items()
            for spec in self._made(
                f"function {logical_id}", logical_id, self._function,
                shared.get("Function") or {}, own,
            )
        ]  # fmt: skip
        schedules = timetable.read(self, {spec.logical_id: spec for spec in functions})
        queues = self._refs("AWS::SQS::Queue")
        for logical_id, resource in self.resources.items():
            kind = str(resource.get("Type"))
            if kind not in _PLAYED:
                why = UNREAD if kind.startswith(_UNREAD) else "it is not played here"
                self.leave_out(self.lines.get(logical_id, 0), f"{logical_id} ({kind})", why)
        return Stack(
            name=name,
            path=self.path,
            functions={spec.name: spec for spec in functions},
            schedules={spec.name: spec for spec in schedules},
            tables=(*self._tables(), *self._simple_tables()),
            buckets=self._refs("AWS::S3::Bucket"),
            queues=tuple(value.rpartition("/")[2] for value in queues),
            unplayed=tuple(self.unplayed),
        )

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of all resources of a type, by logical id."""
        return {
            logical_id: resource.get("Properties") or {}
            for logical_id, resource in self.resources.items()
            if resource.get("Type") == kind
        }

    def leave_out(self, line: int, what: str, why: str | Exception) -> None:
        """Keep what can't be played, to be told to the person who wrote it."""
        problem = str(getattr(why, "problem", why))
        self.unplayed.append(Unplayed(Place(self.path, line), what, problem))

    def place(self, logical_id: str) -> Place:
        """Return where a resource stands."""
        return Place(self.path, self.lines.get(logical_id, 0))

    def _made(self, what: str, logical_id: str, make: Callable[..., Any], *given: Any) -> list[Any]:
        """Return what is made of a resource; nothing, and its name is kept, if it can't be read."""
        try:
            made = make(logical_id, *given)
        except TemplateError as error:
            self.leave_out(self.lines.get(logical_id, 0), what, error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"it is not written as AWS takes it: {error}"
            self.leave_out(self.lines.get(logical_id, 0), what, why)
        else:
            return [] if made is None else [made]
        return []

    def _refs(self, kind: str) -> tuple[str, ...]:
        return tuple(self.resolver.values[logical_id] for logical_id in self.of_type(kind))

    def _function(
        self, logical_id: str, shared: dict[str, Any], own: dict[str, Any]
    ) -> FunctionSpec | None:
        merged = _merged(shared, own)
        line = self.lines.get(logical_id, 0)
        environment = self._environment(logical_id, merged)
        # Of the rest, what a function here is not asked about may be unresolvable.
        asked = {name: merged[name] for name in _ASKED if name in merged}
        settings: dict[str, Any] = self.resolver.resolve(asked)
        why = _why_not(settings)
        if why:
            self.leave_out(line, f"function {logical_id}", why)
            return None
        if settings.get("Layers"):
            self.leave_out(line, f"the Layers of {logical_id}",
                           "install what they hold beside the function")  # fmt: skip
        return _spec(self, logical_id, settings, environment)

    def _environment(self, logical_id: str, merged: dict[str, Any]) -> dict[str, str]:
        """Return the variables; one that can't be resolved is left out, and named."""
        environment: dict[str, str] = {}
        variables = (merged.get("Environment") or {}).get("Variables") or {}
        for name, value in variables.items():
            try:
                resolved = self.resolver.resolve({name: value})
            except TemplateError as error:
                line = getattr(variables, "lines", {}).get(name, self.lines.get(logical_id, 0))
                self.leave_out(line, f"the variable {name} of {logical_id}", error)
                continue
            environment |= {key: _text(given) for key, given in resolved.items()}
        return environment

    def _tables(self) -> list[TableSpec]:
        return [
            table
            for logical_id, unresolved in self.of_type("AWS::DynamoDB::Table").items()
            for table in self._made(f"table {logical_id}", logical_id, self._table, unresolved)
        ]

    def _table(self, logical_id: str, unresolved: Mapping[str, Any]) -> TableSpec:
        asked = (*_TABLE_ARGUMENTS, "TimeToLiveSpecification")
        properties = self.resolver.resolve(
            {name: unresolved[name] for name in asked if name in unresolved}
        )
        ttl = properties.pop("TimeToLiveSpecification", {})
        attribute = ttl.get("AttributeName") if ttl.get("Enabled") else None
        return TableSpec(self.resolver.values[logical_id], properties, attribute)

    def _simple_tables(self) -> list[TableSpec]:
        tables = []
        for logical_id, properties in self.of_type("AWS::Serverless::SimpleTable").items():
            key = properties.get("PrimaryKey") or {}
            name, kind = key.get("Name", "id"), str(key.get("Type", "String"))
            arguments = {
                "BillingMode": "PAY_PER_REQUEST",
                "KeySchema": [{"AttributeName": name, "KeyType": "HASH"}],
                "AttributeDefinitions": [{"AttributeName": name, "AttributeType": kind[0]}],
            }
            tables.append(TableSpec(self.resolver.values[logical_id], arguments, None))
        return tables


_ASKED = ("CodeUri", "DeadLetterQueue", "EventInvokeConfig", "Handler", "ImageUri", "InlineCode",
          "Layers", "MemorySize", "PackageType", "RecursiveLoop",
          "ReservedConcurrentExecutions", "Runtime", "Timeout")  # fmt: skip


def _why_not(settings: Mapping[str, Any]) -> str:
    """Return why a function can't be played; empty if it can."""
    runtime = str(settings.get("Runtime", "python"))
    if settings.get("PackageType") == "Image" or "ImageUri" in settings:
        return "it is a container image, and there is no Docker here"
    if "InlineCode" in settings:
        return "its code stands in the template: put it into a file"
    if not runtime.startswith("python"):
        return f"runtime {runtime}: only Python is played"
    if not isinstance(settings.get("CodeUri", "."), str) or str(settings.get("CodeUri")).startswith(
        "s3:"
    ):
        return "its CodeUri is no directory of this machine"
    return "" if "Handler" in settings else "it has no Handler"


def _spec(
    reader: _Reader, logical_id: str, settings: dict[str, Any], environment: dict[str, str]
) -> FunctionSpec:
    invoked = settings.get("EventInvokeConfig") or {}
    on_failure = (invoked.get("DestinationConfig") or {}).get("OnFailure") or {}
    dead_letters = settings.get("DeadLetterQueue") or {}
    queue = str(on_failure.get("Destination") or dead_letters.get("TargetArn") or "")
    reserved = settings.get("ReservedConcurrentExecutions")
    return FunctionSpec(
        logical_id=logical_id,
        name=reader.resolver.values[logical_id],
        handler=str(settings["Handler"]),
        code=(reader.path.parent / str(settings.get("CodeUri", "."))).resolve(),
        timeout_s=float(settings.get("Timeout", DEFAULT_TIMEOUT_S)),
        memory_mb=int(settings.get("MemorySize", DEFAULT_MEMORY_MB)),
        environment=environment,
        retries=int(invoked.get("MaximumRetryAttempts", 2)),
        max_event_age_s=int(invoked.get("MaximumEventAgeInSeconds", 21_600)),
        concurrency=None if reserved is None else int(reserved),
        may_recurse=settings.get("RecursiveLoop") == "Allow",
        failure_queue=queue if ":sqs:" in queue else None,
        place=reader.place(logical_id),
    )


def _merged(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function's properties with the Globals merged in, as SAM merges mappings."""
    merged = dict(shared)
    for name, value in own.items():
        before = merged.get(name)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[name] = _both(before, value) if both else value
    return merged


def _both(shared: Any, own: Any) -> Any:
    """Return two mappings as one, which still knows its lines."""
    made = template.Map(own.line if isinstance(own, template.Map) else 0)
    for source in (shared, own):
        made.update(_merged(made, source) if made else source)
        made.lines.update(getattr(source, "lines", {}))
    return made


def _text(value: Any) -> str:
    """Return an environment's value as CloudFormation writes it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nested(path: Path, name: str, reader: _Reader) -> list[Stack]:
    """Return the stacks nested in a template. One's parameters may come from another's outputs."""
    waiting = reader.of_type("AWS::Serverless::Application")
    stacks: list[Stack] = []
    while waiting:
        fault: TemplateError | None = None
        for logical_id, properties in list(waiting.items()):
            try:
                parameters = reader.resolver.resolve(properties.get("Parameters") or {})
            except TemplateError as error:  # perhaps after another one is read
                fault = error
                continue
            location = reader.resolver.resolve(properties.get("Location"))
            if not isinstance(location, str):
                raise TemplateError(
                    f"{reader.place(logical_id)}: {logical_id}: only a local Location can be played"
                )
            inner, outputs = _read(path.parent / location, f"{name}-{logical_id}", parameters)
            for output, value in outputs.items():
                reader.resolver.attributes[f"{logical_id}.Outputs.{output}"] = value
            stacks.append(inner)
            del waiting[logical_id]
            break
        else:
            raise fault or TemplateError(f"{path}: nested stacks can't be read")
    return stacks


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
            line = getattr(data["Parameters"], "lines", {}).get(name, 0)
            raise TemplateError(
                f"{Place(path, line)}: parameter {name} has no default: "
                f"give it a value with --parameter {name}=VALUE"
            )
        values[name] = str(given.get(name, declared.get("Default")))
    return values
