"""A save sends what changes, and no more: every byte of it is parsed at both ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anarchon_ddb import Run, StoreError, job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT, read
from tests.faults import Faults

EVENT = scheduler_event("export", SLOT)
RESUME = resume_event("export", SLOT)
Contexts = Callable[..., LambdaContext]


def sent(faults: Faults) -> list[set[str]]:
    """Return which of these each save had."""
    looked_for = ("longest_batch_ms", "longest_save_ms", "strikes", "attempts", "done")
    saves = [request.body for request in faults.seen if request.write == "save"]
    return [
        {name for name in looked_for if f"#{name} = " in body["UpdateExpression"]} for body in saves
    ]


PACE = {"longest_batch_ms", "longest_save_ms"}


def test_the_pace_is_sent_by_the_first_save_and_when_it_changed(
    store: Store, context: Contexts, clock: SettableClock, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        for cursor, took_s in enumerate((2, 1, 2, 3, 3)):
            clock.advance(seconds=took_s)
            run.save(cursor)

    handler(EVENT, context("15m"))
    assert sent(faults) == [PACE, set(), set(), PACE, set()]
    assert read(store).longest_batch_ms == 3_000


def test_strikes_are_reset_once(
    store: Store, context: Contexts, clock: SettableClock, faults: Faults
) -> None:
    seen: list[int] = []

    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        seen.append(read(store).strikes)
        if run.attempt == 1:
            raise ValueError("boom")
        for cursor in (1, 1, 2):
            run.save(cursor)
            seen.append(read(store).strikes)

    with pytest.raises(ValueError, match="boom"):
        handler(EVENT, context())
    assert handler(RESUME, context())["outcome"] == "succeeded"
    assert seen == [1, 2, 1, 1, 1]
    # The history of the attempt before goes with the first one, too.
    assert [names & {"strikes"} for names in sent(faults)] == [{"strikes"}, set(), set()]


def test_what_was_sent_without_an_answer_is_sent_again(
    store: Store, context: Contexts, faults: Faults
) -> None:
    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        if run.attempt == 1:
            raise ValueError("boom")
        with pytest.raises(StoreError):
            run.save(1)
        run.save(2)

    with pytest.raises(ValueError, match="boom"):
        handler(EVENT, context())
    faults.answer("save", "AccessDeniedException")
    handler(RESUME, context())
    assert sent(faults) == [PACE | {"strikes"}] * 2
    assert read(store).strikes == 1


def test_no_write_and_no_read_asks_for_the_units_that_it_consumed(
    store: Store, context: Contexts, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        handler(EVENT, context())
        run.save(1)

    handler(EVENT, context())
    assert {request.body["ReturnConsumedCapacity"] for request in faults.seen} == {"NONE"}
