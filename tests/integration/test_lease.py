"""The heartbeat: a lease is renewed while the handler works and no save has done so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from anarchon_ddb import Run, StoreError, job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, scheduler_event
from tests.conftest import SLOT, read
from tests.faults import Faults

EVENT = scheduler_event("export", SLOT)


def now_event() -> dict[str, Any]:
    from datetime import UTC, datetime  # noqa: PLC0415

    return scheduler_event("export", datetime.now(UTC).replace(microsecond=0))


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released at each renewal that the thread made, so that a test waits for it, not for time."""
    made = threading.Semaphore(0)
    original = __import__("anarchon_ddb.lease", fromlist=["Lease"]).Lease._renew_in_thread

    def counted(self: Any, third_ms: int) -> float:
        wait_s: float = original(self, third_ms)
        made.release()
        return wait_s

    monkeypatch.setattr("anarchon_ddb.lease.Lease._renew_in_thread", counted)
    return made


def test_the_heartbeat_renews_a_lease_shorter_than_the_work(
    store: Store, renewals: threading.Semaphore
) -> None:
    ends: list[int] = []

    @job("export", lease="1s")
    def handler(run: Run) -> None:
        key = run._lease.key
        for _ in range(3):
            assert renewals.acquire(timeout=20)
            record = store.read_run(key)
            assert record is not None
            ends.append(record.lease_until)
        run.save(1)

    assert handler(now_event(), LambdaContext("60s"))["outcome"] == "succeeded"
    assert sorted(set(ends)) == ends


def test_the_thread_has_ended_before_the_run_is(store: Store) -> None:
    before = threading.active_count()

    @job("export", lease="1s")
    def handler(run: Run) -> None:
        assert any(thread.name == "anarchon-lease" for thread in threading.enumerate())

    handler(now_event(), LambdaContext("60s"))
    assert before == threading.active_count()


def test_no_thread_is_left_by_a_handler_that_raises(store: Store) -> None:
    before = threading.active_count()

    @job("export")
    def handler(run: Run) -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(now_event(), LambdaContext("60s"))
    assert before == threading.active_count()


def test_C54_a_renewal_that_is_denied_stops_the_work_as_failed(
    store: Store, renewals: threading.Semaphore, faults: Faults
) -> None:
    faults.answer("renew", "AccessDeniedException", times=9)

    @job("export", lease="1s")
    def handler(run: Run) -> None:
        assert renewals.acquire(timeout=20)
        run.save(1)
        pytest.fail("went on unprotected")

    with pytest.raises(StoreError, match="Grant dynamodb:UpdateItem"):
        handler(now_event(), LambdaContext("60s"))


def test_a_renewal_that_is_throttled_is_tried_again(
    store: Store, renewals: threading.Semaphore, faults: Faults
) -> None:
    faults.answer("renew", "ThrottlingException", times=3)

    @job("export", lease="1s")
    def handler(run: Run) -> None:
        for _ in range(2):
            assert renewals.acquire(timeout=20)
        run.save(1)

    assert handler(now_event(), LambdaContext("60s"))["outcome"] == "succeeded"


def test_saves_and_renewals_of_two_threads_keep_their_order(
    store: Store, context: Callable[..., LambdaContext]
) -> None:
    """One lock: without it a save that overtakes a renewal would be refused as a stale copy."""

    @job("export")
    def handler(run: Run) -> None:
        def renew() -> None:
            for _ in range(40):
                run._lease.renew()

        threads = [threading.Thread(target=renew) for _ in range(3)]
        for thread in threads:
            thread.start()
        for cursor in range(40):
            run.save(cursor)
        for thread in threads:
            thread.join()

    assert handler(EVENT, context("15m"))["outcome"] == "succeeded"
    assert (read(store).seq, read(store).checkpoint) == (160, "39")
