"""Rules on schedules: the expression, its zone, whether it fires, and what it sends."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from anarchon_ddb import options as job_options
from anarchon_ddb import zones
from anarchon_ddb.doctor.finding import Chapter, Hit, at
from anarchon_ddb.doctor.scope import Holed, Node
from anarchon_ddb.errors import InvalidJobError, InvalidScheduleError
from anarchon_ddb.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.doctor.model import Model, Planned

CHAPTER = Chapter()
TIME = "<aws.scheduler.scheduled-time>"
ARN = "<aws.scheduler.schedule-arn>"
_PLACEHOLDER = re.compile(r"<aws\.scheduler\.([^>]*)>")
_PLACEHOLDERS = ("schedule-arn", "scheduled-time", "execution-id", "attempt-number")
_INPUT = """Input: '{{"job":"{job}","slot":"{time}","schedule":"{arn}"}}'"""


def example(job: str) -> str:
    """Return the Input that the job of a schedule needs."""
    return f"Write {_INPUT.format(job=job, time=TIME, arn=ARN)}"


@CHAPTER.rule(
    "schedule-expression",
    "error",
    title="AWS refuses the schedule",
    why="SAM's linter passes it; the deploy fails when it has begun, or the job never fires.",
    fix="Write an expression that AWS reads: docs/schedules.md lists the forms.",
)
def _expression(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        parsed = planned.parsed
        if isinstance(parsed, InvalidScheduleError) and not _has_bad_zone(planned):
            yield at(planned.expression, f"{planned.name}: {parsed}")


def _has_bad_zone(planned: Planned) -> bool:
    zone = planned.zone
    if zone is None or not zone.is_known or planned.kind == "rule":
        return False
    try:
        zones.load(zone.value)
    except (InvalidScheduleError, TypeError, AttributeError):
        return True
    return False


@CHAPTER.rule(
    "schedule-zone",
    "error",
    title="There is no such time zone",
    why="EventBridge Scheduler refuses it when the deploy has begun.",
    fix="Write an IANA name such as Europe/Berlin, in its exact spelling.",
)
def _zone(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        if planned.zone is not None and _has_bad_zone(planned):
            yield at(planned.zone, f"{planned.name}: {planned.zone.value!r} is no time zone")


@CHAPTER.rule(
    "zone-on-rule",
    "error",
    title="A time zone on a rule",
    why="Rules (SAM: Schedule) know UTC only: the zone is refused or ignored, and the job is "
    "hours off.",
    fix="Use Type: ScheduleV2 with ScheduleExpression, or write the time in UTC and remove the "
    "zone.",
)
def _zone_on_rule(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        if planned.kind != "rule":
            continue
        for key in ("ScheduleExpressionTimezone", "Timezone", "TimeZone"):
            zone = planned.properties.get(key)
            if zone is not None:
                yield at(zone, f"{planned.name} is a rule, and has {key} {zone.value}")


@CHAPTER.rule(
    "zone-key",
    "error",
    title="The time zone has another name",
    why="Only ScheduleExpressionTimezone is read: without it the schedule runs on UTC.",
    fix="Write ScheduleExpressionTimezone.",
)
def _zone_key(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        for key in ("Timezone", "TimeZone", "ScheduleTimezone"):
            zone = planned.properties.get(key) if planned.kind == "scheduler" else None
            if zone is not None:
                yield at(zone, f"{planned.name} has {key}, which is not a property of a schedule")


@CHAPTER.rule(
    "schedule-plural",
    "warning",
    title="A plural after 1",
    why="Scheduler takes rate(1 minutes), rules refuse it: it breaks when it moves.",
    fix="Write the singular: rate(1 minute), rate(1 hour), rate(1 day).",
)
def _plural(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        text = planned.expression.text or ""
        if isinstance(planned.parsed, Schedule) and re.fullmatch(r"rate\(1 \w+s\)", text):
            yield at(planned.expression, f"{planned.name}: {text}")


@CHAPTER.rule(
    "schedule-over",
    "warning",
    title="The schedule has no slot left",
    why="It is deployed, and never fires.",
    fix="Write a year or a time that is still to come, or remove the schedule.",
)
def _over(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        if isinstance(planned.parsed, Schedule) and planned.parsed.next(model.now) is None:
            yield at(planned.expression, f"{planned.name}: {planned.expression.value} is over")


@CHAPTER.rule(
    "enabled-text",
    "error",
    title="Enabled is a text",
    why='SAM tests its truth, and the text "false" is true: the schedule fires.',
    fix="Write Enabled: false without quotes, or State: DISABLED.",
)
def _enabled_text(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        enabled = planned.properties.get("Enabled")
        if enabled is not None and planned.takes_enabled and enabled.text is not None:
            yield at(enabled, f"{planned.name}: Enabled is the text {enabled.value!r}")


@CHAPTER.rule(
    "enabled-function",
    "warning",
    title="Enabled depends on a function",
    why="SAM may test the truth of the unresolved function: off in the template, on in reality.",
    fix="Write State: !If [IsProd, ENABLED, DISABLED]: State is passed on as it is.",
)
def _enabled_function(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        enabled = planned.properties.get("Enabled")
        if enabled is not None and planned.takes_enabled and not enabled.is_known:
            yield at(enabled, f"{planned.name}: whether it is enabled can't be told")


@CHAPTER.rule(
    "enabled-on-schedule",
    "error",
    title="Enabled on a schedule that has State",
    why="Only SAM's Schedule knows Enabled: elsewhere it is refused, or the schedule fires all "
    "the same.",
    fix="Write State: DISABLED.",
)
def _enabled_on_schedule(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        enabled = planned.properties.get("Enabled")
        if enabled is not None and not planned.takes_enabled:
            yield at(enabled, f"{planned.name} has Enabled, which means nothing there")


@CHAPTER.rule(
    "schedule-state",
    "error",
    title="State is neither ENABLED nor DISABLED",
    why="AWS refuses any other value, also another case, when the deploy has begun.",
    fix="Write State: ENABLED or State: DISABLED.",
)
def _state(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        state = planned.properties.get("State")
        known = ("ENABLED", "DISABLED", "ENABLED_WITH_ALL_CLOUDTRAIL_MANAGEMENT_EVENTS")
        if state is not None and state.is_known and state.value not in known:
            yield at(state, f"{planned.name}: State is {state.value!r}")


@CHAPTER.rule(
    "input-json",
    "error",
    title="Input is no JSON",
    why="EventBridge refuses it, or the function gets a text instead of an event.",
    fix="Write a JSON object in single quotes, its keys and texts in double quotes.",
)
def _input_json(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        given = planned.input
        if given is not None and given.is_known and planned.sent is None:
            yield at(given, f"{planned.name}: Input is no JSON object", example("NAME"))
        elif given is not None and isinstance(given.value, Holed) and planned.sent is None:
            yield at(given, f"{planned.name}: Input is no JSON object once its parts are put in")


@CHAPTER.rule(
    "input-slot",
    "error",
    title="Input names no slot",
    why="The event is refused: a slot is never taken from the clock, since a retry would make "
    "another.",
    fix=f'Write "slot":"{TIME}" into Input, or leave Input out: the envelope names the time.',
)
def _input_slot(model: Model) -> Iterator[Hit]:
    for planned, function in model.job_schedules:
        sent = planned.sent
        if sent is not None and planned.kind == "scheduler" and not _has_time(sent.get("slot")):
            found = f"slot is {sent['slot']!r}" if "slot" in sent else "Input has no slot"
            name = planned.job or (function.declared.name if function.declared else None) or "NAME"
            yield at(planned.input or planned.node, f"{planned.name}: {found}", example(name))


def _has_time(slot: Any) -> bool:
    return bool(slot == TIME)


@CHAPTER.rule(
    "input-on-rule",
    "error",
    title="A placeholder of Scheduler in a rule",
    why="Nothing replaces it there: the function gets the placeholder itself, and refuses each "
    "event.",
    fix="Remove Input, since a rule's envelope names the time; or use Type: ScheduleV2.",
)
def _input_on_rule(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        given = planned.input
        if planned.kind == "rule" and given is not None and "<aws.scheduler." in str(given.value):
            yield at(given, f"{planned.name} is a rule, where <aws.scheduler.…> is not replaced")


@CHAPTER.rule(
    "input-hides-time",
    "error",
    title="A rule's Input replaces the envelope that names the time",
    why="The function gets Input alone, without any time: each event is refused.",
    fix="Remove Input from the rule, or use Type: ScheduleV2 with the placeholder.",
)
def _input_hides_time(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        given = planned.input
        if planned.kind == "rule" and given is not None and "<aws." not in str(given.value):
            yield at(given, f"{planned.name} is a rule with an Input, which has no time")


@CHAPTER.rule(
    "input-placeholder",
    "error",
    title="A placeholder that Scheduler does not know",
    why="It is sent as it stands.",
    fix=f"Known are {', '.join(f'<aws.scheduler.{name}>' for name in _PLACEHOLDERS)}.",
)
def _input_placeholder(model: Model) -> Iterator[Hit]:
    for planned in model.schedules:
        text = planned.input.value if planned.input else None
        for name in _PLACEHOLDER.findall(text) if isinstance(text, str) else ():
            if name not in _PLACEHOLDERS and planned.kind == "scheduler":
                yield at(planned.input or planned.node, f"{planned.name}: <aws.scheduler.{name}>")


@CHAPTER.rule(
    "input-schedule",
    "warning",
    title="Input does not name the schedule",
    why="run.window and run.scheduled_at raise: the run does not know by which schedule it was "
    "fired.",
    fix=f'Write "schedule":"{ARN}" into Input.',
)
def _input_schedule(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        sent = planned.sent
        if sent is not None and "slot" in sent and sent.get("schedule") != ARN:
            yield at(planned.input or planned.node, f"{planned.name}: Input has no schedule")


@CHAPTER.rule(
    "input-key",
    "error",
    title="Input has a key that is not taken",
    why="The event is refused, so that nothing a handler should get is dropped in silence.",
    fix='Put what the handler should get under "params".',
)
def _input_key(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        unknown = sorted(
            (planned.sent or {}).keys() - {"job", "slot", "schedule", "params", "cause"}
        )
        if unknown and planned.kind == "scheduler":
            yield at(planned.input or planned.node, f"{planned.name}: Input has {unknown[0]!r}")


@CHAPTER.rule(
    "job-name",
    "error",
    title="Not a name of a job",
    why="The event is refused: parts of a key must never run together.",
    fix="Use 1 to 64 letters, digits, '.', '_' or '-'; an instance is written export:tenant-a.",
)
def _job_name(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        sent = planned.sent
        if sent is None or "slot" not in sent:
            continue
        try:
            job_options.check_name(planned.job)
        except InvalidJobError:
            found = f"job is {sent['job']!r}" if "job" in sent else "Input names no job"
            yield at(planned.input or planned.node, f"{planned.name}: {found}")


@CHAPTER.rule(
    "job-of-another",
    "error",
    title="Input names another job than the handler",
    why="Each event is refused, and every slot of the schedule is lost.",
    fix="Write the name that @job has.",
)
def _job_of_another(model: Model) -> Iterator[Hit]:
    for planned, function in model.job_schedules:
        declared = function.declared
        if declared and declared.name and planned.job and planned.job != declared.name:
            where = f"{declared.path.name} line {declared.line}"
            what = f"{planned.name} sends job {planned.job!r}; {where} has job {declared.name!r}"
            yield at(planned.input or planned.node, what, f'Write "job":"{declared.name}".')


@CHAPTER.rule(
    "job-twice",
    "error",
    title="Two functions for one job",
    why="They share gate, runs and checkpoints: a run begun by one is continued by the other.",
    fix="Give each function a job of its own, or each tenant an instance: export:tenant-a.",
)
def _job_twice(model: Model) -> Iterator[Hit]:
    owners: dict[str, str] = {}
    for planned, function in model.job_schedules:
        if planned.job is None:
            continue
        first = owners.setdefault(planned.job, function.logical_id)
        if first != function.logical_id:
            what = f"{planned.name}: job {planned.job!r} is that of {first} already"
            yield at(planned.input or planned.node, what)


@CHAPTER.rule(
    "slot-twice",
    "warning",
    title="Two schedules fire one job",
    why="A slot that both have is one run, and the second is a duplicate; nobody can tell them "
    "apart.",
    fix='Give each its own instance: "job":"export:tenant-a".',
)
def _slot_twice(model: Model) -> Iterator[Hit]:
    seen: dict[str, str] = {}
    for planned, _ in model.job_schedules:
        name = (planned.sent or {}).get("job")
        if isinstance(name, str):
            first = seen.setdefault(name, planned.name)
            if first != planned.name:
                yield at(planned.input or planned.node, f"{planned.name} and {first} fire {name}")


@CHAPTER.rule(
    "schedule-name",
    "error",
    title="Two schedules of one name",
    why="Names are unique in a group: the deploy fails.",
    fix="Give each schedule its own Name.",
)
def _schedule_name(model: Model) -> Iterator[Hit]:
    seen: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for planned in model.schedules:
        name, group = planned.properties.get("Name"), planned.properties.get("GroupName")
        if planned.kind == "scheduler" and name is not None and isinstance(name.value, str):
            seen[str(group.value if group else ""), name.value].append(name)
    for (_, text), nodes in seen.items():
        for node in nodes[1:]:
            yield at(node, f"Name {text} is that of line {nodes[0].line}, too")
