"""A pass of the resumer over many open runs, on locked moto."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from moto import mock_aws
from moto.dynamodb.responses import DynamoHandler

from anarchon_ddb import dispatch, resumer
from anarchon_ddb.clock import iso, to_ms
from anarchon_ddb.schema import to_wire
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext
from tests.bench.endpoint import metering, quiet, require
from tests.bench.measure import Bench, Figure, Goal, number

OPEN, DUE, AT_ONCE = 10_000, 100, 25
SENT_NOTE = "What the pass sends is taken down here, not sent: the embedded AWS runs no Lambda."


@contextmanager
def locked_moto() -> Iterator[None]:
    """moto, its DynamoDB under one lock: its conditional writes are not atomic under threads."""
    lock, original = threading.Lock(), DynamoHandler.call_action

    def locked(self: DynamoHandler) -> Any:
        with lock:
            return original(self)

    settings = {"AWS_DEFAULT_REGION": "eu-west-1", "ANARCHON_TABLE": "anarchon"}
    atomic = patch.object(DynamoHandler, "call_action", locked)
    with atomic, patch.dict(os.environ, settings), mock_aws():
        yield


def resumer_pass(bench: Bench) -> Iterator[Figure]:
    """The resumer over 10,000 open runs, 100 of them due."""
    taken_s, made = [], []
    for round_number in range(bench.rounds):
        bench.tell(f"round {round_number + 1} of {bench.rounds}")
        took_s, calls = _pass()
        taken_s.append(took_s)
        made.append(calls)
    yield number("a pass over 10,000 open runs, 100 due, locked moto", taken_s, "s", goal=Goal(10))
    bound = 3 * DUE + 10
    yield number("its calls: three for each that is due, and the index", made, "calls",
                 goal=Goal(bound), note=SENT_NOTE)  # fmt: skip


def _pass() -> tuple[float, int]:
    sent: list[str] = []

    def send(_store: Store, _function: str, event: Any) -> None:
        sent.append(event["slot"])

    with locked_moto(), patch.object(dispatch, "invoke", send), quiet():
        store = Store("anarchon")
        store.create_table()
        _fill(store)
        with metering() as metered:
            begin_s = time.perf_counter()
            counts = resumer.handler({}, LambdaContext("50s"))
            took_s = time.perf_counter() - begin_s
    require(is_right=(counts["open"], counts["sent"]) == (DUE, DUE), found=counts)
    require(is_right=len(set(sent)) == DUE, found=Counter(sent))
    return took_s, metered.calls.total()


def _fill(store: Store) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    items = [_item(now, number_of_run) for number_of_run in range(OPEN)]
    for first in range(0, OPEN, AT_ONCE):
        puts = [{"PutRequest": {"Item": item}} for item in items[first : first + AT_ONCE]]
        store.client.batch_write_item(RequestItems={store.table: puts})


def _item(now: datetime, number_of_run: int) -> dict[str, Any]:
    is_due = number_of_run % (OPEN // DUE) == 0
    now_ms = to_ms(now)
    attributes = {
        "pk": "job#export",
        "sk": f"run#{iso(now - timedelta(seconds=number_of_run))}",
        "state": "interrupted" if is_due else "retrying",
        "attempt": 1,
        "lease_until": 0 if is_due else now_ms + 3_600_000,
        "open": str(number_of_run % 4),
        "due": now_ms - 1 if is_due else now_ms + 3_600_000,
        "claimed_at": now_ms,
        "started_at": now_ms,
        "function": "arn:aws:lambda:eu-west-1:123456789012:function:stack-export",
    }
    return {name: to_wire(value) for name, value in attributes.items()}
