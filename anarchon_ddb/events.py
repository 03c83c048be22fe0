"""Any event that may reach the function -> the slot it delivers, or one clear refusal.

A slot is never taken from the clock: each retry and each duplicate of a delivery must name the
same one. What names none is refused, and nothing is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from anarchon_ddb.clock import SYSTEM_CLOCK, from_ms, iso
from anarchon_ddb.errors import InvalidEventError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anarchon_ddb.schedule import Schedule

Cause = Literal["schedule", "resume", "person", "backfill", "catch_up", "retry"]

MAX_AHEAD = timedelta(minutes=5)
"""A slot further ahead is a mistake: EventBridge delivers after the time, not before it."""

DEFAULT_RETENTION = timedelta(days=30)

LONGEST_ARN = 512
"""Of a schedule or rule; it is stored with the run, and writes are billed by size."""

_INPUT_KEYS = frozenset({"job", "slot", "schedule", "params", "cause"})
_PLACEHOLDER = re.compile(r"<aws\.scheduler\.[a-z-]+>")
_EXAMPLE_INPUT = '{"job":"…","slot":"<aws.scheduler.scheduled-time>"}'


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """What an event delivers."""

    job: str
    """The job, or an instance of it: ``export:tenant-a``."""
    slot: datetime
    """Aware, UTC, whole seconds."""
    cause: Cause = "schedule"
    params: Mapping[str, Any] = field(default_factory=dict)
    schedule: str | None = None
    """The ARN of the schedule or rule, where the event names one."""

    @property
    def is_first(self) -> bool:
        """True when this delivery may create the run; a resume may not."""
        return self.cause not in {"resume", "retry"}


def parse_event(
    event: object,
    job: str | None = None,
    *,
    now: datetime | None = None,
    retention: timedelta = DEFAULT_RETENTION,
    schedule: Schedule | None = None,
) -> SlotEvent | None:
    """Return the slot that an event delivers.

    Parameters
    ----------
    event : object
        The first argument of the Lambda handler: the ``Input`` of the shipped template, the
        default envelope of an EventBridge rule or of EventBridge Scheduler, or a resume payload.
    job : str, optional
        The job that the function runs. An event that names a job must name it or an instance of
        it; an envelope that names none is for it.
    now : datetime, optional
        Aware. The machine's clock if not given.
    retention : timedelta
        A slot older than this could not be told from a duplicate, since its run may be deleted.
    schedule : Schedule, optional
        What fired the event, for a caller that has it at hand: the slot is then the one of its
        slots that the time stands for (``Schedule.slot_of``). Without it the slot is the time as
        delivered; see ``docs/decisions/0005-the-slot-of-a-rule.md``.

    Returns
    -------
    SlotEvent or None
        None for a warm-up ping, which delivers nothing.

    Raises
    ------
    InvalidEventError
        If the event names no usable slot of the job. The text says what to change.

    Examples
    --------
    >>> now = datetime(2026, 11, 29, 12, 0, 5, tzinfo=UTC)
    >>> parse_event({"job": "export", "slot": "2026-11-29T12:00:00Z"}, now=now).slot
    datetime.datetime(2026, 11, 29, 12, 0, tzinfo=datetime.timezone.utc)
    """
    if _is_warm_up(event):
        return None
    if not isinstance(event, dict):
        raise InvalidEventError(
            f"not a schedule event: expected a JSON object, got {type(event).__name__}"
        )
    delivery = _from_envelope(event, job) if "source" in event else _from_input(event, job)
    _check_job(delivery.job, job)
    if schedule is not None and delivery.cause == "schedule":
        delivery = replace(delivery, slot=_slot_of(schedule, delivery.slot))
    if delivery.is_first:
        _check_age(delivery.slot, now or from_ms(SYSTEM_CLOCK.now_ms()), retention)
    return delivery


def _is_warm_up(event: object) -> bool:
    """Recognise the pings of the known warm-up plug-ins, which carry no slot on purpose."""
    if not isinstance(event, dict):
        return False
    if event.get("source") in {"serverless-plugin-warmup", "thundra"}:
        return True
    return any(event.get(key) is True for key in ("warmer", "warmup", "warmUp", "keep-warm"))


def _from_input(event: dict[str, Any], job: str | None) -> SlotEvent:
    if "Records" in event:
        raise InvalidEventError(
            "SQS/SNS-wrapped events are not supported: a queue redelivers and batches, and its "
            "times are not slots. Let the schedule invoke the function directly"
        )
    if "slot" not in event:
        raise InvalidEventError(
            f"not a schedule event: no scheduled time in event (keys: {_keys(event)}). "
            f"In the template set Input to {_EXAMPLE_INPUT}; "
            "to run a slot by hand, send an event with job and slot"
        )
    unknown = sorted(set(event) - _INPUT_KEYS)
    if unknown:
        raise InvalidEventError(
            f"unknown key {unknown[0]!r} in the event: "
            "what the handler should get belongs under 'params'"
        )
    return SlotEvent(
        job=_job_of(event.get("job"), job),
        slot=_slot(event["slot"], "slot"),
        cause=_cause(event.get("cause", "schedule")),
        params=_params(event.get("params")),
        schedule=_schedule(event.get("schedule")),
    )


def _from_envelope(event: dict[str, Any], job: str | None) -> SlotEvent:
    source = event["source"]
    if source not in {"aws.events", "aws.scheduler"}:
        raise InvalidEventError(
            f"not a schedule event: source is {source!r}, expected aws.events or aws.scheduler"
        )
    if event.get("detail-type", "Scheduled Event") != "Scheduled Event":
        raise InvalidEventError(
            f"not a schedule event: detail-type is {event['detail-type']!r}, "
            "expected 'Scheduled Event'"
        )
    if "time" not in event:
        raise InvalidEventError(f"not a schedule event: no time (keys: {_keys(event)})")
    resources = event.get("resources")
    schedule = resources[0] if isinstance(resources, list) and resources else None
    return SlotEvent(
        job=_job_of(None, job),
        slot=_slot(event["time"], "time"),
        schedule=_schedule(schedule),
    )


def _keys(event: dict[str, Any]) -> str:
    """Name an event's keys, never its values: they may be secret."""
    return ", ".join(sorted(str(key)[:40] for key in event)[:8]) or "none"


def _job_of(named: object, job: str | None) -> str:
    if named is None and job is None:
        raise InvalidEventError('the event names no job; add "job" to the schedule\'s Input')
    if named is not None and not isinstance(named, str):
        raise InvalidEventError(f"'job' must be a string, got {type(named).__name__}")
    return named or job or ""


def _check_job(named: str, job: str | None) -> None:
    if job is not None and named != job and not re.fullmatch(rf"{re.escape(job)}:[\w.-]+", named):
        raise InvalidEventError(
            f"the event is for job {named[:80]!r}, but this function runs {job!r}; "
            "the schedule points to the wrong function, or its Input names the wrong job"
        )


def _slot(value: object, key: str) -> datetime:
    if not isinstance(value, str):
        raise InvalidEventError(f"{key!r} must be an ISO 8601 text, got {type(value).__name__}")
    if _PLACEHOLDER.search(value):
        raise InvalidEventError(
            f"{key!r} is the placeholder {value!r} itself: only the Input of an EventBridge "
            "Scheduler schedule (ScheduleV2) replaces it, a rule (Schedule) does not"
        )
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidEventError(
            f"{key!r} is {value[:40]!r}, expected a time such as 2026-11-29T12:00:00Z"
        ) from None
    if moment.utcoffset() is None:
        raise InvalidEventError(
            f"{key!r} is {value!r}, a time without a zone; write 2026-11-29T12:00:00Z"
        )
    if moment.microsecond:
        raise InvalidEventError(f"{key!r} is {value!r}; a slot has whole seconds")
    return moment.astimezone(UTC)


def _slot_of(schedule: Schedule, moment: datetime) -> datetime:
    slot = schedule.slot_of(moment)
    if slot is None:
        raise InvalidEventError(
            f"{iso(moment)} is no slot of {schedule.expression} ({schedule.timezone}): the "
            "schedule was changed since the event was sent, or this is not its event"
        )
    return slot


def _check_age(slot: datetime, now: datetime, retention: timedelta) -> None:
    if slot < now - retention:
        raise InvalidEventError(
            f"slot {iso(slot)} is older than the retention of {retention.days} days, so it can't "
            "be told from a duplicate; nothing was run"
        )
    if slot > now + MAX_AHEAD:
        raise InvalidEventError(
            f"slot {iso(slot)} is more than 5 minutes ahead of now ({iso(now)}); nothing was run"
        )


def _cause(value: object) -> Cause:
    if value not in get_args(Cause):
        raise InvalidEventError(
            f"'cause' is {str(value)[:40]!r}, expected one of {', '.join(get_args(Cause))}"
        )
    return value  # type: ignore[return-value]  # narrowed by get_args


def _params(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidEventError(f"'params' must be an object, got {type(value).__name__}")
    return value


def _schedule(value: object) -> str | None:
    if isinstance(value, str) and value.startswith("arn:") and len(value) <= LONGEST_ARN:
        return value
    return None
