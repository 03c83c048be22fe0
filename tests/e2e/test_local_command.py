"""`anarchon-ddb local` as a person meets it: what it prints, refuses, and leaves behind."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from tests.dynalite import Dynalite, require
from tests.processes import is_alive

HOUR = ("--from", "2026-03-01T00:00:00Z", "--to", "2026-03-01T01:00:00Z")
COMMAND = (sys.executable, "-m", "anarchon_ddb.cli")

# A SAM project that does not use the package.
TEMPLATE = """\
Transform: AWS::Serverless-2016-10-31
Globals:
  Function: { Runtime: python3.12, CodeUri: src, Timeout: 60 }
Resources:
  Orders:
    Type: AWS::Serverless::Function
    Properties:
      Handler: jobs.orders
      Events:
        Each:
          Type: ScheduleV2
          Properties:
            ScheduleExpression: rate(10 minutes)
            Input: '{"at": "<aws.scheduler.scheduled-time>"}'
  Sweep:
    Type: AWS::Serverless::Function
    Properties:
      Handler: jobs.sweep
      Events: { Each: { Type: Schedule, Properties: { Schedule: rate(10 minutes) } } }
"""
JOBS = """\
import boto3


def orders(event, context):
    print("orders of", event["at"])
    client = boto3.client("sqs")
    for _ in range(4):
        client.list_queues()


def sweep(event, context):
    print("sweep of", event["time"])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/jobs.py").write_text(JOBS)
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    return tmp_path


def local(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "local", *arguments], env={**os.environ, **environment},
        cwd=project, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip


def played(project: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = local(project, "--json", *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that says what is wrong."""
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    return line.removeprefix("Error: ")


# --- a plain project -----------------------------------------------------------------------------


def test_a_project_without_the_package_is_played_and_judged(project: Path) -> None:
    (project / "fill.py").write_text("print('filled')\n")
    (project / "look.py").write_text("print('looked')\n")

    code, summary = played(project, *HOUR, "--setup", "fill.py", "--check", "look.py")

    assert (code, summary["failures"], summary["check"]) == (0, [], 0)
    assert (summary["slots"], summary["invocations"], summary["attempts"]) == (10, 10, 0)
    assert [(one["schedule"], one["worked"]) for one in summary["schedules"]] == [
        ("OrdersEach", 5),
        ("SweepEach", 5),
    ]
    logs = list((project / ".anarchon/local").glob("*/local-Sweep/*.log"))
    assert len(logs) == 5
    assert "sweep of 2026-03-01T0" in logs[0].read_text()


def test_a_script_calls_what_is_played_whatever_the_person_has_set(
    project: Path, tmp_path: Path
) -> None:
    """Their own endpoint, profile or session would send it elsewhere, or stop it."""
    (project / "fill.py").write_text(
        "import boto3\n\n"
        "boto3.client('sqs').create_queue(QueueName='filled')\n"
        "assert boto3.Session().get_credentials().token is None\n"
    )
    (tmp_path / "config").write_text("[profile prod]\nregion = us-east-1\n")

    done = local(
        project, *HOUR, "--setup", "fill.py", AWS_PROFILE="prod", AWS_SESSION_TOKEN="theirs",
        AWS_CONFIG_FILE=str(tmp_path / "config"), AWS_ENDPOINT_URL_SQS="http://127.0.0.1:9",
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")


CHAOS = {
    "kill": ("kill=1", "kills"),
    "throttle": ("throttle=0.3", "throttled"),
    "lost-reply": ("lost-reply=0.3", "replies_lost"),
}


@pytest.mark.parametrize(("chaos", "counted"), CHAOS.values(), ids=CHAOS)
def test_the_same_seed_gives_the_same_history_and_another_gives_another(
    project: Path, chaos: str, counted: str
) -> None:
    def history(seed: str, logs: str) -> tuple[bytes, dict[str, Any]]:
        _, summary = played(project, *HOUR, "--chaos", chaos, "--seed", seed, "--logs", logs)
        return Path(project, summary["history"]["path"]).read_bytes(), summary

    first, summary = history("7", "first")

    assert history("7", "again")[0] == first
    assert history("8", "other")[0] != first
    assert summary[counted] > 0


def test_kill_1_kills_each_invocation_wherever_it_is(project: Path) -> None:
    code, summary = played(project, *HOUR, "--chaos", "kill=1", "--seed", "7")

    assert code == 1
    # Each slot is tried three times, and none outlives it.
    assert summary["kills"] == summary["invocations"] == 3 * summary["slots"]
    assert summary["given_up"] == 10
    assert [one["worked"] for one in summary["schedules"]] == [0, 0]
    assert "signal: killed; log: " in summary["failures"][0]


def test_a_delivery_that_is_late_at_the_end_is_waited_for(project: Path) -> None:
    code, summary = played(project, *HOUR, "--chaos", "late=1", "--seed", "7")

    assert (code, summary["late"] >= 10) == (0, True)
    assert [one["absent"] for one in summary["schedules"]] == [[], []]


# --- what can't be played, and what is wrong -----------------------------------------------------

UNPLAYABLE = """\
Globals: { Function: { CodeUri: src, Runtime: python3.12 } }
Resources:
  Node: { Type: AWS::Serverless::Function, Properties: { Handler: a.b, Runtime: nodejs22.x } }
  Image: { Type: AWS::Serverless::Function, Properties: { PackageType: Image } }
  Steps: { Type: AWS::Serverless::StateMachine }
  Text: { Type: AWS::Serverless::Function, Properties: text }
  Soon: { Type: AWS::Serverless::Function, Properties: { Handler: a.b, Timeout: soon } }
  Sweep:
    Type: AWS::Serverless::Function
    Properties:
      Handler: jobs.sweep
      Environment:
        Variables:
          ELSEWHERE: !ImportValue elsewhere
      Events:
        Api: { Type: Api, Properties: { Path: /, Method: get } }
        Queue: { Type: SQS, Properties: { Queue: !GetAtt Steps.Arn } }
        Text: text
        Plural: { Type: Schedule, Properties: { Schedule: rate(1 minutes) } }
        NoJson: { Type: Schedule, Properties: { Schedule: rate(1 hour), Input: "{" } }
        Good: { Type: Schedule, Properties: { Schedule: rate(10 minutes) } }
"""


def test_what_cannot_be_played_is_named_with_its_line_and_the_rest_goes_on(project: Path) -> None:
    (project / "template.yaml").write_text(UNPLAYABLE)

    done = local(project, *HOUR)

    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.removeprefix("Not played: template.yaml:") for line in done.stdout.splitlines()
            if line.startswith("Not played: ")]  # fmt: skip
    for line, what in (
        (3, "function Node: runtime nodejs22.x: only Python is played"),
        (4, "function Image: it is a container image"),
        (5, "Steps (AWS::Serverless::StateMachine): it is not played here"),
        (6, "Text: it is not written as a resource is"),
        (7, "function Soon: it is not written as AWS takes it"),
        (14, "the variable ELSEWHERE of Sweep: ImportValue can't be resolved"),
        (16, "event Api of Sweep: Api is no schedule"),
        (17, "event Queue of Sweep: SQS is no schedule"),
        (18, "event Text of Sweep: it has no Type"),
        (19, "event Plural of Sweep: 'rate(1 minutes)'"),
        (20, "event NoJson of Sweep: its Input is no JSON"),
    ):
        assert [one for one in told if one.startswith(f"{line}: {what}")], (line, what, told)
    assert len(told) == 11


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--template", "none.yaml", *HOUR), 1, r"none.yaml: can't be read: No such file"),
        (("--parameter", "Env=x", *HOUR), 1, r"no parameter named 'Env'; it has none"),
        (("--setup", "fails.py", *HOUR), 1, r"fails.py ended with exit code 3"),
        ((*HOUR[:2], "--to", "2026-02-01T00:00:00Z"), 2, r"--to 2026-02-01T00:00:00Z is not after"),
        (("--to", "2020-01-01T00:00:00Z"), 2, r"--to 2020-01-01T00:00:00Z is over: give --from"),
        (("--chaos", "explode=1", *HOUR), 2, r"no chaos named 'explode': there are kill, "),
        (("--endpoint-url", "http://127.0.0.1:9", *HOUR), 1, r"no DynamoDB answers at http://127"),
        (("--endpoint-url", "http://127.0.0.1:abc"), 2, r"write http://127.0.0.1:8000"),
        (("--endpoint-url", "http://127.0.0.1:99999"), 2, r"write http://127.0.0.1:8000"),
        (("--endpoint-url", "http://[::1"), 2, r"write http://127.0.0.1:8000"),
        (("--endpoint-url", "https://dynamodb.eu-west-1.amazonaws.com"), 2, r"this is AWS itself"),
        (("--latency", "s3:PutObject=soon", *HOUR), 2, r"write service:Operation=SPAN"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    project: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    (project / "fails.py").write_text("import sys\n\nsys.exit(3)\n")

    done = local(project, *arguments)

    assert done.returncode == code
    assert re.search(told, error_of(done))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("Handler: jobs.sweep", "Handler: absent.sweep"),
         r"Sweep can't be imported: Unable to import module 'absent': .*; log: .*Sweep/import.log"),
        (("Handler: jobs.sweep", "Handler: jobs.absent"),
         r"Handler 'absent' missing on module 'jobs'; log: "),
        (("CodeUri: src", "CodeUri: absent"),
         r"template.yaml:5: the CodeUri of Orders is no directory: .*absent"),
        (("Transform:", "Parameters: { Env: { Type: String } }\nTransform:"),
         r"template.yaml:1: parameter Env has no default: give it a value with --parameter Env="),
        (("Globals:", "Globals: ["), r"template.yaml: not YAML: "),
        (("Type: Schedule", "Type: Api"), r"no schedule fires a function; template.yaml:10: event"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_project_is_one_sentence(
    project: Path, change: tuple[str, str], told: str
) -> None:
    text = TEMPLATE.replace(*change)
    (project / "template.yaml").write_text(text.replace("Type: ApiV2", "Type: Api"))

    done = local(project, *HOUR)

    assert done.returncode == 1
    assert re.search(told, error_of(done))


def test_a_port_in_use_is_one_sentence(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = local(project, *HOUR, "--port", port)

    assert done.returncode == 1
    assert error_of(done) == (
        f"port {port} of 127.0.0.1 can't be had: Address already in use. Choose another with "
        "--port, or leave it out for any that is free"
    )


@pytest.mark.parametrize("missing", ["moto", "rich", "time_machine", "flask"])
def test_a_missing_extra_is_one_sentence(project: Path, missing: str) -> None:
    (project / "start.py").write_text(
        f"import sys\n\nsys.modules[{missing!r}] = None\nsys.argv[0] = 'anarchon-ddb'\n"
        "from anarchon_ddb.cli.__main__ import start\n\nstart()\n"
    )
    done = subprocess.run(
        [sys.executable, "start.py", "local", *HOUR],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert error_of(done) == (
        f"anarchon-ddb local needs {missing}: pip install 'anarchon_ddb[cli,local]'"
    )


def test_the_error_of_a_child_that_crashes_is_told_with_its_log(project: Path) -> None:
    (project / "src/jobs.py").write_text(
        JOBS.replace('print("sweep of", event["time"])', "import os; os.abort()")
    )

    code, summary = played(project, *HOUR)

    assert code == 1
    (failure,) = summary["failures"]
    assert failure.startswith("5 slots of SweepEach never worked on to the end by local-Sweep; ")
    assert "Runtime exited with error: signal: 6; log: .anarchon/local/" in failure
    log = Path(project, failure.rpartition("log: ")[2])
    assert "signal: 6" in log.read_text()


# --- while it plays ------------------------------------------------------------------------------


class Running:
    """A play on a terminal, or on none."""

    def __init__(self, project: Path, *arguments: str, size: tuple[int, int] | None = None) -> None:
        self.text, self._master = "", None
        if size is None:
            self._master, slave = os.pipe()
        else:
            self._master, slave = pty.openpty()
            ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, "local", *arguments], cwd=project, stdout=slave, stderr=slave,
            start_new_session=True, env={**os.environ, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(slave)

    def read_until(self, condition: Callable[[], bool], timeout_s: float = 30) -> None:
        until_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until_s, self.text
            self._read(0.05)

    def _read(self, timeout_s: float) -> bool:
        assert self._master is not None
        if not select.select([self._master], [], [], timeout_s)[0]:
            return True
        try:
            given = os.read(self._master, 1 << 16)
        except OSError:  # a terminal whose other end is closed
            return False
        text = re.sub(r"\x1b\[[0-9;]*m", "", given.decode(errors="replace"))
        self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text)  # the cursor is moved
        return bool(given)

    def end(self, number: int) -> float:
        """Send a signal; return how long it took to end."""
        began_s = time.monotonic()
        self.process.send_signal(number)
        while self._read(0.05) and time.monotonic() - began_s < 20:
            pass
        self.process.wait(20)
        return time.monotonic() - began_s

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master is not None:
            os.close(self._master)


@pytest.fixture
def run(project: Path) -> Any:
    running: list[Running] = []

    def start(*arguments: str, size: tuple[int, int] | None = None) -> Running:
        running.append(Running(project, *arguments, size=size))
        return running[-1]

    yield start
    for one in running:
        one.close()


HANGS = """\
import os, pathlib, subprocess, time



def note():
    child = subprocess.Popen(["sleep", "300"])
    pathlib.Path({pids!r}).write_text(f"{{os.getpid()}} {{child.pid}} .")


def orders(event, context):
    note()
    {hang}


def sweep(event, context):
    orders(event, context)
"""
SIMULATED = ("--from", "2026-03-01T00:00:00Z", "--to", "2026-03-08T00:00:00Z")
# At most one real second for a minute of waiting for the delivery.
FAST = ("--speed", "100")


@pytest.mark.parametrize(
    ("arguments", "hang", "number"),
    [
        (SIMULATED, "while True: pass", signal.SIGINT),
        (FAST, "time.sleep(1_000)", signal.SIGTERM),
        (("--setup", "fill.py"), "pass", signal.SIGINT),
        ((*SIMULATED, "--setup", "fill.py"), "pass", signal.SIGTERM),
    ],
    ids=["a loop", "a sleep", "the setup", "the simulated setup"],
)
def test_a_signal_ends_all_that_was_started(
    project: Path, run: Any, arguments: tuple[str, ...], hang: str, number: int
) -> None:
    pids = project / "pids"
    code = HANGS.format(pids=str(pids), hang=hang)
    (project / "src/jobs.py").write_text(code)
    (project / "fill.py").write_text(code + "\n\nnote()\ntime.sleep(300)\n")
    play = run(*arguments)
    play.read_until(lambda: pids.exists() and pids.read_text().endswith("."), 60)
    started = [int(pid) for pid in pids.read_text().split()[:2]]
    assert all(map(is_alive, started))
    (port,) = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", play.text)} or {0}

    took_s = play.end(number)

    assert play.process.returncode == 128 + number
    assert took_s < 2 + SLACK_S
    assert not [pid for pid in started if is_alive(pid)]
    assert "Traceback" not in play.text
    assert "SCHEDULE" in play.text, "the summary"
    if port:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port)).close()


SLACK_S = 1.0
"""For a machine that runs other tests meanwhile."""


@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=str)
def test_the_live_view_fits_its_terminal(run: Any, size: tuple[int, int]) -> None:
    play = run("--speed", "1000", size=size)
    play.read_until(lambda: play.text.count("delivered,") > 2)
    play.end(signal.SIGTERM)

    view = play.text[play.text.index("SCHEDULE") : play.text.rindex(", simulated")]
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", view)]
    assert [line for line in lines if len(line) > size[0]] == []
    rows = [line for line in lines if line.startswith(("OrdersEach", "SweepEach"))]
    assert rows
    assert not [row for row in rows if "…" in row], "no name and no time is cut"
    assert any(re.search(r"^\w+Each +\d\d:\d\d:\d\d", row) for row in rows)


def test_the_other_commands_work_on_a_play(project: Path, run: Any) -> None:
    from anarchon_ddb.cli.main import main  # noqa: PLC0415

    assert main(["init", str(project / "shop"), "--job", "report", "--schedule",
                 "cron(0/30 * * * ? *)", "--apply", "--yes"]) == 0  # fmt: skip
    play = run("--template", "shop/template.yaml", "--from", "2026-03-01T00:00:00Z",
               "--speed", "500")  # fmt: skip
    play.read_until(lambda: "AWS at " in play.text)
    (url,) = re.findall(r"AWS at (http://127.0.0.1:\d+)", play.text)
    history = project / ".anarchon/local"
    play.read_until(
        lambda: any("succeeded" in path.read_text() for path in history.glob("*/history.jsonl"))
    )
    # Another region, and no credentials: nothing of AWS is set up.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}

    def told(*arguments: str) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments, "--stack", "local", "--endpoint-url", url],
            env={**kept, "AWS_REGION": "us-east-1", "HOME": str(project)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "report" in told("jobs")
    assert "succeeded" in told("runs", "report")
    assert "2026-03-01T00:00:00Z" in told("explain", "report", "2026-03-01T00:00:00Z")


def test_a_handler_that_cannot_be_imported_is_told_at_once_and_may_be_mended(
    project: Path, run: Any
) -> None:
    (project / "src/jobs.py").write_text("import absent\n")

    play = run()
    play.read_until(lambda: "Ctrl-C ends it." in play.text)
    play.end(signal.SIGINT)

    assert re.search(
        r"local-Sweep can't be imported: Unable to import module 'jobs': No module named 'absent'; "
        r"log: .*/local-Sweep/import.log", play.text
    )  # fmt: skip
    assert play.process.returncode == 130


# --- another DynamoDB ----------------------------------------------------------------------------


def test_another_dynamodb_is_played_on(project: Path) -> None:
    require()
    (project / "src/jobs.py").write_text(
        "import boto3, os\n\n\n"
        "def sweep(event, context):\n"
        "    boto3.client('dynamodb').put_item(\n"
        "        TableName=os.environ['TABLE'], Item={'id': {'S': event['time']}})\n"
    )
    (project / "template.yaml").write_text("""\
Resources:
  Seen: { Type: AWS::Serverless::SimpleTable }
  Sweep:
    Type: AWS::Serverless::Function
    Properties:
      Handler: jobs.sweep
      CodeUri: src
      Timeout: 60
      Environment: { Variables: { TABLE: !Ref Seen } }
      Events: { Each: { Type: Schedule, Properties: { Schedule: rate(10 minutes) } } }
""")
    (project / "look.py").write_text(
        "import boto3, os, sys\n\n"
        "found = boto3.client('dynamodb').scan(TableName=os.environ['TABLE'])['Items']\n"
        "sys.exit(len(found) - 5)\n"
    )
    with Dynalite() as dynalite:
        arguments = ("--endpoint-url", dynalite.endpoint, "--check", "look.py")
        code, summary = played(project, *HOUR, *arguments)
        with dynalite.environment():
            import boto3  # noqa: PLC0415

            tables = boto3.client("dynamodb").list_tables()["TableNames"]

    assert (code, summary["failures"], summary["check"]) == (0, [], 0)
    assert "local-Seen" in tables
