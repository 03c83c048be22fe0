"""What a run costs, counted at botocore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from anarchon_ddb import Run, job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, scheduler_event
from tests.conftest import SLOT

EVENT = scheduler_event("export", SLOT)
Contexts = Callable[..., LambdaContext]


@pytest.mark.parametrize("batches", [0, 1, 10])
@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_run_of_N_batches_makes_N_plus_4_writes_and_no_read(
    store: Store, context: Contexts, calls: list[str], batches: int, overlap: Any
) -> None:
    @job("export", overlap=overlap)
    def handler(run: Run) -> None:
        for cursor in range(batches):
            run.save(cursor)

    handler(EVENT, context())
    assert Counter(UpdateItem=batches + 4) == Counter(calls)


@pytest.mark.parametrize("batches", [0, 1, 10])
def test_a_run_of_N_batches_makes_N_plus_3_calls_where_overlap_is_allowed(
    store: Store, context: Contexts, calls: list[str], batches: int
) -> None:
    @job("export", overlap="allow")
    def handler(run: Run) -> None:
        for cursor in range(batches):
            run.save(cursor)

    handler(EVENT, context())
    assert Counter(UpdateItem=batches + 2, GetItem=1) == Counter(calls)


def test_C63_a_duplicate_makes_one_write_and_one_read(
    store: Store, context: Contexts, calls: list[str], clock: SettableClock
) -> None:
    counted: list[Counter[str]] = []

    @job("export")
    def handler(run: Run) -> None:
        before_ms = clock.now_ms()
        calls.clear()
        assert handler(EVENT, context())["outcome"] == "busy"
        counted.append(Counter(calls))
        assert before_ms == clock.now_ms()  # nothing waited

    handler(EVENT, context())
    calls.clear()
    assert handler(EVENT, context())["outcome"] == "duplicate"
    counted.append(Counter(calls))
    assert [Counter(UpdateItem=1, GetItem=1)] * 2 == counted


def test_C62_every_read_of_the_base_table_is_consistent(
    store: Store, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    original = Store._call

    def spied(self: Store, operation: str, request: dict[str, object]) -> object:
        if operation == "GetItem":
            asked.append(request.get("ConsistentRead") is True)
        return original(self, operation, request)

    monkeypatch.setattr(Store, "_call", spied)

    @job("export")
    def handler(run: Run) -> None:
        handler(EVENT, context())

    handler(EVENT, context())
    assert asked == [True]
