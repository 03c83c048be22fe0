"""What the tests share: an embedded DynamoDB with one lock around it, a clock, counted calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import botocore.client
import pytest
from botocore.loaders import JSONFileLoader
from moto import mock_aws
from moto.dynamodb.responses import DynamoHandler

from anarchon_ddb import worker
from anarchon_ddb.records import RunRecord
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock
from tests.dynalite import Dynalite, require
from tests.faults import Faults

SLOT = "2026-11-29T12:00:00Z"
KEY = RunKey("export", SLOT)


@pytest.fixture(autouse=True, scope="session")
def service_models_read_once() -> Iterator[None]:
    """Each test has AWS sessions of its own; the models that they read are the same files."""
    with pytest.MonkeyPatch.context() as patch:
        read = cache(JSONFileLoader().load_file)
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: read(path))
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("ANARCHON_", "AWS_", "POWERTOOLS_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(worker, "_store", None)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """moto, its DynamoDB made atomic: its conditional writes are not, under threads."""
    lock = threading.Lock()
    original = DynamoHandler.call_action

    def locked(self: DynamoHandler) -> Any:
        with lock:
            return original(self)

    monkeypatch.setattr(DynamoHandler, "call_action", locked)
    with mock_aws():
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        yield


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock("2026-11-29T12:00:05Z")


@pytest.fixture
def store(aws: None, monkeypatch: pytest.MonkeyPatch, clock: SettableClock) -> Store:
    """The table of the template, empty."""
    monkeypatch.setenv("ANARCHON_TABLE", "anarchon")
    made = Store.from_environment(clock=clock)
    made.create_table()
    return made


@pytest.fixture
def context(clock: SettableClock) -> Callable[..., LambdaContext]:
    """Make a context on the test's clock."""

    def make(timeout: str = "60s", **options: Any) -> LambdaContext:
        return LambdaContext(timeout, clock=clock, **options)

    return make


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of each call that any botocore client made."""
    made: list[str] = []
    original = botocore.client.BaseClient._make_api_call

    def counted(self: Any, operation: str, arguments: Any) -> Any:
        made.append(operation)
        return original(self, operation, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", counted)
    return made


@pytest.fixture
def faults(aws: None) -> Iterator[Faults]:
    """Faults at the wire: the SDK's own retries see them."""
    with Faults() as installed:
        yield installed


@pytest.fixture(scope="session")
def dynalite() -> Iterator[Dynalite]:
    """A server for the whole session; each test makes a table of its own."""
    require()
    with Dynalite() as server:
        yield server


def read(store: Store, slot: str = SLOT, job: str = "export") -> RunRecord:
    record = store.read_run(RunKey(job, slot))
    assert record is not None
    return record
