"""A holder that was overtaken: none of its writes is stored, and the item stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anarchon_ddb import LeaseLost, Run, StopEarly, ending, worker
from anarchon_ddb.options import Options
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, scheduler_event
from tests.conftest import KEY, SLOT

Contexts = Callable[..., LambdaContext]


class Holder:
    """An attempt stopped in the middle of its handler, as a frozen sandbox is."""

    def __init__(self, store: Store, context: LambdaContext, event: dict[str, Any]) -> None:
        definition = worker.JobDefinition("export", lambda _run: None, Options())
        delivery = worker.parse_event(event, "export", now=context.clock.now)  # type: ignore[attr-defined]
        assert delivery is not None
        self._invocation = worker.Invocation(definition, delivery, context, store, context.clock)
        claimed = self._invocation._claim()
        assert isinstance(claimed, worker.RunRecord)
        self.held = self._invocation._held(claimed)
        self.run: Run = self._invocation._run(self.held)


@pytest.fixture
def two(store: Store, context: Contexts, clock: SettableClock) -> Iterator[tuple[Holder, Holder]]:
    """A holds, saves 100, stalls; B takes over and saves 180."""
    event = scheduler_event("export", SLOT)
    a = Holder(store, context("15m"), event)
    a.run.save(100)
    clock.advance(seconds=70)
    b = Holder(store, context("15m"), event)
    b.run.save(180)
    return iter([(a, b)])


@pytest.fixture
def pair(two: Iterator[tuple[Holder, Holder]]) -> tuple[Holder, Holder]:
    return next(two)


def item(store: Store) -> Any:
    return store.client.get_item(TableName=store.table, Key=KEY.wire)["Item"]


def test_C27_its_save_is_refused_and_its_local_state_does_not_move(
    store: Store, pair: tuple[Holder, Holder]
) -> None:
    before = item(store)
    with pytest.raises(LeaseLost, match="attempt 1 was overtaken"):
        pair[0].run.save(120)
    with pytest.raises(LeaseLost):
        pair[0].run.save(121)
    assert before == item(store)
    assert pair[0].run.checkpoint == 100
    assert (pair[0].run.fencing_token, pair[1].run.fencing_token) == (1, 2)


def test_its_renewal_is_refused_and_stops_it(store: Store, pair: tuple[Holder, Holder]) -> None:
    before = item(store)
    with pytest.raises(LeaseLost):
        pair[0].held.lease.renew()
    assert before == item(store)
    assert pair[0].run.should_stop
    with pytest.raises(LeaseLost):
        pair[0].run.raise_if_stopping()


def test_C25_its_end_is_refused_and_told_as_lost(store: Store, pair: tuple[Holder, Holder]) -> None:
    before = item(store)
    assert ending.end(pair[0].held, None, has_progressed=True).answer["outcome"] == "lost"
    assert before == item(store)
    assert ending.end(pair[1].held, None, has_progressed=True).answer["outcome"] == "succeeded"


def test_its_interruption_is_refused(store: Store, pair: tuple[Holder, Holder]) -> None:
    before = item(store)
    assert ending.end(pair[0].held, StopEarly("x"), has_progressed=True).answer["outcome"] == "lost"
    assert before == item(store)


def test_its_failure_is_refused_and_still_raised(store: Store, pair: tuple[Holder, Holder]) -> None:
    before = item(store)
    ended = ending.end(pair[0].held, ValueError("boom"), has_progressed=True)
    assert isinstance(ended.raised, ValueError)
    assert not ended.is_terminal
    assert before == item(store)


def test_C25_a_third_is_refused_while_the_successor_works(
    store: Store, pair: tuple[Holder, Holder], context: Contexts
) -> None:
    ending.end(pair[0].held, None, has_progressed=True)
    with pytest.raises(AssertionError):
        Holder(store, context("15m"), scheduler_event("export", SLOT))


def test_a_takeover_leaves_the_checkpoint_and_tells_the_predecessor_lost(
    store: Store, pair: tuple[Holder, Holder]
) -> None:
    assert pair[1].run.checkpoint == 180
    record = store.read_run(KEY)
    assert record is not None
    assert [(attempt.number, attempt.end) for attempt in record.attempts] == [(1, "lost")]
