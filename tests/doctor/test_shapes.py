"""Shapes of templates as people have them: nothing false is said; what is not known is named."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from anarchon_ddb.doctor import checkup, reading
from anarchon_ddb.template.source import TemplateError, parse
from tests import sam

FOLDER = Path(__file__).parents[1] / "data/templates/shapes"
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SHAPES = sorted(FOLDER.iterdir())


def check(path: Path, **parameters: str) -> checkup.Report:
    return checkup.check(path, now=NOW, parameters=parameters)


def check_text(text: str) -> checkup.Report:
    model = reading.model_of(parse(text, FOLDER / "template.yaml"))
    model.now = NOW
    return checkup.examine(model)


@pytest.mark.parametrize("path", SHAPES, ids=[path.stem for path in SHAPES])
def test_a_real_shape_passes_or_names_what_is_not_known(path: Path) -> None:
    expected = {
        (number, name)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for name in line.partition("#!")[2].split()
    }
    found = check(path).findings
    assert {(one.line, one.rule) for one in found} == expected, found
    assert all("could not be resolved: " in one.what for one in found)


def test_there_are_enough_shapes() -> None:
    assert len(SHAPES) >= 8


@pytest.mark.parametrize("name", ["template.yaml", *sorted(sam.NESTED)])
def test_the_shipped_templates_raise_no_alarm(name: str) -> None:
    report = check(sam.ROOT / name)
    assert [one for one in report.findings if one.level != "note"] == []
    if name == "template.yaml":
        assert report.findings == (), "every value is resolved, over all nestings"


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        ({"ExistingTableName": "old", "KmsKeyArn": "arn:aws:kms:eu-west-1:1:key/a"}, None),
        ({"Tracing": "Active", "LogLevel": "DEBUG", "DeletionProtection": "false"}, None),
        ({"PythonRuntime": "python3.10"}, "runtime"),
    ],
)
def test_given_parameters_reach_the_nested_templates(
    parameters: dict[str, str], rule: str | None
) -> None:
    found = checkup.check(sam.ROOT / "template.yaml", now=NOW, parameters=parameters).findings
    assert {one.rule for one in found} == ({rule} if rule else set())
    if rule:
        assert {one.path.name for one in found} == {"template.yaml", "resumer.yaml"}


def test_a_mistake_in_a_nested_template_is_told_at_its_own_line(tmp_path: Path) -> None:
    shutil.copytree(sam.ROOT / "infra", tmp_path / "infra")
    shutil.copy(sam.ROOT / "template.yaml", tmp_path)
    nested = tmp_path / "infra/table.yaml"
    text = nested.read_text().replace("AttributeName: expires_at", "AttributeName: ttl")
    nested.write_text(text)
    (line,) = (n for n, one in enumerate(text.splitlines(), 1) if "AttributeName: ttl" in one)
    found = [one for one in check(tmp_path / "template.yaml").findings if one.rule == "table-ttl"]
    assert [(one.path, one.line) for one in found] == [(nested, line)]


def schedule(properties: str, kind: str = "Schedule", parameters: str = "{}") -> checkup.Report:
    return check_text(
        f"Transform: AWS::Serverless-2016-10-31\nParameters: {parameters}\n"
        "Conditions: { IsProd: !Equals [!Ref AWS::Region, eu-west-1] }\n"
        "Resources: { F: { Type: AWS::Serverless::Function, Properties: { Events: { E: "
        f"{{ Type: {kind}, Properties: {properties} }} }} }} }} }}\n"
    )


@pytest.mark.parametrize(
    ("given", "state", "rule"),
    [
        ("Enabled: false", "disabled", None),
        ('Enabled: "false"', "unknown", "enabled-text"),
        ("Enabled: { Ref: ScheduleEnabled }", "unknown", "enabled-text"),
        ("Enabled: !If [IsProd, true, false]", "unknown", "enabled-function"),
        ("State: DISABLED", "disabled", None),
        ("State: !Ref RuleState", "disabled", None),
        ("State: !If [IsProd, ENABLED, DISABLED]", "unknown", "unresolved"),
    ],
)
def test_C45_enabled_disabled_or_unknown_never_by_truth(
    given: str, state: str, rule: str | None
) -> None:
    parameters = (
        '{ ScheduleEnabled: { Type: String, Default: "false" }, '
        "RuleState: { Type: String, Default: DISABLED } }"
    )
    report = schedule(f"{{ Schedule: rate(1 day), {given} }}", parameters=parameters)
    assert report.schedules[0].state == state
    assert (rule in {one.rule for one in report.findings}) is (rule is not None)
    assert len(report.findings) == (0 if rule is None else 2 if rule == "enabled-function" else 1)


@pytest.mark.parametrize(
    ("kind", "expression", "rule"),
    [
        ("Schedule", "rate(1 minute)", None),
        ("Schedule", "rate(2 minutes)", None),
        ("Schedule", "rate(1 minutes)", "schedule-expression"),
        ("Schedule", "rate(3 minute)", "schedule-expression"),
        ("Schedule", "rate(0 minutes)", "schedule-expression"),
        ("Schedule", "rate(330 seconds)", "schedule-expression"),
        ("Schedule", "rate(1.5 hours)", "schedule-expression"),
        ("ScheduleV2", "rate(1 minutes)", "schedule-plural"),
        ("ScheduleV2", "rate(1 hour)", None),
        ("ScheduleV2", "rate(1 days)", "schedule-plural"),
        ("ScheduleV2", "rate(0 minutes)", "schedule-expression"),
    ],
)
def test_C01_the_plural_is_judged_by_the_kind_of_event(
    kind: str, expression: str, rule: str | None
) -> None:
    key = "Schedule" if kind == "Schedule" else "ScheduleExpression"
    report = schedule(f"{{ {key}: {expression} }}", kind)
    assert [one.rule for one in report.findings] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("cron(55 7-23 * * * *)", "?"),
        ("cron(* 1 * * * *)", "?"),
        ("cron(* * * * *)", "6 fields"),
        ("cron(* ? * * * *)", "hours"),
        ("cron(*/60 * * * ? *)", "minutes"),
        ("cron(0 12 * * 1 *)", "?"),
        ("cron(55 7-23 * * ? *)", None),
        ("cron(* 1 * * ? *)", None),
        ("cron(0/15 * * * ? *)", None),
        ("cron(0 18 ? * MON-FRI *)", None),
    ],
)
def test_C02_what_a_deploy_would_fail_on_is_found_offline(
    expression: str, said: str | None
) -> None:
    found = schedule(f'{{ Schedule: "{expression}" }}').findings
    assert [one.rule for one in found] == ([] if said is None else ["schedule-expression"])
    assert said is None or said in found[0].what


def test_C09_the_next_slots_are_told_in_the_zone_and_in_utc() -> None:
    report = schedule(
        "{ ScheduleExpression: 'cron(0 0 * * ? *)', ScheduleExpressionTimezone: Asia/Tokyo }",
        "ScheduleV2",
    )
    local, utc = report.schedules[0].slots[0]
    assert utc.isoformat() == "2026-01-01T15:00:00+00:00"
    assert local.isoformat() == "2026-01-02T00:00:00+09:00"
    assert len(report.schedules[0].slots) == 3


def test_C09_a_zone_on_a_rule_is_told() -> None:
    report = schedule("{ Schedule: rate(1 day), Timezone: Asia/Tokyo }")
    assert [one.rule for one in report.findings] == ["zone-on-rule"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no mapping named Resources"),
        ("- a", "no mapping named Resources"),
        ("Resources: [", "not YAML"),
        ("Resources: &a { b: *a }", "not YAML"),
        ("Resources: { ? [a] : b }", "a key must be a text"),
        ("Resources: { a: 2026-99-99 }", "can't read"),
        ("Resources:\n" + "\n".join(f"{'  ' * n}a:" for n in range(1, 3000)), "too deep"),
        ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
            f"{b}: &{b} [{','.join(['*' + a] * 9)}]" for a, b in pairwise("abcdefgh")
        ) + "\nResources: { h: *h }", "nodes"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)  # fmt: skip
def test_what_is_no_template_is_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(TemplateError, match=said):
        parse(text, Path("template.yaml"))


def test_a_condition_or_a_value_that_refers_to_itself_is_unresolved() -> None:
    report = check_text(
        "Conditions: { A: !Not [!Condition A] }\n"
        "Resources: { F: { Type: AWS::Serverless::Function, "
        "Properties: { Timeout: !If [A, 1, 2] } } }"
    )
    assert [one.rule for one in report.findings] == ["unresolved"]


def test_a_template_that_nests_itself_ends(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text(
        "Resources: { A: { Type: AWS::Serverless::Application, "
        "Properties: { Location: template.yaml } } }"
    )
    assert {one.rule for one in check(path).findings} == {"nested-template"}
