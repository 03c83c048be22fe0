"""The artifacts under AWS's own runtime client: stopped early, killed, resumed, ended."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.s3.models import S3Backend
from moto.server import ThreadedMotoServer

from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import scheduler_event
from tests import emf, runtime_api
from tests.runtime_api import RuntimeApi

PLANES = [f"{number:02}" for number in range(40)]
STOP_MARGIN_S = 10


@dataclass
class Lambda:
    """The two functions of a built stack, one process each, and the AWS that they see."""

    api: RuntimeApi
    built: Path
    runtime: Path
    logs: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]]

    def function(self, name: str) -> str:
        return f"arn:aws:lambda:eu-west-1:123456789012:function:shop-{name}"

    def start(self, name: str) -> subprocess.Popen[bytes]:
        artifact, handler = {
            "export": ("ExportFunction", "handlers.export.handler"),
            "resumer": ("Resumer/ResumerFunction", "anarchon_ddb.resumer.handler"),
        }[name]
        process = runtime_api.start(
            self.api,
            self.built / artifact,
            self.runtime,
            self.logs / f"{name}.log",
            {**self.environment, "_HANDLER": handler},
        )
        self.processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait(timeout=30)

    def invoke(self, name: str, event: dict[str, Any], timeout_s: float) -> Any:
        self.api.send(event, timeout_s=timeout_s, function=self.function(name))
        kind, answer = self.api.answer()
        assert kind == "response", answer
        return answer


@pytest.fixture
def on_lambda(
    built: Path, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lambda]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with RuntimeApi() as api:
        _, port = server.get_host_and_port()
        environment = {
            "ANARCHON_CONTINUATION": "self",
            "ANARCHON_STACK": "shop",
            "ANARCHON_TABLE": "anarchon",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ENDPOINT_URL_LAMBDA": f"http://{api.address}",
            "AWS_REGION": "eu-west-1",
            "AWS_SECRET_ACCESS_KEY": "local",
            "EXPORT_BUCKET": "exported",
            "PAGE_SIZE": "10",
            "SOURCE_TABLE": "planes",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        fill()
        played = Lambda(api, built, runtime, tmp_path, environment, [])
        try:
            yield played
        finally:
            for process in played.processes:
                played.stop(process)
            server.stop()


def fill() -> None:
    Store.from_environment().create_table()
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="exported")
    dynamodb = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName="planes",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    for plane in PLANES:
        dynamodb.put_item(TableName="planes", Item={"id": {"S": plane}})


def exported() -> list[str]:
    s3 = boto3.client("s3")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket="exported")["Contents"]]
    bodies = [s3.get_object(Bucket="exported", Key=key)["Body"].read() for key in keys]
    lines = [line for body in bodies for line in body.decode().splitlines()]
    return sorted(json.loads(line)["Item"]["id"]["S"] for line in lines)


def run_out(key: RunKey) -> None:
    """Move the lease of a killed attempt into the past, instead of waiting for it."""
    past = {":past": {"N": "1"}}
    update = "SET lease_until = :past, due = :past"
    boto3.client("dynamodb").update_item(
        TableName="anarchon",
        Key=key.wire,
        UpdateExpression=update,
        ExpressionAttributeValues=past,
    )


def test_a_slot_an_early_stop_a_kill_and_a_resume_under_awss_runtime_client(
    on_lambda: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = scheduler_event("export", datetime.now(UTC).replace(microsecond=0))
    key = RunKey("export", event["slot"])
    first = on_lambda.start("export")

    # The first of its four pages takes until only the margin is left.
    with monkeypatch.context() as patch:
        slow_puts(patch, on_lambda.api)
        stopped = on_lambda.invoke("export", event, timeout_s=STOP_MARGIN_S + 3)
    assert (stopped["attempt"], stopped["outcome"]) == (1, "interrupted")
    name, resume = on_lambda.api.invoked.get(timeout=60)
    assert name == on_lambda.function("export"), "it went on its way by itself"

    # Killed in the middle of its second batch: the object is written, its checkpoint is not.
    reached, killed = threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        hold_puts(patch, reached, killed)
        on_lambda.api.send(resume, timeout_s=60, function=name)
        assert reached.wait(timeout=60)
        on_lambda.stop(first)
        killed.set()
    run_out(key)

    resumer = on_lambda.start("resumer")
    passed = on_lambda.invoke("resumer", {}, timeout_s=50)
    assert passed.items() >= {"open": 1, "sent": 1, "faults": 0}.items()
    on_lambda.stop(resumer)
    name, resume = on_lambda.api.invoked.get(timeout=60)
    assert name == on_lambda.function("export")

    on_lambda.start("export")
    ended = on_lambda.invoke("export", resume, timeout_s=60)
    assert (ended["attempt"], ended["outcome"]) == (3, "succeeded")
    assert on_lambda.invoke("export", event, timeout_s=60)["outcome"] == "duplicate"
    assert exported() == PLANES

    lines = (on_lambda.logs / "export.log").read_text().splitlines()
    series = emf.read(lines)
    dimensions = (("job", "export"), ("stack", "shop"))
    assert sum(series["Anarchon", "AttemptsStarted", dimensions]) == 3
    assert sum(series["Anarchon", "Takeovers", dimensions]) == 1
    assert series["Anarchon", "RunAttempts", dimensions] == [3]
    started = [line for line in lines if '"message":"Attempt started"' in line]
    assert len(started) == 3, "each line once, though the runtime logs, too"


def slow_puts(patch: pytest.MonkeyPatch, api: RuntimeApi) -> None:
    """Answer no PUT before the margin is reached."""
    original = S3Backend.put_object

    def put(self: S3Backend, *args: Any, **options: Any) -> Any:
        left_s = api.deadline_s - STOP_MARGIN_S - time.time()
        api.closing.wait(timeout=max(0.0, left_s))
        return original(self, *args, **options)

    patch.setattr(S3Backend, "put_object", put)


def hold_puts(patch: pytest.MonkeyPatch, reached: threading.Event, killed: threading.Event) -> None:
    """Store an object, and hold its reply until its caller is dead."""
    original = S3Backend.put_object

    def put(self: S3Backend, *args: Any, **options: Any) -> Any:
        stored = original(self, *args, **options)
        reached.set()
        killed.wait(timeout=60)
        return stored

    patch.setattr(S3Backend, "put_object", put)
