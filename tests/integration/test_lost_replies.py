"""A reply that is lost after the server applied the write: the SDK's own retry is refused.

Claim, let go and finish are not idempotent under that retry; the stored owner and attempt decide.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from anarchon_ddb import Run, StoreError, job, operations
from anarchon_ddb.errors import RefusedError
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, scheduler_event
from tests.conftest import KEY, SLOT, read
from tests.faults import Faults, Request

EVENT = scheduler_event("export", SLOT)
Contexts = Callable[..., LambdaContext]


@pytest.mark.parametrize("write", ["claim", "save", "finish"])
def test_C19_a_lost_reply_changes_nothing(
    store: Store, context: Contexts, faults: Faults, write: str
) -> None:
    ran = []

    @job("export")
    def handler(run: Run) -> None:
        ran.append(run.attempt)
        run.save(1)
        run.save(2)

    faults.lose_reply(write)
    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert ran == [1]
    record = read(store)
    assert (record.state, record.checkpoint, record.attempt) == ("succeeded", "2", 1)
    sent = [request for request in faults.seen if request.write == write]
    assert len(sent) > len({"claim": [1], "save": [1, 2], "finish": [1]}[write])


def test_C19_a_lost_reply_of_a_renewal_loses_no_lease(
    store: Store, context: Contexts, clock: SettableClock, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        clock.advance(seconds=30)
        run._lease.renew()
        assert read(store).lease_until == clock.now_ms() + 60_000
        run.save(1)

    faults.lose_reply("renew")
    assert handler(EVENT, context("15m"))["outcome"] == "succeeded"


def test_C19_a_lost_reply_of_an_interruption_is_an_interruption(
    store: Store, context: Contexts, clock: SettableClock, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        clock.advance(seconds=55)
        run.save(1)

    faults.lose_reply("let_go")
    assert handler(EVENT, context())["outcome"] == "interrupted"
    assert read(store).state == "interrupted"


def test_a_finish_of_which_every_reply_is_lost_is_unknown_not_lost(
    store: Store, context: Contexts, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save(1)

    faults.lose_reply("finish", times=99)
    with pytest.raises(StoreError, match="ReadTimeoutError"):
        handler(EVENT, context())
    assert read(store).state == "succeeded"


def test_a_claim_that_never_arrives_is_an_error_and_the_handler_does_not_run(
    store: Store, context: Contexts, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        pytest.fail("ran")

    faults.answer("claim", "InternalServerError", status=500, times=99)
    with pytest.raises(StoreError, match="InternalServerError"):
        handler(EVENT, context())


def test_a_save_that_is_denied_ends_the_attempt_as_failed(
    store: Store, context: Contexts, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save(1)
        faults.answer("save", "AccessDeniedException")
        run.save(2)

    with pytest.raises(StoreError, match="Grant dynamodb:UpdateItem"):
        handler(EVENT, context())
    record = read(store)
    assert (record.state, record.checkpoint) == ("retrying", "1")
    assert "AccessDenied" in (record.error or "")


def test_a_delayed_copy_of_an_older_save_is_refused(
    store: Store, context: Contexts, clock: SettableClock
) -> None:
    """What a retry inside the SDK may do: the first copy arrives after the next save."""
    copies: list[dict[str, Any]] = []

    @job("export")
    def handler(run: Run) -> None:
        with Faults() as wire:
            run.save(1)
            copies.extend(request.body for request in wire.seen)
        run.save(2)
        with pytest.raises(store.client.exceptions.ConditionalCheckFailedException):
            store.client.update_item(**copies[0])

    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert read(store).checkpoint == "2"


# --- a person's writes -------------------------------------------------------------------------

WHEN = datetime.fromisoformat(SLOT)


def _is_a_persons(request: Request) -> bool:
    return "#mark = :mark" in request.body.get("UpdateExpression", "")


def _failed(store: Store, context: Contexts) -> None:
    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(EVENT, context())


def _interrupted(store: Store, context: Contexts) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save(1)
        spare.remaining_ms = 1
        run.save(2)

    spare = context()
    assert handler(EVENT, spare)["outcome"] == "interrupted"


def _held(store: Store, context: Contexts) -> None:
    claim = {"state": {"S": "running"}, "attempt": {"N": "1"}, "owner": {"S": "somebody"}}
    until = {"lease_until": {"N": str(2**42)}, "claimed_at": {"N": "1"}}
    store.client.put_item(TableName=store.table, Item=KEY.wire | claim | until)


@pytest.mark.parametrize(
    ("begin", "act", "state"),
    [
        (_failed, lambda store: operations.retry(store, "export", WHEN), "pending"),
        (_interrupted, lambda store: operations.cancel(store, "export", WHEN), "cancelled"),
        (_interrupted, lambda store: operations.rewind(store, "export", WHEN, 7), "interrupted"),
        (_held, lambda store: operations.release(store, "export", WHEN), "interrupted"),
        (_held, lambda store: operations.cancel(store, "export", WHEN), "running"),
    ],
    ids=["retry", "cancel", "rewind", "release", "ask to stop"],
)
def test_a_persons_write_whose_reply_is_lost_is_known_as_theirs(
    store: Store,
    context: Contexts,
    faults: Faults,
    begin: Callable[[Store, Contexts], None],
    act: Callable[[Store], object],
    state: str,
) -> None:
    begin(store, context)
    faults.lose_reply_of(_is_a_persons)
    act(store)
    assert read(store).state == state


def test_a_pause_and_its_end_are_known_as_theirs(store: Store, faults: Faults) -> None:
    for act in (operations.pause, operations.unpause):
        faults.lose_reply_of(_is_a_persons)
        act(store, "export")
    assert store.read_head("export").paused_until == 0


def test_the_same_wish_of_somebody_else_is_not_taken_for_ones_own(
    store: Store, context: Contexts, faults: Faults
) -> None:
    _failed(store, context)
    sent: list[Request] = []

    def other(request: Request) -> None:
        if "#cause = :retry" in request.body.get("UpdateExpression", "") and not sent:
            sent.append(request)
            operations.retry(store, "export", WHEN)

    faults._before.append(other)
    with pytest.raises(RefusedError, match="changed meanwhile"):
        operations.retry(store, "export", WHEN)
