"""Each command used wrongly in three ways, help, exit codes, and where the table is found."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from anarchon_ddb.cli.main import COMMANDS, group
from anarchon_ddb.store import Store
from tests.conftest import SLOT
from tests.operator import Lambda, Operator, put_run, schedule

ROOT = Path(__file__).parents[2]
NAMES = [name for section in COMMANDS.values() for name in section]

WRONG: list[tuple[str, int, str]] = [
    ("jobs extra", 2, "unexpected extra argument"),
    ("jobs --table", 2, "requires an argument"),
    ("jobs --profile nobody", 1, "The config profile (nobody) could not be found"),
    ("jobs --endpoint-url 127.0.0.1:8000", 2, "write http://127.0.0.1:8000"),
    ("jobs --endpoint-url http://127.0.0.1:99999", 2, "write http://127.0.0.1:8000"),
    ("jobs --endpoint-url http://[::1", 2, "write http://127.0.0.1:8000"),
    ("next", 2, "Missing argument 'JOB'"),
    ("next export -n 0", 2, "0 is not in the range 1<=x<=1000"),
    ("next nobody", 1, "no schedule of group prod names the job nobody: see `jobs`"),
    ("runs", 2, "Missing argument 'JOB'"),
    ("runs export --state fialed", 2, "'fialed' is not one of"),
    ("runs export --since yesterday", 2, "'yesterday' is no time; write 2026-11-29T12:00:00Z or"),
    ("open export", 2, "unexpected extra argument"),
    ("open --jsn", 2, "No such option"),
    ("open --table nowhere", 1, "No such table there: check its name and the region"),
    ("explain export", 2, "Missing argument 'SLOT'"),
    ("explain export 2026-11-29T12:00:00", 2, "has no zone, so it could be meant in two ways"),
    ("explain nobody last", 1, "nobody has no run yet; is the job's name right?"),
    ("watch export --interval 0", 2, "0.0 is not in the range"),
    ("watch ex/port", 2, "use 1 to 64 letters, digits"),
    ("watch --once --table nowhere", 1, "No such table there"),
    ("timeline", 2, "Missing argument 'JOB'"),
    ("timeline export --since 24x", 2, "'24x' is no time"),
    ("timeline export --html /nowhere/x.html", 1, "No such file or directory"),
    ("run", 2, "Missing argument 'JOB'"),
    ("run export --params [1]", 2, "expected a JSON object such as"),
    ("run export --slot 2026-10-01T00:00:00Z", 1, "is older than the retention of 30 days"),
    ("retry export", 2, "Missing argument 'SLOT'"),
    ("retry export last --from-start", 2, "Nobody is there to answer: in scripts, add --yes"),
    ("retry export 2026-11-29T09:00:00Z", 1, "there is no run of export for 2026-11-29T09:00:00Z"),
    ("cancel export noon", 2, "'noon' is no time"),
    ("cancel export last", 2, "Nobody is there to answer"),
    ("cancel export 2026-11-29T09:00:00Z -y", 1, "there is no run of export"),
    ("pause", 2, "Missing argument 'JOB'"),
    ("pause export --until 2026-01-01T00:00:00Z", 2, "is not ahead of now"),
    ("pause export --until soon", 2, "'soon' is no time"),
    ("unpause", 2, "Missing argument 'JOB'"),
    ("unpause export:", 2, "an instance is written as export:tenant-a"),
    ("unpause export", 1, "export is not paused"),
    ("release export", 2, "Missing argument 'SLOT'"),
    ("release export last", 2, "Nobody is there to answer"),
    ("release export last --yes", 1, "is succeeded: nobody holds it"),
    ("rewind export last", 2, "Missing option '--to'"),
    ("rewind export last --to abc", 2, "'abc' is no JSON"),
    ("rewind export last --to 1 --yes", 1, "has ended as succeeded: retry it first"),
    ("backfill export --from 7d", 2, "Missing option '--to'"),
    ("backfill export --from 1d --to 7d", 2, "is not before --to"),
    ("backfill export --from 7d --to 1d --only missed", 2, "'missed' is not one of"),
    ("backfill export --from 2026-12-01T00:00:00Z --to 2026-12-02T00:00:00Z", 1,
     "what is yet to come can't be filled in"),
    ("local --template nowhere.yaml", 1, "nowhere.yaml: can't be read: No such file"),
    ("local --chaos explode=1", 2, "no chaos named 'explode'"),
    ("local --latency PutObject=1s", 2, "write service:Operation=SPAN, as s3:PutObject=250ms"),
    ("local --parameter Stage", 2, "write NAME=VALUE"),
    ("local --endpoint-url https://dynamodb.eu-west-1.amazonaws.com", 2, "this is AWS itself"),
    ("init --schedule rate(1_hour)", 2, "give --job NAME"),
    ("init --job export", 2, "when is it due?"),
    ("init --job export --schedule cron(bogus)", 2, "AWS cron has 6 fields, got 1"),
    ("check nowhere.yaml", 2, "does not exist"),
    ("check template.yaml --parameter Stage", 2, "write NAME=VALUE"),
    ("check template.yaml --deployed", 2, "give --stack NAME"),
]  # fmt: skip


@pytest.fixture
def one_run(ops: Operator, store: Store) -> Operator:
    schedule("export", "cron(0 * * * ? *)")
    put_run(store, "export", SLOT)
    return ops


@pytest.mark.parametrize(("line", "code", "told"), WRONG, ids=[line for line, _, _ in WRONG])
def test_a_command_used_wrongly_says_what_to_do_and_shows_no_traceback(
    one_run: Operator, line: str, code: int, told: str
) -> None:
    answer = one_run(*line.split())
    assert (answer.code, told in answer.err) == (code, True), answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_each_command_is_tried_wrongly_in_three_ways_at_least() -> None:
    for name in NAMES:
        assert sum(line.split()[0] == name for line, _, _ in WRONG) >= 3, name


def test_the_list_of_commands_says_what_each_commands_own_help_says() -> None:
    for section in COMMANDS.values():
        for name, (_, text) in section.items():
            command = group.get_command(None, name)  # type: ignore[arg-type]
            assert command is not None
            assert (command.help or "").splitlines()[0] == text


@pytest.mark.parametrize("name", NAMES)
def test_each_help_has_examples_and_says_where_the_table_is(ops: Operator, name: str) -> None:
    answer = ops(name, "--help")
    assert answer.code == 0
    assert f"  anarchon-ddb {name}" in answer.out.partition("Examples:")[2]
    if name in {*COMMANDS["Adopt"], *COMMANDS["Try"]}:  # they read files
        return
    assert all(flag in answer.out for flag in ("--table", "--stack", "--region", "--endpoint-url"))


DOCS = [ROOT / "README.md", ROOT / "docs/operations.md", ROOT / "docs/local.md"]


def test_every_command_line_of_the_documentation_is_one() -> None:
    text = "".join(path.read_text() for path in DOCS).replace("\\\n", " ")
    lines = re.findall(r"anarchon-ddb ([a-z][^`\n|#]*)", text)
    assert len(lines) > 15
    for line in lines:
        name, *words = shlex.split(line.replace("…", "x"))
        assert name in NAMES, line
        command = group.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        known = {flag for param in command.params for flag in param.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_an_unknown_command_gets_a_suggestion(ops: Operator) -> None:
    answer = ops("explian", "export", "last")
    assert answer.code == 2
    assert "There is no command 'explian'. Did you mean explain?" in answer.err


def test_nothing_that_names_the_table_is_an_error_that_says_how(
    ops: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANARCHON_TABLE")
    answer = ops("open")
    assert answer.code == 1
    assert "no table: give --stack, or --table, or set ANARCHON_STACK or ANARCHON_TABLE" in (
        answer.err
    )
    monkeypatch.setenv("ANARCHON_TABLE", "anarchon")
    monkeypatch.delenv("ANARCHON_SCHEDULE_GROUP")
    assert "the schedules are not known: give --stack" in ops("jobs").err


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_a_stack_tells_its_table_and_its_schedules(
    one_run: Operator, lambdas: Lambda, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.delenv("ANARCHON_TABLE")
    monkeypatch.delenv("ANARCHON_SCHEDULE_GROUP")
    lambdas.configurations["blue-resumer"] = {
        "ANARCHON_TABLE": "anarchon", "ANARCHON_SCHEDULE_GROUP": "prod",
    }  # fmt: skip
    flags = ["--stack", "blue"] if by == "flag" else []
    if by == "environment":
        monkeypatch.setenv("ANARCHON_STACK", "blue")
    assert [one["job"] for one in one_run.json("jobs", *flags)["jobs"]] == ["export"]
    answer = one_run("jobs", "--stack", "green")
    assert answer.code == 1
    assert "stack 'green' can't be looked up by its function green-resumer" in answer.err


def test_the_flags_of_the_connection_do_not_outlive_the_command(
    one_run: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(os.environ)
    assert one_run("open", "--region", "eu-central-1").code == 1  # there is no table there
    assert one_run("open", "--endpoint-url", "http://127.0.0.1:9").code == 1
    assert before == dict(os.environ)
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert one_run("open").code == 0


def shell(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "anarchon_ddb.cli", *arguments],
        capture_output=True, text=True, timeout=60, cwd=ROOT, env=inherited | environ, check=False,
    )  # fmt: skip


def test_the_shell_gets_the_exit_codes() -> None:
    assert shell("--help").returncode == 0
    assert shell("open", "--what").returncode == 2
    done = shell("open", "--table", "x", "--region", "eu-west-1", AWS_ACCESS_KEY_ID="a",
                 AWS_SECRET_ACCESS_KEY="b", AWS_ENDPOINT_URL="http://127.0.0.1:9")  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: DynamoDB Query on table 'x' (from --table)")
    assert shell("--version").stdout.startswith("anarchon-ddb 0.")


def test_the_help_loads_click_and_no_more_of_the_sdk_or_rich() -> None:
    code = (
        "import sys, anarchon_ddb; before = set(sys.modules); "
        "from anarchon_ddb.cli.main import main; main(['--help']); "
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stderr.split())
    assert not loaded & {"botocore", "boto3", "pynamodb", "rich", "aws_lambda_powertools"}
