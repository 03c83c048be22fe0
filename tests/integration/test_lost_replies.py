"""A reply that is lost after the server applied the write: the SDK's own retry is refused.

Claim, let go and finish are not idempotent under that retry; the stored owner and attempt decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anarchon_ddb import Run, StoreError, job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, scheduler_event
from tests.conftest import SLOT, read
from tests.faults import Faults

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
