"""What must not grow: counted, never timed, so that a busy machine changes nothing.

``make bench`` has the figures beside the peers'; these are the ones that can be held in CI.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from anarchon_ddb import Run, job
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, scheduler_event
from tests.bench import counted
from tests.bench.endpoint import metering
from tests.conftest import SLOT
from tests.dynalite import Dynalite
from tests.integration.test_good_guest import python
from tests.integration.test_imports import IN_LAMBDA

# What `requirements-lambda.lock` and Lambda's runtime bring, by the names to import.
DISTRIBUTIONS = {
    "aws_lambda_powertools", "boto3", "botocore", "dateutil", "jmespath", "pynamodb", "s3transfer",
    "six", "typing_extensions", "urllib3",
}  # fmt: skip
# The command line, the local cloud, the testing kit, and what only the resumer or a person needs.
NOT_A_HANDLERS = {
    "absence", "adopt", "backfill", "by_hand", "cli", "cron", "explain", "group",
    "history", "listing", "local", "operations", "overview", "registry", "resumer", "schedule",
    "testing", "timeline", "watching", "zones",
}  # fmt: skip
KILOBYTE = 1_024

# Measured: 0.90 of the floor's instructions and 0.83 of its calls (pynamodb's client leaves out
# botocore's check of parameters). Above these bounds a save has grown by a seventh: find out by
# what.
MOST_INSTRUCTIONS = 1.05
MOST_CALLS = 0.95


def loaded_by_an_init() -> set[str]:
    code = "import sys, handlers.export; print('\\n'.join(sys.modules))"
    return set(python(code, **IN_LAMBDA).split())


def test_an_init_imports_nothing_but_what_the_artifact_is_for() -> None:
    tops = {name.partition(".")[0] for name in loaded_by_an_init()}
    # botocore and pynamodb look for these two and do without: the artifact has neither.
    optional = {"certifi", "blinker"}
    known = sys.stdlib_module_names | DISTRIBUTIONS | optional | {"anarchon_ddb", "handlers"}
    others = {name for name in tops - known if not name.startswith(("_", "sitecustomize"))}
    assert others == set()


def test_an_init_imports_none_of_our_modules_that_no_handler_needs() -> None:
    ours = {name.split(".")[1] for name in loaded_by_an_init() if name.startswith("anarchon_ddb.")}
    assert "worker" in ours
    assert ours & NOT_A_HANDLERS == set()


@pytest.mark.parametrize(("overlap", "extra"), [("skip", 4), ("queue", 4), ("allow", 3)])
def test_a_run_of_N_batches_consumes_as_many_units_as_it_makes_calls(
    dynalite: Dynalite, monkeypatch: pytest.MonkeyPatch, overlap: str, extra: int
) -> None:
    store, clock = dynalite.new_table(), SettableClock("2026-11-29T12:00:05Z")
    for name, value in (dynalite.environ | {"ANARCHON_TABLE": store.table}).items():
        monkeypatch.setenv(name, value)

    @job("export", overlap=overlap)
    def handler(run: Run) -> None:
        for cursor in range(10):
            run.save(cursor)

    with metering() as metered:
        handler(scheduler_event("export", SLOT), LambdaContext("60s", clock=clock))
    assert (10 + extra, 10 + extra) == (metered.calls.total(), metered.units)


def test_a_run_with_long_names_stays_under_a_kilobyte(store: Store, clock: SettableClock) -> None:
    """A write is billed by the size of its item, to the next kilobyte."""
    name = "x" * 31 + ":" + "y" * 32

    @job(name.partition(":")[0])
    def handler(run: Run) -> None:
        run.save({"last_evaluated": "customer#0123456789abcdef", "page": 1_000}, done=1, total=9)

    event = scheduler_event(name, SLOT) | {
        "schedule": f"arn:aws:scheduler:eu-central-1:123456789012:schedule/{'g' * 40}/{'s' * 40}"
    }
    context = LambdaContext("60s", clock=clock, function_name="f" * 60)
    assert handler(event, context)["outcome"] == "succeeded"
    item = store._read(RunKey(name, SLOT), 0)
    assert item is not None
    assert size_bytes(item) < KILOBYTE


def size_bytes(item: dict[str, dict[str, str]]) -> int:
    """Return the size of an item of strings and numbers as DynamoDB bills it.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(
        len(name.encode())
        + (len(value["S"].encode()) if "S" in value else len(value["N"]) // 2 + 2)
        for name, value in item.items()
    )


def test_the_floor_sends_the_very_writes_that_a_run_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the two bounds below would compare two different things."""
    sent: list[dict[str, Any]] = []

    def noted(request: Any, **_: object) -> Any:
        sent.append(json.loads(request.body))
        return answer(request)

    answer = counted.answer
    monkeypatch.setattr(counted, "answer", noted)
    for name, value in counted.SETTINGS.items():
        monkeypatch.setenv(name, value)
    counted.floors(lambda: None)
    floor = {what(request) for request in sent}
    sent.clear()
    counted.ours(lambda: None)
    ours = {what(request) for request in sent if request["Key"]["sk"]["S"] != "head"}
    # The first save of an attempt also tells how long batches take.
    assert floor == {write for write in ours if "longest_batch_ms" not in write}


def what(request: dict[str, Any]) -> str:
    """Return what a write says, without the values that differ from run to run."""
    values = sorted(request["ExpressionAttributeValues"])
    told = ("UpdateExpression", "ConditionExpression", "ExpressionAttributeNames", "ReturnValues")
    return json.dumps([values, *(request[name] for name in told)], sort_keys=True)


def test_a_save_calls_fewer_functions_than_the_same_write_by_hand() -> None:
    found = counted.calls()
    assert found.ratio <= MOST_CALLS, found


@pytest.mark.timeout(600)  # half a minute of CPU, which others may have, too
def test_a_save_executes_no_more_than_the_same_write_by_hand(tmp_path: Path) -> None:
    if shutil.which("valgrind") is None:
        if os.environ.get("CI"):
            pytest.fail("valgrind counts the instructions of a save: install it")
        pytest.skip("valgrind counts the instructions of a save: install it to have this guard")
    found = counted.instructions(tmp_path)
    assert found.ratio <= MOST_INSTRUCTIONS, found
