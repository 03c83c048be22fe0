"""What EventBridge hands to a function for one slot of a schedule, or of a rule."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from anarchon_ddb.clock import iso
from anarchon_ddb.local.stack import ACCOUNT, REGION

if TYPE_CHECKING:
    from datetime import datetime

    from anarchon_ddb.local.stack import ScheduleSpec


def event_for(schedule: ScheduleSpec, slot: datetime, *, attempt: int = 1) -> Any:
    """Return the event of a slot: the schedule's Input with its placeholders replaced.

    A rule's Input is a constant, which names no slot.

    Parameters
    ----------
    schedule : ScheduleSpec
        A schedule without Input gets Scheduler's default envelope.
    slot : datetime
        The aware instant at which it was due.
    attempt : int
        The number of the delivery, from 1.

    Raises
    ------
    ValueError
        If what comes out is not JSON: Lambda would refuse the delivery.
    """
    execution = str(uuid5(NAMESPACE_URL, f"{schedule.arn}|{iso(slot)}|{attempt}"))
    if schedule.input is None:
        return _envelope(schedule, slot, execution)
    text = schedule.input
    if schedule.kind == "rule":
        return json.loads(text)
    for name, value in {
        "scheduled-time": iso(slot),
        "schedule-arn": schedule.arn,
        "execution-id": execution,
        "attempt-number": str(attempt),
    }.items():
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return json.loads(text)


def _envelope(schedule: ScheduleSpec, slot: datetime, execution: str) -> dict[str, Any]:
    return {
        "version": "0",
        "id": execution,
        "detail-type": "Scheduled Event",
        "source": "aws.events" if schedule.kind == "rule" else "aws.scheduler",
        "account": ACCOUNT,
        "time": iso(slot),
        "region": REGION,
        "resources": [schedule.arn],
        "detail": {} if schedule.kind == "rule" else "{}",
    }
