"""Events as AWS delivers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from anarchon_ddb.clock import iso
from anarchon_ddb.testing.clock import as_moment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_ACCOUNT = "eu-west-1:123456789012"


def scheduler_event(
    job: str,
    slot: datetime | str,
    *,
    params: Mapping[str, Any] | None = None,
    schedule: str | None = None,
) -> dict[str, Any]:
    """Return the ``Input`` of the shipped template, its placeholders replaced.

    Parameters
    ----------
    job : str
        The job, or an instance of it.
    slot : datetime or str
        Aware, or as ``2026-11-29T12:00:00Z``.
    params : mapping, optional
        Stored with the run.
    schedule : str, optional
        The ARN of the schedule; one of the job's name if not given.

    Examples
    --------
    >>> scheduler_event("export", "2026-11-29T12:00:00Z")["slot"]
    '2026-11-29T12:00:00Z'
    """
    event: dict[str, Any] = {
        "job": job,
        "slot": iso(as_moment(slot)),
        "schedule": schedule or schedule_arn(job),
    }
    return event | ({"params": dict(params)} if params else {})


def schedule_arn(job: str) -> str:
    """Return the ARN of the schedule that a job of these events has.

    Examples
    --------
    >>> schedule_arn("export")
    'arn:aws:scheduler:eu-west-1:123456789012:schedule/stack/export'
    """
    return f"arn:aws:scheduler:{_ACCOUNT}:schedule/stack/{job.replace(':', '-')}"


def rule_event(rule: str, slot: datetime | str) -> dict[str, Any]:
    """Return the default envelope of a scheduled EventBridge rule.

    Examples
    --------
    >>> rule_event("nightly", "2026-11-29T02:00:00Z")["source"]
    'aws.events'
    """
    return {
        "version": "0",
        "id": str(uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "123456789012",
        "time": iso(as_moment(slot)),
        "region": "eu-west-1",
        "resources": [f"arn:aws:events:{_ACCOUNT}:rule/{rule}"],
        "detail": {},
    }


def resume_event(job: str, slot: datetime | str) -> dict[str, Any]:
    """Return what the resumer sends to go on with an open run.

    Examples
    --------
    >>> resume_event("export", "2026-11-29T12:00:00Z")["cause"]
    'resume'
    """
    return {"job": job, "slot": iso(as_moment(slot)), "cause": "resume"}
