"""What the templates say, as CloudFormation gets it: translated, linted, property by property."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cfnlint.api import ManualArgs, lint
from samtranslator.yaml_helper import yaml_parse

from anarchon_ddb import schedule
from tests import sam

FUNCTION = "AWS::Lambda::Function"
SCHEDULE = "AWS::Scheduler::Schedule"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/11111111-2222-3333-4444-555555555555"


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


def faults(translated: dict[str, Any]) -> list[str]:
    """Return what cfn-lint has to say of a translated template."""
    # W2001: a parameter that only the translation reads is gone from what it made.
    config = ManualArgs(regions=["eu-west-1"], ignore_checks=["W2001"])
    return [str(match) for match in lint(json.dumps(translated, indent=1), config=config)]


def everything() -> dict[str, dict[str, Any]]:
    """Return the resources of all templates, translated, by logical id."""
    return {
        logical_id: resource
        for name in sam.TEMPLATES
        for logical_id, resource in sam.translate(sam.source(name))["Resources"].items()
    }


def properties(kind: str) -> dict[str, dict[str, Any]]:
    return {
        logical_id: resource["Properties"]
        for logical_id, resource in everything().items()
        if resource["Type"] == kind
    }


@pytest.mark.parametrize("name", sam.TEMPLATES)
@pytest.mark.parametrize(
    "parameters",
    [{}, {"Tracing": "Active", "ExistingTableName": "old", "KmsKeyArn": KEY}],
    ids=["defaults", "others"],
)
def test_a_translated_template_has_no_fault(name: str, parameters: dict[str, str]) -> None:
    source = sam.source(name)
    given = {key: value for key, value in parameters.items() if key in source["Parameters"]}
    assert faults(sam.translate(source, given)) == []


def test_a_circular_dependency_that_sam_validate_does_not_see_is_found() -> None:
    source = sam.source(sam.PARENT)
    statement = {
        "Effect": "Allow",
        "Action": "lambda:InvokeFunction",
        "Resource": {"Fn::GetAtt": ["ExportFunction", "Arn"]},
    }
    source["Resources"]["JobPolicy"]["Properties"]["PolicyDocument"]["Statement"] = [statement]
    assert any("Circular" in fault for fault in faults(sam.translate(source)))


def test_each_function_writes_to_the_one_log_group_and_is_named_after_the_stack() -> None:
    for logical_id, function in properties(FUNCTION).items():
        name = function["FunctionName"]["Fn::Sub"]
        assert re.fullmatch(r"\$\{(AWS::StackName|Stack)\}-[a-z-]+", name), logical_id
        assert function["LoggingConfig"].keys() == {"LogGroup"}, "a format or a level filters EMF"
        assert "POWERTOOLS_LOG_LEVEL" in function["Environment"]["Variables"]
        assert "ReservedConcurrentExecutions" not in function
    assert len(properties("AWS::Logs::LogGroup")) == 1


def test_lambda_tries_nothing_again_and_keeps_no_slot_longer_than_its_period() -> None:
    configs = properties("AWS::Lambda::EventInvokeConfig")
    assert set(properties(FUNCTION)) == {c["FunctionName"]["Ref"] for c in configs.values()}
    for config in configs.values():
        assert config["MaximumRetryAttempts"] == 0
        assert not config["DestinationConfig"], "a retried error is no undelivered slot"
    ages = {c["FunctionName"]["Ref"]: c["MaximumEventAgeInSeconds"] for c in configs.values()}
    for planned in properties(SCHEDULE).values():
        period_s = shortest_period(planned).total_seconds()
        target = planned["Target"]
        assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] <= period_s
        assert ages[target["Arn"]["Fn::GetAtt"][0]] <= period_s


def shortest_period(planned: dict[str, Any]) -> timedelta:
    """Return the shortest time between two slots of a schedule, over two weeks."""
    zone = planned.get("ScheduleExpressionTimezone", "UTC")
    start = datetime(2026, 11, 22, tzinfo=UTC)
    parsed = schedule.parse(planned["ScheduleExpression"], timezone=zone)
    slots = list(parsed.between(start, start + timedelta(days=14)))
    return min(later - earlier for earlier, later in itertools.pairwise(slots))


def test_each_schedule_is_in_the_stacks_own_group_and_names_its_job() -> None:
    for logical_id, planned in properties(SCHEDULE).items():
        group = "ScheduleGroup" if logical_id.startswith("Resumer") else "Schedules"
        assert planned["GroupName"] == {"Ref": group}
        assert "DeadLetterConfig" in planned["Target"]
        if logical_id.startswith("Resumer"):
            continue
        given = json.loads(planned["Target"]["Input"])
        assert given["slot"] == "<aws.scheduler.scheduled-time>"
        assert given["schedule"] == "<aws.scheduler.schedule-arn>"
        assert given["job"] == planned["Name"]


def test_a_function_may_invoke_itself_if_and_only_if_it_continues_so() -> None:
    for function in properties(FUNCTION).values():
        continues = function["Environment"]["Variables"].get("ANARCHON_CONTINUATION") == "self"
        assert (function.get("RecursiveLoop") == "Allow") is continues


def test_the_table_outlives_its_stack_and_can_be_restored() -> None:
    (table,) = (r for r in everything().values() if r["Type"] == "AWS::DynamoDB::Table")
    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    given = table["Properties"]
    assert given["BillingMode"] == "PAY_PER_REQUEST"
    assert given["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert given["DeletionProtectionEnabled"] == {"Ref": "DeletionProtection"}
    key = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": {"Ref": "KmsKeyArn"}}
    assert given["SSESpecification"]["Fn::If"][:2] == ["HasKey", key]


def test_tracing_is_a_choice() -> None:
    off = sam.translate(sam.source(sam.PARENT))["Resources"]
    on = sam.translate(sam.source(sam.PARENT), {"Tracing": "Active"})["Resources"]
    assert "TracingConfig" not in off["ExportFunction"]["Properties"]
    assert on["ExportFunction"]["Properties"]["TracingConfig"] == {"Mode": {"Ref": "Tracing"}}


def test_every_parameter_has_a_default_and_the_nested_templates_get_theirs() -> None:
    parent = sam.source(sam.PARENT)
    assert all("Default" in declared for declared in parent["Parameters"].values())
    for logical_id, nested in sam.of_type(parent, "AWS::Serverless::Application"):
        declared = sam.source(nested["Location"])["Parameters"]
        needed = {name for name, value in declared.items() if "Default" not in value}
        assert needed <= set(nested["Parameters"]) <= set(declared), logical_id


def test_deploying_needs_nothing_beside_the_settings_in_samconfig() -> None:
    config = tomllib.loads((sam.ROOT / "samconfig.toml").read_text())
    names = [
        config[env]["global"]["parameters"]["stack_name"] for env in config if env != "version"
    ]
    for env in ("default", "dev"):
        assert config[env]["build"]["parameters"]["build_in_source"] is True
        deploy = config[env]["deploy"]["parameters"]
        assert deploy["resolve_s3"] is True
        # No role or policy is named, so CAPABILITY_NAMED_IAM is not asked for.
        assert deploy["capabilities"] == "CAPABILITY_IAM CAPABILITY_AUTO_EXPAND"
    # function:prod-* would let the jobs of `prod` invoke those of `prod-2`.
    assert not [(a, b) for a in names for b in names if b.startswith(f"{a}-")]


def test_only_cloudformation_names_what_is_kept() -> None:
    for logical_id, resource in everything().items():
        if resource.get("DeletionPolicy") == "Retain":
            named = {"TableName", "BucketName"} & set(resource.get("Properties", {}))
            assert not named, f"{logical_id}: a second deploy would fail on the name of the first"


@pytest.mark.parametrize(
    "state",
    [None, "DISABLED", {"Ref": "Off"}, {"Fn::If": ["HasKey", "ENABLED", "DISABLED"]}],
)
def test_C45_a_schedule_disabled_in_the_template_is_disabled_in_reality(state: object) -> None:
    """A schedule has ``State``, which SAM passes on as it is, never by its truth."""
    source = sam.source(sam.PARENT)
    source["Parameters"]["Off"] = {"Type": "String", "Default": "DISABLED"}
    nightly = source["Resources"]["ExportFunction"]["Properties"]["Events"]["Nightly"]
    assert "Enabled" not in nightly["Properties"]
    if state is not None:
        nightly["Properties"]["State"] = state
    planned = sam.translate(source)["Resources"]["ExportFunctionNightly"]["Properties"]
    assert planned.get("State") == state


def new_job() -> str:
    """Return the YAML that the guide says to copy for a new job."""
    guide = (sam.ROOT / "docs/deploy.md").read_text()
    return re.findall(r"```yaml\n(  ReportFunction:\n.*?)```", guide, re.DOTALL)[0]


def test_a_new_job_is_at_most_20_lines_and_a_handler() -> None:
    lines = new_job().splitlines()
    assert len(lines) <= 20
    source = sam.source(sam.PARENT)
    source["Resources"] |= yaml_parse(new_job())
    translated = sam.translate(source)
    assert faults(translated) == []
    made = set(translated["Resources"]) - set(sam.translate(sam.source(sam.PARENT))["Resources"])
    assert made == {
        "ReportFunction",
        "ReportFunctionRole",
        "ReportFunctionEventInvokeConfig",
        "ReportFunctionSchedule",
        "ReportFunctionScheduleRole",
    }


def test_a_schedule_fires_the_alias_if_there_is_one() -> None:
    source = sam.source(sam.PARENT)
    source["Resources"]["ExportFunction"]["Properties"] |= {
        "AutoPublishAlias": "live",
        "SnapStart": {"ApplyOn": "PublishedVersions"},
    }
    translated = sam.translate(source)
    assert faults(translated) == []
    made = translated["Resources"]
    alias = {"Ref": "ExportFunctionAliaslive"}
    assert made["ExportFunctionNightly"]["Properties"]["Target"]["Arn"] == alias
    assert made["ExportFunctionEventInvokeConfig"]["Properties"]["Qualifier"] == "live"


def test_the_runtimes_names_are_those_of_the_build() -> None:
    makefile = (sam.ROOT / "infra/build.mk").read_text()
    parameters = sam.source(sam.PARENT)["Parameters"]
    version = re.search(r"LAMBDA_PYTHON \?= (\S+)", makefile)
    assert version
    assert parameters["PythonRuntime"]["Default"] == f"python{version[1]}"
    assert parameters["Architecture"]["Default"] == "arm64"
    assert "LAMBDA_PLATFORM ?= manylinux2014_aarch64" in makefile
