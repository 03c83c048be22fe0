"""What moto's CloudFormation lacks to play this stack: a few repairs, undone after the test."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from moto.cloudformation import models, parsing
from moto.core.common_models import CloudFormationModel

from tests import sam

REGION = "eu-west-1"


class _ByApi(CloudFormationModel):
    """A resource whose API moto plays, and its CloudFormation does not."""

    def __init__(self, name: str, arn: str) -> None:
        self.physical_resource_id = name
        self.arn = arn

    @staticmethod
    def cloudformation_name_type() -> str:
        return "Name"

    def get_cfn_attribute(self, name: str) -> str:
        assert name == "Arn"
        return self.arn

    @classmethod
    def create_from_cloudformation_json(
        cls, name: str, document: dict[str, Any], account: str, region: str, **_: Any
    ) -> _ByApi:
        # Through the client, whose model refuses properties that the service does not have.
        return cls(name, cls.create(name, document["Properties"]))

    @staticmethod
    def create(name: str, properties: dict[str, Any]) -> str:
        raise NotImplementedError

    def delete(self, *_: Any) -> None:
        """Keep it: no test looks."""


class _Group(_ByApi):
    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Scheduler::ScheduleGroup"

    @staticmethod
    def create(name: str, properties: dict[str, Any]) -> str:
        client = boto3.client("scheduler", region_name=REGION)
        return str(client.create_schedule_group(Name=name)["ScheduleGroupArn"])


class _Schedule(_ByApi):
    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Scheduler::Schedule"

    @staticmethod
    def create(name: str, properties: dict[str, Any]) -> str:
        client = boto3.client("scheduler", region_name=REGION)
        return str(client.create_schedule(**{**properties, "Name": name})["ScheduleArn"])


class _EventInvokeConfig(_ByApi):
    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Lambda::EventInvokeConfig"

    @staticmethod
    def create(name: str, properties: dict[str, Any]) -> str:
        client = boto3.client("lambda", region_name=REGION)
        return str(client.put_function_event_invoke_config(**properties)["FunctionArn"])


class _Alarm(_ByApi):
    @staticmethod
    def cloudformation_name_type() -> str:
        return "AlarmName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::CloudWatch::Alarm"

    @staticmethod
    def create(name: str, properties: dict[str, Any]) -> str:
        client = boto3.client("cloudwatch", region_name=REGION)
        client.put_metric_alarm(**{**properties, "Threshold": float(properties["Threshold"])})
        return f"arn:aws:cloudwatch:{REGION}:123456789012:alarm:{name}"


_TYPES = (_Group, _Schedule, _EventInvokeConfig, _Alarm)


def repair(patch: pytest.MonkeyPatch) -> None:
    """Make moto play nested stacks' outputs, ``AWS::NoValue`` in lists, and four types."""
    clean, types = parsing.clean_json, {**parsing.get_model_map()}
    types |= {kind.cloudformation_type(): kind for kind in _TYPES}

    def without_no_value(document: Any, resources: Any) -> Any:
        cleaned = clean(document, resources)
        if isinstance(cleaned, list):
            return [value for value in cleaned if value is not None]
        return cleaned

    def attribute(stack: models.Stack, name: str) -> Any:
        return stack.output_map[name.removeprefix("Outputs.")].value

    patch.setattr(parsing, "clean_json", without_no_value)
    patch.setattr(models.Stack, "get_cfn_attribute", attribute, raising=False)
    patch.setattr(parsing, "get_model_map", lambda: types)
    patch.setattr(parsing, "get_model_list", lambda: list(types.values()))


def deploy(name: str, artifact: bytes = b"", **parameters: str) -> dict[str, str]:
    """Create the stack and its nested ones, as ``sam deploy`` does; return its outputs."""
    s3 = boto3.client("s3", region_name="us-east-1")  # where a bucket may be created twice
    for bucket in ("code", "templates"):
        s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket="code", Key="artifact.zip", Body=artifact or _EMPTY_ZIP)
    for nested in sam.NESTED:
        body = json.dumps(sam.translate(sam.source(nested)))
        s3.put_object(Bucket="templates", Key=nested.replace("/", "-"), Body=body)
    cloudformation = boto3.client("cloudformation", region_name=REGION)
    cloudformation.create_stack(
        StackName=name,
        TemplateBody=json.dumps(sam.translate(sam.source(sam.PARENT), parameters)),
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


_EMPTY_ZIP = b"PK\x05\x06" + bytes(18)


def policies(stack: str) -> dict[str, dict[str, Any]]:
    """Return the managed policies that a stack made, resolved, by their logical id."""
    iam = boto3.client("iam", region_name=REGION)
    found = {}
    for policy in iam.list_policies(Scope="Local")["Policies"]:
        arn, name = policy["Arn"], policy["PolicyName"]
        if name.startswith(f"{stack}-"):
            version = iam.get_policy_version(PolicyArn=arn, VersionId="v1")["PolicyVersion"]
            logical_id = "ResumerPolicy" if "ResumerPolicy" in name else "JobPolicy"
            found[logical_id] = version["Document"]
    return found
