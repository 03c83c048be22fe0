"""What each resource of a template is called: what ``Ref`` and ``GetAtt`` give for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anarchon_ddb.local.stack import ACCOUNT, REGION

if TYPE_CHECKING:
    from anarchon_ddb.local.template import Resolver

# The property that names a resource, and its ARN after `arn:aws:`.
_NAMED = {
    "AWS::DynamoDB::Table": ("TableName", "dynamodb:{region}:{account}:table/{name}"),
    "AWS::Events::Rule": ("Name", "events:{region}:{account}:rule/{name}"),
    "AWS::S3::Bucket": ("BucketName", "s3:::{name}"),
    "AWS::SQS::Queue": ("QueueName", "sqs:{region}:{account}:{name}"),
    "AWS::SNS::Topic": ("TopicName", "sns:{region}:{account}:{name}"),
    "AWS::Scheduler::ScheduleGroup": (
        "Name",
        "scheduler:{region}:{account}:schedule-group/{name}",
    ),
    "AWS::Serverless::Function": ("FunctionName", "lambda:{region}:{account}:function:{name}"),
    "AWS::Serverless::SimpleTable": ("TableName", "dynamodb:{region}:{account}:table/{name}"),
}


def pseudo(stack: str) -> dict[str, str]:
    """Return the pseudo parameters of a stack."""
    return {
        "AWS::AccountId": ACCOUNT,
        "AWS::Partition": "aws",
        "AWS::Region": REGION,
        "AWS::StackName": stack,
        "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{stack}/local",
        "AWS::URLSuffix": "amazonaws.com",
    }


def record(stack: str, logical_id: str, resource: dict[str, Any], resolver: Resolver) -> None:
    """Record what ``Ref`` and ``GetAtt … Arn`` give for a resource."""
    kind = resource.get("Type", "")
    setting, arn = _NAMED.get(kind, ("", "local:::{name}"))
    given = (resource.get("Properties") or {}).get(setting)
    name = f"{stack}-{logical_id}" if given is None else str(resolver.resolve(given))
    name = name.lower() if kind == "AWS::S3::Bucket" else name
    is_queue = kind == "AWS::SQS::Queue"
    url = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{name}"
    resolver.values[logical_id] = url if is_queue else name
    full = arn.format(region=REGION, account=ACCOUNT, name=name)
    resolver.attributes[f"{logical_id}.Arn"] = f"arn:aws:{full}"
    if is_queue:
        resolver.attributes[f"{logical_id}.QueueName"] = name
