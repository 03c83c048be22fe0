"""Least privilege: every call of each path is allowed, and every action that is granted is used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto.core.config import default_user_config

from anarchon_ddb import Run, StoreError, job, resumer, worker
from anarchon_ddb.testing import LambdaContext, SettableClock, rule_event, scheduler_event
from handlers import export
from tests import moto_cloudformation as cloudformation
from tests import permissions, sam
from tests.conftest import SLOT
from tests.permissions import Statement

STACK = "shop-prod"
EVENT = scheduler_event("export", SLOT)
RULE = f"{STACK}-ReportFunctionHourly-1A2B3C"
RULED = rule_event(RULE, SLOT)
SCHEDULED = scheduler_event(
    "windowed",
    "2026-11-29T01:00:00Z",
    schedule=f"arn:aws:scheduler:{permissions.ACCOUNT}:schedule/{STACK}/export",
)
PLANES = [f"{number:02}" for number in range(40)]


@job("windowed")
def windowed(run: Run) -> None:
    """Ask for what the export does not."""
    assert run.window


@dataclass
class Shop:
    """A deployed stack, with something to export, run on the test's clock."""

    table: str
    bucket: str
    job: list[Statement]
    resumer: list[Statement]
    clock: SettableClock

    def context(self, function: str = "export") -> LambdaContext:
        return LambdaContext("60s", clock=self.clock, function_name=f"{STACK}-{function}")

    def deliver(self) -> str:
        return str(export.handler(EVENT, self.context())["outcome"])

    def exported(self) -> list[str]:
        s3 = boto3.client("s3")
        found = s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        bodies = [s3.get_object(Bucket=self.bucket, Key=each["Key"])["Body"] for each in found]
        lines = [line for body in bodies for line in body.read().decode().splitlines()]
        return sorted(json.loads(line)["Item"]["id"]["S"] for line in lines)


@pytest.fixture
def shop(aws: None, monkeypatch: pytest.MonkeyPatch, clock: SettableClock) -> Shop:
    monkeypatch.setitem(default_user_config["lambda"], "use_docker", False)
    with monkeypatch.context() as repaired:
        cloudformation.repair(repaired)
        outputs = cloudformation.deploy(STACK)
    function = boto3.client("lambda").get_function(FunctionName=f"{STACK}-export")
    for setting, value in function["Configuration"]["Environment"]["Variables"].items():
        monkeypatch.setenv(setting, value)
    monkeypatch.setenv("PAGE_SIZE", "10")
    dynamodb = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName="planes",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    for plane in PLANES:
        dynamodb.put_item(TableName="planes", Item={"id": {"S": plane}})
    boto3.client("events").put_rule(Name=RULE, ScheduleExpression="cron(0 * * * ? *)")
    # Each page takes 15 s: an invocation of 60 s does two or three.
    name = export._name
    monkeypatch.setattr(export, "_name", lambda cursor: clock.advance(seconds=15) or name(cursor))
    export.aws.cache_clear()
    policies = cloudformation.policies(STACK)
    own = list(permissions.inline_statements("ExportFunction"))
    granted = [*policies["JobPolicy"]["Statement"], *own]
    return Shop(outputs["TableName"], outputs["ExportBucket"], granted,
                policies["ResumerPolicy"]["Statement"], clock)  # fmt: skip


def test_C54_the_job_may_do_what_it_does_and_does_what_it_may(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        needs = permissions.recorded(patch)
        assert shop.deliver() == "interrupted"
        assert shop.deliver() == "succeeded"
        assert shop.deliver() == "duplicate"
        assert windowed(SCHEDULED, shop.context())["outcome"] == "succeeded"
        assert windowed(RULED, shop.context())["outcome"] == "succeeded"
    prove(shop.job, needs)
    assert shop.exported() == PLANES


def test_C54_the_resumer_may_do_what_it_does_and_does_what_it_may(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert windowed(RULED, shop.context())["outcome"] == "succeeded"
    assert shop.deliver() == "interrupted"
    with monkeypatch.context() as patch:
        needs = permissions.recorded(patch)
        assert resumer.handler({}, shop.context("resumer"))["sent"] == 1
        shop.clock.advance(hours=30)  # slots that nobody delivered
        assert resumer.handler({}, shop.context("resumer"))["sent"] >= 1
    prove(shop.resumer, needs)


def prove(statements: list[Statement], needs: list[permissions.Need]) -> None:
    """Every call is allowed, and every granted action on every granted resource is used."""
    for need in needs:
        assert any(need.is_allowed_by(statement) for statement in statements), need
    for statement in statements:
        for action in permissions.actions(statement):
            one = {**statement, "Action": action}
            assert any(need.is_allowed_by(one) for need in needs), f"{action} is never used"


def test_C54_the_guide_lists_exactly_what_is_granted() -> None:
    guide = (sam.ROOT / "docs/deploy.md").read_text()
    section = guide.partition("## Permissions")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    listed = set(re.findall(r"`([a-z]+:[A-Z]\w+)`", "\n".join(table)))
    granted = set()
    for name in ("template.yaml", "infra/resumer.yaml"):
        for _, policy in sam.of_type(sam.source(name), "AWS::IAM::ManagedPolicy"):
            granted |= set(re.findall(r'"([a-z]+:[A-Z]\w+)"', json.dumps(policy)))
    assert listed == granted - {"kms:ViaService"}


def as_role(
    statements: list[Statement], monkeypatch: pytest.MonkeyPatch, do: Callable[[], Any]
) -> Any:
    """Do something with the credentials of a role that may do this much, and no more."""
    iam = boto3.client("iam")
    name = f"role-{len(iam.list_roles()['Roles'])}"
    trust = {"Version": "2012-10-17", "Statement": []}
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=document)
    session = boto3.client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="test")
    with monkeypatch.context() as patch:
        for setting, part in (
            ("AWS_ACCESS_KEY_ID", "AccessKeyId"),
            ("AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
            ("AWS_SESSION_TOKEN", "SessionToken"),
        ):
            patch.setenv(setting, session["Credentials"][part])
        permissions.enforce(patch)
        patch.setattr(worker, "_store", None)
        export.aws.cache_clear()
        boto3.setup_default_session()
        try:
            return do()
        finally:
            export.aws.cache_clear()
            boto3.DEFAULT_SESSION = None


def without(statements: list[Statement], action: str) -> list[Statement]:
    left = [{**s, "Action": [a for a in permissions.actions(s) if a != action]} for s in statements]
    return [statement for statement in left if statement["Action"]]


def test_the_export_runs_with_the_policy_of_its_function(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = as_role(shop.job, monkeypatch, lambda: [shop.deliver() for _ in range(3)])
    assert outcomes == ["interrupted", "succeeded", "duplicate"]
    assert shop.exported() == PLANES


@pytest.mark.parametrize(
    "action",
    ["dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:Scan", "lambda:InvokeFunction",
     "s3:PutObject"],
)  # fmt: skip
def test_C54_without_one_action_the_error_names_it_and_nothing_is_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert {a for s in shop.job for a in permissions.actions(s)} >= {action}
    told: list[str] = []

    def try_it() -> None:
        for _ in range(3):
            try:
                told.append(shop.deliver())
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
                return

    as_role(without(shop.job, action), monkeypatch, try_it)

    logged = capsys.readouterr().out
    # Of S3 the error names the operation only.
    assert action.removeprefix("s3:") in "\n".join(told) + logged
    if action == "dynamodb:UpdateItem":
        assert told[0].startswith("StoreError")
        assert "Grant dynamodb:UpdateItem on this table" in told[0]
        assert shop.exported() == [], "the handler began without a lease"
    shop.clock.advance(minutes=5)  # past a backoff
    outcomes = as_role(shop.job, monkeypatch, lambda: [shop.deliver() for _ in range(3)])
    assert outcomes[-1] in {"succeeded", "duplicate"}
    assert shop.exported() == PLANES


@pytest.mark.parametrize(
    ("action", "event"),
    [("scheduler:GetSchedule", SCHEDULED), ("events:DescribeRule", RULED)],
)
def test_C54_without_the_registry_the_error_names_it_and_the_run_is_kept(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, action: str, event: dict[str, Any]
) -> None:
    def deliver() -> str:
        return str(windowed(event, shop.context())["outcome"])

    with pytest.raises(StoreError, match=action):
        as_role(without(shop.job, action), monkeypatch, deliver)
    shop.clock.advance(minutes=5)
    assert as_role(shop.job, monkeypatch, deliver) == "succeeded"
