"""A job's schedule in the fake EventBridge of a test, for handlers that ask for their window."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from botocore.session import get_session

from anarchon_ddb import registry, schedule
from anarchon_ddb.testing.events import schedule_arn

_TARGET = {
    "Arn": "arn:aws:lambda:eu-west-1:123456789012:function:test-function",
    "RoleArn": "arn:aws:iam::123456789012:role/test",
}


def create_schedule(job: str, expression: str, timezone: str = "UTC") -> str:
    """Create, or change, the schedule that ``scheduler_event`` names for a job.

    Within moto's ``mock_aws``. AWS itself would refuse it: the role is of an account that is not
    yours.

    Parameters
    ----------
    job : str
        The job, or an instance of it.
    expression : str
        ``cron(…)``, ``rate(…)`` or ``at(…)``.
    timezone : str
        An IANA name.

    Returns
    -------
    str
        Its ARN.

    Raises
    ------
    InvalidScheduleError
        If AWS would refuse the expression; moto takes any.

    Examples
    --------
    >>> from moto import mock_aws
    >>> with mock_aws():
    ...     create_schedule("export", "cron(0 2 * * ? *)", "Europe/Berlin")
    'arn:aws:scheduler:eu-west-1:123456789012:schedule/stack/export'
    """
    schedule.parse(expression, timezone)
    arn = schedule_arn(job)
    source = registry.source_of(arn)
    client: Any = get_session().create_client("scheduler", region_name=source.region)
    with suppress(client.exceptions.ConflictException):
        client.create_schedule_group(Name=source.arguments["GroupName"])
    request = {
        **source.arguments,
        "ScheduleExpression": expression,
        "ScheduleExpressionTimezone": timezone,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": _TARGET,
    }
    try:
        client.create_schedule(**request)
    except client.exceptions.ConflictException:
        client.update_schedule(**request)
    registry.forget(arn)
    return arn
