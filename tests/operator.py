"""What the tests of the command line share: the operator's shell, schedules, and Lambda's API."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import boto3
import pytest

from anarchon_ddb.cli.main import main
from anarchon_ddb.clock import iso
from anarchon_ddb.testing import LambdaContext, SettableClock

GROUP = "prod"
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:"


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class Operator:
    """A person at a shell: each call is one command through the real entry."""

    def __init__(self, clock: SettableClock, capsys: pytest.CaptureFixture[str]) -> None:
        self._clock, self._capsys = clock, capsys
        self.settle: Callable[[], None] = lambda: None
        """Wait until what a command set off has ended."""

    def __call__(self, *arguments: str) -> Answer:
        self._capsys.readouterr()
        code = main(arguments, clock=self._clock)
        self.settle()
        captured = self._capsys.readouterr()
        return Answer(code, _without_metrics(captured.out), captured.err)

    def json(self, *arguments: str) -> Any:
        answer = self(*arguments, "--json")
        assert answer.code == 0, answer.err
        return answer.data


def _without_metrics(out: str) -> str:
    """Leave out what handlers wrote, which run in this process, too."""
    return "".join(line for line in out.splitlines(keepends=True) if '"_aws"' not in line)


def schedule(
    job: str,
    expression: str,
    timezone: str = "UTC",
    *,
    name: str | None = None,
    state: str = "ENABLED",
    params: dict[str, Any] | None = None,
) -> None:
    """Make a schedule of the stack's group, as the template would."""
    client = boto3.client("scheduler")
    if not any(one["Name"] == GROUP for one in client.list_schedule_groups()["ScheduleGroups"]):
        client.create_schedule_group(Name=GROUP)
    given = {"job": job, "slot": "<aws.scheduler.scheduled-time>"}
    client.create_schedule(
        Name=name or job.replace(":", "-"),
        GroupName=GROUP,
        ScheduleExpression=expression,
        ScheduleExpressionTimezone=timezone,
        State=state,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": f"{ARN}{GROUP}-{job.partition(':')[0]}",
            "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
            "Input": json.dumps(given | ({"params": params} if params else {})),
        },
    )


@dataclass
class Lambda:
    """Lambda's Invoke API over HTTP, in front of real handlers.

    An invocation is answered at once and worked on in a thread. Who waits on the test's clock waits
    for all of them first.
    """

    clock: SettableClock
    handlers: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    configurations: dict[str, dict[str, str]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, name: str, event: dict[str, Any]) -> None:
        self.events.append(event)
        thread = threading.Thread(target=self._invoke, args=(name, event), daemon=True)
        self._threads.append(thread)
        thread.start()

    def settle(self) -> None:
        """Wait until no invocation is under way; one may start others."""
        while self._threads:
            self._threads.pop().join(timeout=60)

    def _invoke(self, name: str, event: dict[str, Any]) -> None:
        context = LambdaContext("15m", clock=self.clock, function_name=name)
        try:
            self.answers.append(self.handlers[name](event, context))
        except Exception as error:
            self.answers.append({"raised": str(error)})


@contextmanager
def serving(played: Lambda) -> Iterator[str]:
    """Serve it; yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            name = self._name()
            if name not in played.handlers:
                self._answer(404, {"Message": f"Function not found: {name}"})
                return
            played.start(name, json.loads(body))
            self._answer(202, None)

        def do_GET(self) -> None:
            name = self._name()
            if name not in played.configurations:
                self._answer(404, {"Message": f"Function not found: {name}"})
                return
            self._answer(200, {"Environment": {"Variables": played.configurations[name]}})

        def _name(self) -> str:
            return unquote(self.path.split("/functions/")[1].split("/")[0]).rpartition(":")[2]

        def _answer(self, status: int, body: object) -> None:
            self.send_response(status)
            if status == 404:
                self.send_header("x-amzn-ErrorType", "ResourceNotFoundException")
            text = b"" if body is None else json.dumps(body).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def put_run(store: Any, job: str, slot: str, **attributes: Any) -> None:
    """Write a run as an item, for what no handler would leave behind."""
    put_runs(store, [(job, slot, attributes)])


def put_runs(store: Any, runs: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
    """Write many runs, 25 in a call."""
    requests = [{"PutRequest": {"Item": _item(*run)}} for run in runs]
    for start in range(0, len(requests), 25):
        store.client.batch_write_item(RequestItems={store.table: requests[start : start + 25]})


def _item(job: str, slot: str, attributes: dict[str, Any]) -> dict[str, Any]:
    base = {"state": "succeeded", "attempt": 1, "reason": "done", "owner": "o", "lease_until": 0}
    item = {"pk": f"job#{job}", "sk": f"run#{slot}"} | base | attributes
    return {
        name: {"N": str(value)} if isinstance(value, int) else {"S": value}
        for name, value in item.items()
        if value is not None
    }


def minutes(start: datetime, count: int, step: int = 1) -> list[str]:
    """Return slots, one a step."""
    return [iso(start + timedelta(minutes=step * index)) for index in range(count)]
