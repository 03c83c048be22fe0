"""The schedule of a deployed job, read from EventBridge: ``template.yaml`` is where it is written.

Read when a handler asks, never for a run that does not; then kept for the life of the sandbox. An
ARN of EventBridge Scheduler is asked for by name and group, a rule's by name and bus, in the region
that the ARN names. This module never writes, and never guesses a schedule that it can't read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from botocore.exceptions import BotoCoreError, ClientError

from anarchon_ddb.errors import InvalidScheduleError, StoreError
from anarchon_ddb.replies import SILENT, TRANSIENT
from anarchon_ddb.schedule import parse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from anarchon_ddb.schedule import Schedule
    from anarchon_ddb.store import Store

_ADVICE = {
    "AccessDeniedException": "Grant {action} on {arn} to the function's role",
    "ResourceNotFoundException": "It was deleted or renamed since the run began; a one-time "
    "schedule may delete itself (ActionAfterCompletion)",
}

# With the store, so that another table or endpoint never answers from this one's schedules.
_known: WeakKeyDictionary[Store, dict[str, Schedule]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Source:
    """Which call reads a schedule, as its ARN tells."""

    service: str
    region: str
    action: str
    """As IAM names it; the part after the colon is the operation."""
    method: str
    arguments: Mapping[str, str]


def schedule_of(store: Store, arn: str, slot: datetime) -> Schedule:
    """Return the schedule that fired a slot, read at most once while it has that slot.

    A warm sandbox outlives a deployment that changes nothing but the expression. So a slot that
    the known schedule does not have makes it read again.

    Parameters
    ----------
    store : Store
        Whose session and lifetime are used.
    arn : str
        Of a schedule or a rule, as the event gave it.
    slot : datetime
        Aware.

    Raises
    ------
    InvalidScheduleError, StoreError
        As ``read_schedule``.
    """
    known = _known.setdefault(store, {})
    schedule = known.get(arn)
    if schedule is None or schedule.slot_of(slot) != slot:
        schedule = known[arn] = read_schedule(store, arn)
    return schedule


def read_schedule(store: Store, arn: str) -> Schedule:
    """Read a schedule from EventBridge.

    Raises
    ------
    InvalidScheduleError
        If the ARN is of something else, or the rule fires on a pattern instead of a schedule.
    StoreError
        If the call fails; the text names the action and the resource.
    """
    return _parsed(arn, source_of(arn), _ask(store, source_of(arn), arn))


def read_rule(store: Store, arn: str) -> tuple[Schedule, bool]:
    """Read a rule's schedule, and whether the rule is enabled.

    Raises
    ------
    InvalidScheduleError, StoreError
        As ``read_schedule``.
    """
    source = source_of(arn)
    found = _ask(store, source, arn)
    return _parsed(arn, source, found), found.get("State", "ENABLED") != "DISABLED"


def _parsed(arn: str, source: Source, found: Mapping[str, Any]) -> Schedule:
    expression = found.get("ScheduleExpression")
    if not expression:
        raise InvalidScheduleError(
            f"{arn} has no ScheduleExpression: it fires on an event pattern, so it has no slots"
        )
    try:
        return parse(
            expression,
            found.get("ScheduleExpressionTimezone") or "UTC",
            "rule" if source.service == "events" else "scheduler",
            found.get("StartDate"),
            found.get("EndDate"),
        )
    except InvalidScheduleError as error:
        raise InvalidScheduleError(f"{arn}: {error}") from None


def source_of(arn: str) -> Source:
    """Tell from an ARN where its schedule is read.

    Raises
    ------
    InvalidScheduleError
        If it is neither a schedule's nor a rule's.

    Examples
    --------
    >>> source_of("arn:aws:scheduler:eu-west-1:123456789012:schedule/stack/export").arguments
    {'GroupName': 'stack', 'Name': 'export'}
    >>> source_of("arn:aws:events:eu-west-1:123456789012:rule/nightly").action
    'events:DescribeRule'
    """
    service, region, resource = _parts(arn)
    kind, _, path = resource.partition("/")
    # The name is behind the last slash: the name of a partner's event bus has slashes of its own.
    place, _, name = path.rpartition("/")
    if service == "scheduler" and kind == "schedule" and place and name:
        arguments = {"GroupName": place, "Name": name}
        return Source(service, region, "scheduler:GetSchedule", "get_schedule", arguments)
    if service == "events" and kind == "rule" and name:
        arguments = {"Name": name} | ({"EventBusName": place} if place else {})
        return Source(service, region, "events:DescribeRule", "describe_rule", arguments)
    raise InvalidScheduleError(
        f"{arn[:200]!r} is not the ARN of a schedule: expected "
        "arn:aws:scheduler:REGION:ACCOUNT:schedule/GROUP/NAME or "
        "arn:aws:events:REGION:ACCOUNT:rule/NAME"
    )


def forget(arn: str) -> None:
    """Read a schedule anew at the next question, for tests that change it."""
    for known in _known.values():
        known.pop(arn, None)


def _parts(arn: str) -> tuple[str, str, str]:
    """Return service, region and resource; empty ones for a text of another form."""
    parts = arn.split(":", 5)
    return (parts[2], parts[3], parts[5]) if len(parts) == 6 and parts[3] else ("", "", "")


def _ask(store: Store, source: Source, arn: str) -> dict[str, Any]:
    try:
        client = store.other_client(source.service, source.region)
        found: dict[str, Any] = getattr(client, source.method)(**source.arguments)
    except (BotoCoreError, ClientError) as error:
        raise _explained(source, arn, error) from error
    return found


def _explained(source: Source, arn: str, error: Exception) -> StoreError:
    answer = error.response if isinstance(error, ClientError) else {}
    code = answer.get("Error", {}).get("Code") or type(error).__name__
    detail = answer.get("Error", {}).get("Message") or str(error)
    advice = _ADVICE.get(code, "").format(action=source.action, arn=arn)
    return StoreError(
        f"the schedule of the run can't be read: {source.action} of {arn} failed: {code}: {detail}"
        + (f". {advice}" if advice else ""),
        retryable=code in TRANSIENT or isinstance(error, SILENT),
    )
