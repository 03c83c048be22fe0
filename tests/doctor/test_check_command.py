"""`check` on the command line: its forms, its exit codes, and the comparison with what runs."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from anarchon_ddb.cli.main import main
from anarchon_ddb.doctor import checkup
from anarchon_ddb.testing import SettableClock
from tests import moto_cloudformation as cloudformation
from tests import sam

FOLDER = Path(__file__).parents[1] / "data/templates"
NOW = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)
BROKEN = (
    "Resources:\n  F:\n    Type: AWS::Serverless::Function\n    Properties:\n      Events:\n"
    "        E: { Type: Schedule, Properties: { Schedule: cron(bogus) } }\n"
    "        P: { Type: ScheduleV2, Properties: { ScheduleExpression: rate(1 days) } }\n"
)


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "template.yaml").write_text(BROKEN)
    return tmp_path


def check(*arguments: str) -> int:
    return main(["check", *arguments], clock=SettableClock(NOW))


def test_a_finding_says_file_line_what_why_and_the_fix(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check() == 1
    out = capsys.readouterr().out
    assert "template.yaml:6: error E: 'cron(bogus)'" in out
    assert "    why: SAM's linter passes it" in out
    assert "    fix: Write an expression that AWS reads" in out
    assert out.splitlines()[-1] == "template.yaml: 1 error, 1 warning"
    assert "\x1b" not in out


def test_colour_is_for_terminals(
    broken: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    check()
    assert "\x1b[1;31merror" in capsys.readouterr().out


def test_the_next_slots_are_printed_in_the_zone_and_in_utc(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check(str(sam.ROOT / "template.yaml")) == 0
    out = capsys.readouterr().out
    assert "Mon 2026-11-30 02:00 Europe/Berlin" in out
    assert "2026-11-30T01:00:00Z" in out


def test_json_has_findings_and_schedules(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == found["warnings"] == 1
    first = found["findings"][0]
    assert first.keys() == {"file", "line", "rule", "level", "what", "why", "fix"}
    assert (first["file"], first["line"]) == ("template.yaml", 6)
    assert [len(one["next"]) for one in found["schedules"]] == [0, 3]


def test_sarif_is_what_code_scanning_takes(
    broken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("--format", "sarif", "--output", "check.sarif") == 1
    assert "1 error" in capsys.readouterr().out, "the terminal has the text all the same"
    found = json.loads((broken / "check.sarif").read_text())
    assert found["version"] == "2.1.0"
    (run,) = found["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert {rule["id"] for rule in rules} >= {rule.id for rule in checkup.RULES}
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning", "note"}
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "template.yaml"
        assert place["region"]["startLine"] in {6, 7}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["missing.yaml"], 2, "does not exist"),
        (["--parameter", "x"], 2, "write NAME=VALUE"),
        (["--deployed"], 2, "give --stack"),
        (["--format", "xml"], 2, "xml"),
        (["not.yaml"], 1, "Error: not.yaml: not YAML"),
    ],
)
def test_wrong_usage_and_what_is_no_template(
    broken: Path, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (broken / "not.yaml").write_text("a: [")
    assert check(*arguments) == code
    assert said in capsys.readouterr().err


def test_without_a_template_the_usage_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert check() == 2
    assert "there is no template.yaml here" in capsys.readouterr().err


def test_warnings_count_if_strict(broken: Path) -> None:
    (broken / "template.yaml").write_text(BROKEN.replace("cron(bogus)", "rate(1 day)"))
    assert check() == 0
    assert check("--strict") == 1


def test_what_is_nested_and_named_by_itself_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inner.yaml").write_text(BROKEN)
    Path("template.yaml").write_text(
        "Resources: { A: { Type: AWS::Serverless::Application, "
        "Properties: { Location: inner.yaml } } }"
    )
    assert check("template.yaml", "inner.yaml", "--json") == 1
    assert json.loads(capsys.readouterr().out)["errors"] == 1


def test_the_rules_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--rules", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == len(checkup.RULES) + 4


def test_a_template_of_100_jobs_takes_seconds(tmp_path: Path) -> None:
    base = (FOLDER / "base.yaml").read_text()
    start, end = base.index("  Hourly:\n"), base.index("  Resumer:\n")
    jobs = "".join(
        base[start:end]
        .replace("  Hourly:", f"  Hourly{n}:")
        .replace("jobs.hourly", f"j{n}.handler")
        for n in range(100)
    )
    path = tmp_path / "template.yaml"
    path.write_text(base[:end] + jobs + base[end:])
    started = time.process_time()
    report = checkup.check(path, now=NOW)
    assert len(report.schedules) == 103
    assert time.process_time() - started < 10


# --- what runs ------------------------------------------------------------------------------------


@pytest.fixture
def deployed(aws: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stack of the shipped template, on moto."""
    cloudformation.repair(monkeypatch)
    cloudformation.deploy("shop")
    return "shop"


def compared(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    arguments = ("--deployed", "--stack", "shop", "--region", "eu-west-1", "--json")
    check(str(sam.ROOT / "template.yaml"), *arguments)
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return found


def test_what_was_deployed_as_written_has_no_difference(
    deployed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(capsys) == []


def test_a_schedule_changed_by_hand_is_told(
    deployed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = boto3.client("scheduler", region_name="eu-west-1")
    kept = ("FlexibleTimeWindow", "Target", "Name", "GroupName")
    found = scheduler.get_schedule(GroupName="shop", Name="export")
    same = {key: found[key] for key in kept}
    scheduler.update_schedule(**same, ScheduleExpression="rate(1 hour)", State="DISABLED")
    scheduler.create_schedule(**{**same, "Name": "other"}, ScheduleExpression="rate(1 hour)")
    scheduler.delete_schedule(GroupName="shop", Name="rollup")

    told = compared(capsys)

    export = "schedule export: "
    assert [one["what"] for one in told] == [
        f"{export}ScheduleExpression is cron(0 2 * * ? *), deployed is rate(1 hour)",
        f"{export}ScheduleExpressionTimezone is Europe/Berlin, deployed is UTC",
        f"{export}State is ENABLED, deployed is DISABLED",
        "schedule rollup is not deployed",
        "schedule other of group shop",
    ]
    template = (sam.ROOT / "template.yaml").read_text().splitlines()
    assert "cron(0 2 * * ? *)" in template[told[0]["line"] - 1]


def test_a_function_changed_by_hand_is_told(
    deployed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = boto3.client("lambda", region_name="eu-west-1")
    variables = client.get_function_configuration(FunctionName="shop-export")["Environment"]
    changed = variables["Variables"] | {"ANARCHON_LEASE": "5s", "ANARCHON_CONTINUATION": "resumer"}
    client.update_function_configuration(
        FunctionName="shop-export", Timeout=60, Environment={"Variables": changed}
    )
    assert [one["what"] for one in compared(capsys)] == [
        "function shop-export: Timeout is 900, deployed is 60",
        "function shop-export: ANARCHON_CONTINUATION is self, deployed is resumer",
        "function shop-export: ANARCHON_LEASE is deployed as 5s, and not written",
    ]


def test_a_stack_that_is_not_there_is_told(aws: None, capsys: pytest.CaptureFixture[str]) -> None:
    told = {one["what"] for one in compared(capsys)}
    assert told == {
        *(f"schedule {name} is not deployed" for name in ("export", "rollup", "resumer")),
        *(f"function shop-{name} is not deployed" for name in ("export", "rollup", "resumer")),
    }


def test_a_table_of_other_keys_is_told(deployed: str, capsys: pytest.CaptureFixture[str]) -> None:
    boto3.client("dynamodb", region_name="eu-west-1").create_table(
        TableName="wrong",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client = boto3.client("lambda", region_name="eu-west-1")
    for name in ("export", "rollup", "resumer"):
        found = client.get_function_configuration(FunctionName=f"shop-{name}")["Environment"]
        client.update_function_configuration(
            FunctionName=f"shop-{name}",
            Environment={"Variables": found["Variables"] | {"ANARCHON_TABLE": "wrong"}},
        )
    assert "table wrong has keys ['id'], indexes []" in {one["what"] for one in compared(capsys)}


# --- hooks ----------------------------------------------------------------------------------------


def test_the_hook_and_the_action_call_what_there_is() -> None:
    (hook,) = yaml.safe_load((sam.ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "anarchon-ddb check"
    assert hook["additional_dependencies"] == ["click>=8.1.7", "pyyaml>=6", "rich>=13"]
    action = yaml.safe_load((sam.ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    commands = " ".join(step.get("run", "") for step in action["runs"]["steps"])
    assert "anarchon-ddb check" in commands
    for name in action["inputs"]:
        assert f"inputs.{name}" in json.dumps(action["runs"]), name
