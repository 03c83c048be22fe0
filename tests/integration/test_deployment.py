"""The stack, translated and deployed to an embedded CloudFormation: what is there afterwards."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from anarchon_ddb.store import Store
from tests import moto_cloudformation as cloudformation


@pytest.fixture
def account(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty account."""
    cloudformation.repair(monkeypatch)


def functions(stack: str) -> dict[str, dict[str, Any]]:
    """Return the environment of each function of a stack, by what follows its name."""
    found = boto3.client("lambda").list_functions()["Functions"]
    return {
        function["FunctionName"].removeprefix(f"{stack}-"): function["Environment"]["Variables"]
        for function in found
        if function["FunctionName"].startswith(f"{stack}-")
    }


def test_two_stacks_stand_side_by_side(account: None) -> None:
    names = ("shop-prod", "shop-dev")
    outputs = {name: cloudformation.deploy(name) for name in names}

    assert len({output["TableName"] for output in outputs.values()}) == 2
    scheduler = boto3.client("scheduler")
    for name in names:
        assert set(functions(name)) == {"export", "resumer", "rollup"}
        for environment in functions(name).values():
            assert environment["ANARCHON_TABLE"] == outputs[name]["TableName"]
            assert environment["ANARCHON_STACK"] == environment["ANARCHON_SCHEDULE_GROUP"] == name
        found = scheduler.list_schedules(GroupName=name)["Schedules"]
        assert {schedule["Name"] for schedule in found} == {"export", "resumer", "rollup"}
        for schedule in found:
            arn = schedule["Target"]["Arn"]
            assert arn.endswith(f":function:{name}-{schedule['Name']}")
    alarms = boto3.client("cloudwatch").describe_alarms()["MetricAlarms"]
    assert len(alarms) == 2 * len({alarm["MetricName"] for alarm in alarms})
    dashboards = boto3.client("cloudwatch").list_dashboards()["DashboardEntries"]
    assert {entry["DashboardName"] for entry in dashboards} == set(names)
    assert len(boto3.client("sqs").list_queues()["QueueUrls"]) == 2
    groups = boto3.client("logs").describe_log_groups()["logGroups"]
    assert {(group["logGroupName"], group["retentionInDays"]) for group in groups} == {
        (f"/aws/lambda/{name}", 30) for name in names
    }


def test_the_deployed_table_is_the_one_that_the_store_makes(account: None) -> None:
    table = cloudformation.deploy("shop-prod")["TableName"]
    Store("made").create_table()
    client = boto3.client("dynamodb")
    deployed, made = (client.describe_table(TableName=name)["Table"] for name in (table, "made"))
    for part in ("KeySchema", "AttributeDefinitions", "BillingModeSummary"):
        assert deployed[part] == made[part]
    for index, own in zip(
        deployed["GlobalSecondaryIndexes"], made["GlobalSecondaryIndexes"], strict=True
    ):
        for part in ("IndexName", "KeySchema", "Projection"):
            assert index[part] == own[part]
    # From a template moto keeps the text of a boolean, as CloudFormation passes it on.
    assert deployed["DeletionProtectionEnabled"] in {True, "true"}


def test_a_stack_goes_on_with_the_table_that_a_former_one_left(account: None) -> None:
    left = cloudformation.deploy("shop-prod")["TableName"]
    boto3.client("cloudformation").delete_stack(StackName="shop-prod")

    outputs = cloudformation.deploy("shop-again", ExistingTableName=left)

    assert outputs["TableName"] == left
    for environment in functions("shop-again").values():
        assert environment["ANARCHON_TABLE"] == left
    for document in cloudformation.policies("shop-again").values():
        resources = json.dumps(document)
        assert f":table/{left}" in resources


def test_with_a_key_the_policies_let_dynamodb_use_it(account: None) -> None:
    key = "arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555"
    cloudformation.deploy("shop-prod", KmsKeyArn=key)
    for document in cloudformation.policies("shop-prod").values():
        (statement,) = (s for s in document["Statement"] if s["Action"] == "kms:Decrypt")
        assert statement["Resource"] == key
        assert statement["Condition"] == {
            "StringEquals": {"kms:ViaService": "dynamodb.eu-west-1.amazonaws.com"}
        }


def test_an_alarm_tells_the_topic_it_was_given(account: None) -> None:
    topic = "arn:aws:sns:eu-west-1:123456789012:on-call"
    cloudformation.deploy("shop-prod", AlarmTopicArn=topic, OldestOpenRunSeconds="60")
    alarms = boto3.client("cloudwatch").describe_alarms()["MetricAlarms"]
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [topic] for alarm in alarms)
    (oldest,) = (a for a in alarms if a["MetricName"] == "OldestOpenRunAge")
    assert oldest["Threshold"] == 60
