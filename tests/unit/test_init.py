"""`init`: what it plans for a folder, and that it never writes over what is there."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anarchon_ddb.adopt import sections, shipped, stanza
from anarchon_ddb.adopt.plan import carry_out, plan
from anarchon_ddb.cli.main import main
from anarchon_ddb.doctor import checkup
from anarchon_ddb.errors import AnarchonError
from anarchon_ddb.template.source import read
from tests import sam

NOW = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)
JOB = stanza.new_job("report", "cron(30 6 ? * MON-FRI *)", "Europe/Berlin", NOW)
EXISTING = """\
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
# Our shop. Do not reformat!
Parameters:
  Stage: {Type: String, Default: prod}

Resources:
    # indented by four, as some do
  Nightly:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: src
      Handler: app.handler
      Runtime: python3.12
      Events:
        Cron:
          Type: Schedule
          Properties: { Schedule: "cron(0 2 * * ? *)" }

Outputs:
  Name: { Value: !Ref Nightly }
"""


def existing(tmp_path: Path, template: str = EXISTING) -> Path:
    (tmp_path / "template.yaml").write_text(template)
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src/app.py").write_text("def handler(event, context):\n    return None\n")
    return tmp_path


def check(folder: Path) -> list[tuple[int, str, str]]:
    report = checkup.check(folder / "template.yaml", now=NOW)
    return [(one.line, one.rule, one.what) for one in report.findings]


def test_an_empty_folder_becomes_a_project_that_the_doctor_finds_sound(tmp_path: Path) -> None:
    carry_out(plan(tmp_path / "new", JOB), apply=False)
    assert check(tmp_path / "new") == []
    config = (tmp_path / "new/samconfig.toml").read_text()
    assert 'stack_name = "new-prod"' in config


@pytest.mark.parametrize(
    "expression",
    ["rate(1 minute)", "rate(1 hour)", "cron(0/15 8-18 ? * MON-FRI *)", "rate(9 days)"],
)
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "existing"])
def test_a_job_of_any_period_is_sound(tmp_path: Path, expression: str, is_new: bool) -> None:
    folder = tmp_path if is_new else existing(tmp_path)
    job = stanza.new_job("nightly-sync.v2", expression, "Asia/Tokyo", NOW)
    carry_out(plan(folder, job), apply=True)
    assert check(folder) == []


def test_a_second_run_finds_nothing_left_to_do(tmp_path: Path) -> None:
    carry_out(plan(tmp_path, JOB), apply=False)
    again = plan(tmp_path, JOB)
    assert again.files == {}
    assert again.additions == {}
    assert again.lines == {}
    assert again.differs == []
    assert again.notes == ["template.yaml has ReportFunction already: it is left as it is"]


def test_a_second_job_is_added_to_the_template_that_init_made(tmp_path: Path) -> None:
    carry_out(plan(tmp_path, JOB), apply=False)
    second = stanza.new_job("sync", "rate(1 hour)", "UTC", NOW)
    made = plan(tmp_path, second)
    assert list(made.additions) == ["Resources"]
    assert list(made.additions["Resources"]) == ["SyncFunction"]
    assert "ANARCHON_TABLE" not in made.additions["Resources"]["SyncFunction"], "Globals have it"
    carry_out(made, apply=True)
    assert check(tmp_path) == []


def test_a_template_that_is_there_is_left_alone(tmp_path: Path) -> None:
    made = plan(existing(tmp_path), JOB)
    carry_out(made, apply=False)
    assert (tmp_path / "template.yaml").read_text() == EXISTING
    assert next(iter(made.additions["Resources"])) == "ReportFunction"
    assert "ANARCHON_TABLE" in made.additions["Resources"]["ReportFunction"]
    assert "Globals" not in made.additions, "they would change the functions that are there"


def test_applied_lines_are_the_only_change(tmp_path: Path) -> None:
    made = plan(existing(tmp_path), JOB)
    carry_out(made, apply=True)
    after = (tmp_path / "template.yaml").read_text().splitlines()
    rest = iter(after)
    assert all(line in rest for line in EXISTING.splitlines()), "a line is gone or moved"
    told = [line for section in made.additions.values() for text in section.values()
            for line in text.splitlines()]  # fmt: skip
    assert set(after) - set(EXISTING.splitlines()) <= {*told, "Conditions:", ""}
    assert check(tmp_path) == []


def test_a_template_that_can_not_be_added_to_as_text_is_refused_whole(tmp_path: Path) -> None:
    template = json.dumps({"Resources": {"A": {"Type": "AWS::SQS::Queue"}}})
    made = plan(existing(tmp_path, template), JOB)
    with pytest.raises(AnarchonError, match="add the lines by hand"):
        carry_out(made, apply=True)
    assert (tmp_path / "template.yaml").read_text() == template
    assert not (tmp_path / "infra").exists(), "nothing is done by halves"


def test_a_name_that_means_something_else_there_is_refused(tmp_path: Path) -> None:
    template = EXISTING.replace("  Nightly:\n", "  Logs: { Type: AWS::S3::Bucket }\n  Nightly:\n")
    with pytest.raises(AnarchonError, match=r"line 9: Logs is AWS::S3::Bucket, .* rename yours"):
        plan(existing(tmp_path, template), JOB)


def test_files_that_differ_are_told_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "infra").mkdir()
    (tmp_path / "infra/table.yaml").write_text("mine")
    (tmp_path / "Makefile").write_text("all:\n")
    (tmp_path / "samconfig.toml").write_text("version = 0.1\n")
    made = plan(tmp_path, None)
    carry_out(made, apply=True)
    assert made.differs == ["infra/table.yaml"]
    assert (tmp_path / "infra/table.yaml").read_text() == "mine"
    assert made.lines["Makefile"] == "include infra/build.mk"
    assert "CAPABILITY_AUTO_EXPAND" in made.lines["samconfig.toml"]


def test_the_stanza_is_the_one_of_the_guide() -> None:
    guide = (sam.ROOT / "docs/deploy.md").read_text()
    (shown,) = re.findall(r"```yaml\n(  ReportFunction:\n.*?)\n```", guide, re.DOTALL)
    without_option = re.sub(r"      Environment: .*\n", "", shown)
    assert stanza.stanza(JOB, is_alone=False) == without_option


def test_a_job_that_says_all_itself_says_what_globals_say() -> None:
    shared = sections.shared(shipped.read("template.yaml"))
    text = stanza.stanza(JOB, is_alone=True)
    for line in shared.sections["Globals"]["Function"].splitlines()[1:]:
        assert line.strip() in text


def test_what_is_shared_is_cut_out_of_the_deployed_template() -> None:
    template = shipped.read("template.yaml")
    shared = sections.shared(template)
    for section in shared.sections.values():
        for text in section.values():
            assert text in template
    everything = sections.written(shared, {})
    for gone in ("Export", "Rollup", "SourceTable", "WeatherTable"):
        assert gone not in everything


def test_the_wheel_has_the_files_that_are_deployed(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            tmp_path,
            sam.ROOT,
        ],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        for name in shipped.FILES:
            inside = opened.read(f"anarchon_ddb/scaffold/{name}")
            assert inside == (sam.ROOT / name).read_bytes()
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--job", "a b", "--schedule", "rate(1 hour)"], "job name 'a b'"),
        (["--job", "a"], "when is it due"),
        (["--schedule", "rate(1 hour)"], "give --job NAME"),
        (["--job", "a", "--schedule", "cron(bogus)"], "cron(bogus)"),
        (["--job", "a", "--schedule", "rate(1 hour)", "--timezone", "CEST"], "CEST"),
    ],
)
def test_a_wrong_job_is_wrong_usage(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "x"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_the_command_prints_the_lines_and_asks_before_it_adds_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    existing(tmp_path)
    arguments = ["init", str(tmp_path), "--job", "report", "--schedule", "rate(1 hour)"]
    assert main([*arguments, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "  JobPolicy:\n    Type: AWS::IAM::ManagedPolicy" in shown
    assert "Nothing was written" in shown
    assert not (tmp_path / "infra").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main([*arguments, "--apply"]) == 2
    assert "in scripts, add --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: "n")
    assert main([*arguments, "--apply"]) == 1
    assert (tmp_path / "template.yaml").read_text() == EXISTING
    assert main([*arguments, "--apply", "--yes"]) == 0
    assert read(tmp_path / "template.yaml").data["Resources"].keys() >= {"Nightly", "Resumer"}
