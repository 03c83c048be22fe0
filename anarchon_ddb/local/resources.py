"""Creates in the embedded AWS what a stack has: tables, buckets, queues, schedules and rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ParamValidationError

from anarchon_ddb.local.stack import ACCOUNT, REGION
from anarchon_ddb.local.template import TemplateError

if TYPE_CHECKING:
    from anarchon_ddb.local.aws import EmbeddedAws
    from anarchon_ddb.local.stack import ScheduleSpec, Stack, TableSpec


def create(aws: EmbeddedAws, stack: Stack) -> None:
    """Create the resources of a stack, exactly as its template has them.

    A table that another DynamoDB already has is used as it is.
    """
    dynamodb = aws.client("dynamodb")
    for table in stack.tables:
        _create_table(dynamodb, table)
    for bucket in stack.buckets:
        aws.client("s3").create_bucket(
            Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
    for queue in stack.queues:
        kind = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
        aws.client("sqs").create_queue(QueueName=queue, Attributes=kind)
    _register(aws, stack)


def _create_table(dynamodb: Any, table: TableSpec) -> None:
    try:
        dynamodb.create_table(TableName=table.name, **table.arguments)
        if table.ttl_attribute is not None:
            specification = {"AttributeName": table.ttl_attribute, "Enabled": True}
            dynamodb.update_time_to_live(
                TableName=table.name, TimeToLiveSpecification=specification
            )
    except ClientError as error:
        # Another DynamoDB may know no TTL; nothing here relies on it.
        code = error.response.get("Error", {}).get("Code", "")
        if code not in {"ResourceInUseException", "UnknownOperationException"}:
            raise _unmade(table, error) from None
    except ParamValidationError as error:
        raise _unmade(table, error) from None


def _unmade(table: TableSpec, error: Exception) -> TemplateError:
    return TemplateError(f"table {table.name} can't be created: {error}")


def _register(aws: EmbeddedAws, stack: Stack) -> None:
    """Create the schedules: the registry that ``run.window`` and the resumer read."""
    scheduler = aws.client("scheduler")
    schedules = [spec for spec in stack.schedules.values() if spec.kind == "scheduler"]
    for group in sorted({spec.group for spec in schedules} - {"default"}):
        scheduler.create_schedule_group(Name=group)
    for spec in schedules:
        scheduler.create_schedule(**_schedule(spec))
    events = aws.client("events")
    for spec in stack.schedules.values():
        if spec.kind == "rule":
            state = "ENABLED" if spec.enabled else "DISABLED"
            events.put_rule(Name=spec.name, ScheduleExpression=spec.expression, State=state)


def _schedule(spec: ScheduleSpec) -> dict[str, Any]:
    target: dict[str, Any] = {
        "Arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{spec.function}",
        "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/scheduler",
        "RetryPolicy": {
            "MaximumEventAgeInSeconds": spec.max_event_age_s,
            "MaximumRetryAttempts": spec.retries,
        },
    }
    window: dict[str, Any] = {"Mode": "OFF"}
    if spec.window_s:
        window = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": spec.window_s // 60}
    created: dict[str, Any] = {
        "Name": spec.name,
        "GroupName": spec.group,
        "ScheduleExpression": spec.expression,
        "ScheduleExpressionTimezone": spec.timezone,
        "FlexibleTimeWindow": window,
        "State": "ENABLED" if spec.enabled else "DISABLED",
        "Target": target | ({"Input": spec.input} if spec.input else {}),
    }
    bounds = {"StartDate": spec.start, "EndDate": spec.end}
    return created | {name: value for name, value in bounds.items() if value is not None}
