"""The package leaves its user's process and tests as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from anarchon_ddb import Run, job, schema
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, scheduler_event
from tests.conftest import SLOT

ROOT = Path(__file__).parents[2]


def python(code: str, **environ: str) -> str:
    """Run code in a fresh interpreter without any AWS setting."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | {"HOME": "/nonexistent"} | environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_a_handler_needs_no_region_and_makes_no_client() -> None:
    code = """
import botocore.session, logging, threading
made = []
original = botocore.session.Session.create_client
botocore.session.Session.create_client = lambda *a, **k: made.append(a) or original(*a, **k)
root = (list(logging.root.handlers), logging.root.level, list(logging.root.filters))
import handlers.export
assert not made, made
assert root == (list(logging.root.handlers), logging.root.level, list(logging.root.filters))
assert threading.active_count() == 1
"""
    python(code)


def test_a_handlers_import_loads_nothing_heavy() -> None:
    code = "import sys, handlers.export; print('\\n'.join(sys.modules))"
    loaded = {name.partition(".")[0] for name in python(code).split()}
    heavy = {"rich", "moto", "pydantic", "flask", "werkzeug", "yaml", "pytest", "aws_xray_sdk"}
    assert set() == heavy & loaded
    names = set(python(code).split())
    assert set() == {name for name in names if name.startswith(("anarchon_ddb.cli",
                     "anarchon_ddb.local", "anarchon_ddb.testing"))}  # fmt: skip


def test_a_handlers_import_loads_nothing_of_schedules() -> None:
    code = "import sys, handlers.export; print('\\n'.join(sys.modules))"
    modules = ("registry", "schedule", "schedule_text", "slots", "cron", "zones")
    loaded = set(python(code).split())
    assert "anarchon_ddb.run" in loaded
    assert set() == {f"anarchon_ddb.{name}" for name in modules} & loaded


def test_in_lambda_the_client_is_made_during_init_and_an_empty_table_found_there() -> None:
    code = """
import botocore.session
made = []
original = botocore.session.Session.create_client
botocore.session.Session.create_client = lambda s, n, *a, **k: made.append(n) or original(
    s, n, *a, **k)
from anarchon_ddb import StoreError
try:
    import handlers.export
    print(made)
except StoreError as error:
    print(error)
"""
    lambda_ = {"AWS_LAMBDA_RUNTIME_API": "localhost:1", "AWS_DEFAULT_REGION": "eu-west-1"}
    assert python(code, ANARCHON_TABLE="t", **lambda_).strip() == "['dynamodb']"
    assert "ANARCHON_TABLE is not set" in python(code, ANARCHON_TABLE="", **lambda_)
    del lambda_["AWS_DEFAULT_REGION"]
    assert "unknown (set AWS_DEFAULT_REGION)" in python(code, ANARCHON_TABLE="t", **lambda_)


def test_the_users_own_powertools_objects_are_not_touched(
    store: Store, context: Callable[..., LambdaContext], capsys: pytest.CaptureFixture[str]
) -> None:
    from aws_lambda_powertools import Logger, Metrics  # noqa: PLC0415

    metrics = Metrics(namespace="Mine", service="mine")
    metrics.add_metric("Orders", "Count", 1)
    logger = Logger(service="mine")
    logger.append_keys(order=7)

    @job("export")
    def handler(run: Run) -> None:
        logger.info("mine")
        run.logger.info("theirs")

    handler(scheduler_event("export", SLOT), context())
    assert list(metrics.serialize_metric_set()["_aws"]["CloudWatchMetrics"][0]["Metrics"]) == [
        {"Name": "Orders", "Unit": "Count"}
    ]
    metrics.clear_metrics()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if '"message":"mine"' in line and '"order":7' in line]
    assert not [line for line in lines if '"message":"theirs"' in line and "order" in line]


def test_the_root_loggers_handlers_get_no_filter(
    store: Store, context: Callable[..., LambdaContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import logging
handler = logging.StreamHandler()
logging.root.addHandler(handler)
from anarchon_ddb import logs
logs.logger().info("a line")
assert handler.filters == [], handler.filters
assert logging.root.handlers == [handler]
"""
    python(code)


def resources() -> dict[str, Any]:
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, suffix, node: (suffix, node.value))
    template = yaml.load((ROOT / "infra/table.yaml").read_text(), Loader)
    found: dict[str, Any] = template["Resources"]
    return found


def test_create_table_makes_exactly_the_table_of_the_template(store: Store) -> None:
    properties = resources()["Table"]["Properties"]
    description = schema.table_description("any")
    for name in ("BillingMode", "KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes"):
        assert properties[name] == description[name]
    assert properties["TimeToLiveSpecification"] == {
        "AttributeName": schema.TTL_ATTRIBUTE,
        "Enabled": True,
    }
    made = store.client.describe_table(TableName=store.table)["Table"]
    assert made["KeySchema"] == properties["KeySchema"]
    ttl = store.client.describe_time_to_live(TableName=store.table)["TimeToLiveDescription"]
    assert ttl["AttributeName"] == "expires_at"
