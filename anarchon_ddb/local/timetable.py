"""What fires the functions of a template: schedules of EventBridge Scheduler, and scheduled rules.

Those that SAM makes of a function's ``Events``, and those that are resources of their own.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from anarchon_ddb.errors import InvalidScheduleError
from anarchon_ddb.local.scheduler import event_for
from anarchon_ddb.local.stack import Place, ScheduleSpec
from anarchon_ddb.local.template import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from anarchon_ddb.local.stack import FunctionSpec
    from anarchon_ddb.local.template import Resolver

_DEFAULT_AGE_S = 86_400
_DEFAULT_RETRIES = 185


class Reader(Protocol):
    """What is needed of the reader of a template."""

    path: Path
    resolver: Resolver
    lines: Mapping[str, int]

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of all resources of a type, by logical id."""
        ...

    def leave_out(self, line: int, what: str, why: str | Exception) -> None:
        """Keep what can't be played."""
        ...


def read(reader: Reader, functions: Mapping[str, FunctionSpec]) -> list[ScheduleSpec]:
    """Return all that fires the functions, by clock; the rest is left out, and named.

    Parameters
    ----------
    functions : mapping
        Those that are played, by logical id.
    """
    found = []
    for what, line, made in (*_events(reader, functions), *_resources(reader, functions)):
        try:
            spec = made()
            spec.slots(datetime(2020, 1, 1, tzinfo=UTC))
            event_for(spec, datetime(2020, 1, 1, tzinfo=UTC))
        except (TemplateError, InvalidScheduleError) as error:
            reader.leave_out(line, what, error)
        except json.JSONDecodeError as error:
            reader.leave_out(line, what, f"its Input is no JSON, which AWS refuses: {error}")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reader.leave_out(line, what, f"it is not written as AWS takes it: {error}")
        else:
            found.append(spec)
    return found


def _events(
    reader: Reader, functions: Mapping[str, FunctionSpec]
) -> Iterator[tuple[str, int, Any]]:
    for logical_id, spec in functions.items():
        events = reader.of_type("AWS::Serverless::Function")[logical_id].get("Events") or {}
        for event_id, event in events.items():
            line = getattr(events, "lines", {}).get(event_id, 0)
            what = f"event {event_id} of {logical_id}"
            kind = str(event.get("Type")) if isinstance(event, dict) else ""
            make = {"ScheduleV2": _of_scheduler, "Schedule": _of_rule}.get(kind)
            if make is None:
                why = f"{kind} is no schedule: invoke the function yourself"
                reader.leave_out(line, what, why if kind else "it has no Type")
                continue
            name = f"{logical_id}{event_id}"  # as SAM names it
            yield what, line, _later(make, reader, event.get("Properties"), name, spec.name, line)


def _resources(
    reader: Reader, functions: Mapping[str, FunctionSpec]
) -> Iterator[tuple[str, int, Any]]:
    by_arn = {spec.arn: spec.name for spec in functions.values()}
    for kind, make in (
        ("AWS::Scheduler::Schedule", _of_scheduler),
        ("AWS::Events::Rule", _of_rule),
    ):
        for logical_id, properties in reader.of_type(kind).items():
            line, what = reader.lines.get(logical_id, 0), f"{logical_id} ({kind})"
            targets = properties.get("Targets") or [properties.get("Target") or {}]
            for target in targets:
                name = str(reader.resolver.values[logical_id])
                yield what, line, _of_target(make, reader, properties, target, by_arn, name, line)


def _of_target(
    make: Any,
    reader: Reader,
    properties: dict[str, Any],
    target: dict[str, Any],
    by_arn: Mapping[str, str],
    name: str,
    line: int,
) -> Any:
    def made() -> ScheduleSpec:
        arn = str(reader.resolver.resolve(target.get("Arn")))
        if arn not in by_arn:
            raise TemplateError(f"its target is no function that is played here: {arn}")
        asked = {key: value for key, value in target.items() if key not in {"Arn", "RoleArn"}}
        flat = {key: value for key, value in properties.items() if "Target" not in key} | asked
        spec: ScheduleSpec = _later(make, reader, flat, name, by_arn[arn], line)()
        return spec

    return made


def _later(make: Any, reader: Reader, given: Any, name: str, function: str, line: int) -> Any:
    """Return what makes the schedule, so that what it raises is told with its line."""

    def made() -> ScheduleSpec:
        properties = reader.resolver.resolve(given or {})
        spec: ScheduleSpec = make(properties, name, function, Place(reader.path, line))
        return spec

    return made


def _of_scheduler(properties: dict[str, Any], name: str, function: str, at: Place) -> ScheduleSpec:
    window = properties.get("FlexibleTimeWindow") or {}
    return ScheduleSpec(
        name=properties.get("Name", name),
        group=properties.get("GroupName", "default"),
        expression=_expression(properties, "ScheduleExpression"),
        timezone=properties.get("ScheduleExpressionTimezone", "UTC"),
        function=function,
        input=properties.get("Input"),
        enabled=properties.get("State", "ENABLED") == "ENABLED",
        start=_moment(properties.get("StartDate")),
        end=_moment(properties.get("EndDate")),
        window_s=60 * int(window.get("MaximumWindowInMinutes", 0)),
        place=at,
        **_delivery(properties),
    )


def _of_rule(properties: dict[str, Any], name: str, function: str, at: Place) -> ScheduleSpec:
    if properties.get("EventPattern"):
        raise TemplateError("it fires on an event pattern: only schedules are played")
    state = properties.get("State", "ENABLED" if properties.get("Enabled", True) else "DISABLED")
    return ScheduleSpec(
        name=properties.get("Name", name),
        group=properties.get("EventBusName", "default"),
        expression=_expression(properties, "ScheduleExpression", "Schedule"),
        timezone="UTC",
        function=function,
        input=properties.get("Input"),
        kind="rule",
        enabled=state == "ENABLED",
        place=at,
        **_delivery(properties),
    )


def _delivery(properties: dict[str, Any]) -> dict[str, Any]:
    retry = properties.get("RetryPolicy") or {}
    queue = str((properties.get("DeadLetterConfig") or {}).get("Arn") or "")
    return {
        "retries": int(retry.get("MaximumRetryAttempts", _DEFAULT_RETRIES)),
        "max_event_age_s": int(retry.get("MaximumEventAgeInSeconds", _DEFAULT_AGE_S)),
        "dead_letter_queue": queue if ":sqs:" in queue else None,
    }


def _expression(properties: dict[str, Any], *keys: str) -> str:
    found = next((properties[key] for key in keys if key in properties), None)
    if not isinstance(found, str):
        raise TemplateError(f"it has no {keys[-1]}")
    return found


def _moment(value: Any) -> datetime | None:
    """Return a StartDate or EndDate: YAML may have made a datetime of it already."""
    if value is None:
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise TemplateError(f"{value!r} is no date and time: write 2026-11-29T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
