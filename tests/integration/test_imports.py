"""What is loaded when: little by the package, all by a handler, nothing by its first invocation."""

from __future__ import annotations

import gc
import os

import pytest

import anarchon_ddb
from anarchon_ddb import StoreError
from anarchon_ddb.store import Store
from tests.integration.test_good_guest import python

SDK = {"boto3", "botocore", "pynamodb", "aws_lambda_powertools"}


IN_LAMBDA = {
    "ANARCHON_TABLE": "t",
    "AWS_LAMBDA_RUNTIME_API": "x",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
}


def test_the_package_and_the_command_load_nothing_of_the_sdk() -> None:
    code = "import sys, anarchon_ddb, anarchon_ddb.cli.main; print(*sys.modules)"
    assert set() == {name.partition(".")[0] for name in python(code).split()} & SDK


def test_every_public_name_is_there_and_told() -> None:
    assert set(anarchon_ddb.__all__) <= set(dir(anarchon_ddb))
    for name in anarchon_ddb.__all__:
        assert getattr(anarchon_ddb, name).__name__ == name
    names = python("from anarchon_ddb import *; print(*sorted(set(dir())))").split()
    assert set(anarchon_ddb.__all__) <= set(names)


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'anarchon_ddb' has no attribute 'jobs'"):
        _ = anarchon_ddb.jobs


@pytest.mark.parametrize(
    "first",
    [
        "from anarchon_ddb import job",
        "from anarchon_ddb import Run",
        "import anarchon_ddb.job",
        "from anarchon_ddb.job import Job",
        "import anarchon_ddb.worker",
        "import importlib; importlib.import_module('anarchon_ddb.job')",
    ],
)
def test_job_is_the_decorator_whatever_was_imported_first(first: str) -> None:
    """There is a module of that name, which an import puts in its place."""
    code = (
        f"{first}\nfrom anarchon_ddb import job\nimport anarchon_ddb\n"
        "@job('export')\ndef handler(run): pass\n"
        "from anarchon_ddb.job import Job\n"
        "print(type(handler) is Job and anarchon_ddb.job is job)"
    )
    assert python(code) == "True\n"


INVOKE = """
import json, sys, time, zlib
from datetime import UTC, datetime
from botocore.awsrequest import AWSResponse, HeadersDict
from anarchon_ddb import job, worker

class Context:
    def get_remaining_time_in_millis(self):
        return remaining_ms

@job("export")
def handler(run):
    global remaining_ms
    if how == "commit":
        run.commit([{"Put": {"TableName": "o", "Item": {"id": {"S": "1"}}}}], 1)
    if how == "failed":
        raise ValueError("boom")
    if how == "interrupted":
        remaining_ms = 0
    run.save({"after": 2})

class Raw:
    def stream(self, *_, **__):
        yield body

def answer(request, **_):
    check = HeadersDict({"x-amz-crc32": str(zlib.crc32(body))})
    return AWSResponse(request.url, 200, check, Raw())

how, remaining_ms = sys.argv[1], 900_000
now = {"N": str(time.time_ns() // 1_000_000)}
until = {"N": str(time.time_ns() // 1_000_000 + 60_000)}
item = {"pk": {"S": "job#export"}, "sk": {"S": "run#2026-11-29T12:00:00Z"}, "attempt": {"N": "2"},
        "state": {"S": "running"}, "owner": {"S": "a"}, "started_at": now, "claimed_at": now,
        "lease_until": until, "rev": {"N": "3"}, "checkpoint": {"S": "1"}}
body = json.dumps({"Attributes": item, "Item": item}).encode()
events = worker.store_of(worker.SYSTEM_CLOCK).client.meta.events
events.register("before-send.dynamodb", answer)
before = set(sys.modules)
event = {"job": "export", "slot": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
try:
    outcome = handler(event, Context())["outcome"]
except ValueError:
    outcome = "failed"
assert outcome == {"commit": "succeeded"}.get(how, how), outcome
print("loaded:", *sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("how", ["succeeded", "interrupted", "failed", "commit"])
def test_an_invocation_loads_no_module_that_the_init_has_not(how: str) -> None:
    """An init has a full CPU and is not billed to a slot; a first invocation has what is paid."""
    code = f"import sys; sys.argv = ['', {how!r}]\n{INVOKE}"
    told = python(code, **IN_LAMBDA)
    assert told.splitlines()[-1] == "loaded:"


def test_an_init_loads_what_a_first_connection_needs() -> None:
    code = "import sys\nfrom anarchon_ddb import job\njob('export')(print)\nprint(*sys.modules)"
    loaded = python(code, **IN_LAMBDA).split()
    assert "encodings.idna" in loaded


def test_a_cursor_with_a_zone_round_trips_in_a_process_that_knows_no_zone_yet() -> None:
    text = '{"$":"datetime","v":["2026-11-29T12:00:00","Europe/Berlin",0]}'
    code = (
        "import sys\nfrom anarchon_ddb import codec\nassert 'zoneinfo' not in sys.modules\n"
        f"moment = codec.loads({text!r})\nprint(moment.tzinfo, codec.dumps(moment))"
    )
    assert python(code) == f"Europe/Berlin {text}\n"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_left_as_it_was(aws: None, is_enabled: bool) -> None:
    """It is paused while the client is made; a user may have switched it off altogether."""
    try:
        (gc.enable if is_enabled else gc.disable)()
        assert Store("anarchon").client is not None
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


def test_the_collector_is_left_as_it_was_by_a_client_that_can_not_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(StoreError, match="region"):
        _ = Store("anarchon").client
    assert gc.isenabled()
