"""Withheld saves: fewer writes, and everything that a stored save is for still happens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from anarchon_ddb import (
    CheckpointError,
    CheckpointTooLargeError,
    CommitError,
    InvalidJobError,
    LeaseLost,
    Run,
    StopEarly,
    StoreError,
    job,
    operations,
)
from anarchon_ddb.job import Job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import (
    CrashFound,
    LambdaContext,
    SettableClock,
    drive,
    explore_crashes,
    outside,
    resume_event,
    scheduler_event,
)
from tests.conftest import SLOT, read
from tests.faults import Faults
from tests.integration.test_lease import now_event, renewals  # noqa: F401  a fixture

EVENT = scheduler_event("export", SLOT)
AT = datetime.fromisoformat(SLOT)
Contexts = Callable[..., LambdaContext]


def cursors(faults: Faults) -> list[str]:
    """Return the cursors that were written, in order."""
    stored = (request.body.get("ExpressionAttributeValues", {}) for request in faults.seen)
    return [values[":checkpoint"]["S"] for values in stored if ":checkpoint" in values]


# --- what it costs -----------------------------------------------------------------------------


def test_ten_thousand_batches_of_a_millisecond_make_sixteen_writes(
    store: Store, context: Contexts, calls: list[str], clock: SettableClock
) -> None:
    @job("export", checkpoint_interval="1s")
    def handler(run: Run) -> None:
        for cursor in range(1, 10_001):
            clock.advance(seconds=0.001)
            run.save(cursor, done=cursor, total=10_000)

    assert handler(EVENT, context())["outcome"] == "succeeded"
    # Claim, gate, a save each second, finish, gate; the last batch falls on a full second.
    assert Counter(UpdateItem=10 + 4) == Counter(calls)
    record = read(store)
    assert (record.checkpoint, record.done, record.total) == ("10000", 10_000, 10_000)


def test_without_it_each_save_is_a_write(store: Store, context: Contexts, calls: list[str]) -> None:
    @job("export", checkpoint_interval="0s")
    def handler(run: Run) -> None:
        for cursor in range(10):
            run.save(cursor)

    handler(EVENT, context())
    assert Counter(UpdateItem=10 + 4) == Counter(calls)


def test_batches_longer_than_the_interval_are_saved_each(
    context: Contexts, faults: Faults, store: Store, clock: SettableClock
) -> None:
    @job("export", checkpoint_interval="5s")
    def handler(run: Run) -> None:
        for cursor in range(1, 4):
            clock.advance(seconds=5)
            run.save(cursor)

    handler(EVENT, context())
    assert cursors(faults) == ["1", "2", "3"]


def test_it_is_an_option_like_the_others(
    store: Store, context: Contexts, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANARCHON_CHECKPOINT_INTERVAL", "1s")

    @job("export")
    def handler(run: Run) -> None:
        for cursor in range(10):
            run.save(cursor)

    handler(EVENT, context())
    assert Counter(UpdateItem=1 + 4) == Counter(calls)


@pytest.mark.parametrize("value", [5, "1.5s", timedelta(seconds=-1), None])
def test_a_value_that_is_no_interval_is_told(value: Any) -> None:
    with pytest.raises(InvalidJobError, match="checkpoint_interval"):
        job("export", checkpoint_interval=value)(print)


# --- when the withheld cursor is stored --------------------------------------------------------


def saves(handler_end: Callable[[Run], None], **options: Any) -> Job:
    @job("export", checkpoint_interval="10s", **options)
    def handler(run: Run) -> None:
        for cursor in range(1, 4):
            run.save(cursor, done=cursor * 10)
        handler_end(run)

    return handler


def test_the_last_cursor_is_stored_when_the_handler_returns(
    store: Store, context: Contexts, faults: Faults
) -> None:
    assert saves(lambda run: None)(EVENT, context())["outcome"] == "succeeded"
    assert cursors(faults) == ["3"]
    record = read(store)
    assert (record.checkpoint, record.done, record.attempts[-1].place) == ("3", 30, "30")


def test_it_is_stored_when_the_handler_raises(store: Store, context: Contexts) -> None:
    def fail(run: Run) -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        saves(fail)(EVENT, context())
    record = read(store)
    assert (record.state, record.checkpoint, record.strikes) == ("retrying", "3", 1)


def test_it_is_stored_before_StopEarly_is_raised(
    store: Store, context: Contexts, clock: SettableClock
) -> None:
    stored: list[str | None] = []

    def short_of_time(run: Run) -> None:
        clock.advance(seconds=1)
        spare.remaining_ms = 1_000
        try:
            run.save(4)
        except StopEarly:
            stored.append(read(store).checkpoint)
            raise

    spare = context("60s")
    assert saves(short_of_time)(EVENT, spare)["outcome"] == "interrupted"
    assert stored == ["4"]
    assert read(store).strikes == 0


def test_it_is_stored_for_a_handler_that_sees_should_stop_and_returns(
    store: Store, context: Contexts
) -> None:
    def sees(run: Run) -> None:
        spare.remaining_ms = 1_000
        assert run.should_stop

    spare = context("60s")
    assert saves(sees)(EVENT, spare)["outcome"] == "interrupted"
    assert read(store).checkpoint == "3"


def test_it_is_stored_with_the_time_at_which_it_was_given(
    store: Store, context: Contexts, clock: SettableClock
) -> None:
    before_ms = clock.now_ms()
    saves(lambda run: clock.advance(seconds=3))(EVENT, context())
    assert read(store).checkpoint_at == before_ms


def test_what_each_save_told_is_kept(store: Store, context: Contexts) -> None:
    @job("export", checkpoint_interval="10s")
    def handler(run: Run) -> None:
        run.save(1, done=10, total=40)
        run.save(2, done=20)
        run.save(3)

    handler(EVENT, context())
    record = read(store)
    assert (record.checkpoint, record.done, record.total) == ("3", 20, 40)


def test_a_restart_forgets_it_as_well(store: Store, context: Contexts, faults: Faults) -> None:
    assert saves(lambda run: run.restart())(EVENT, context())["outcome"] == "succeeded"
    assert (cursors(faults), read(store).checkpoint) == ([], None)


def test_pages_are_saved_in_intervals_and_the_last_one_at_the_end(
    store: Store, context: Contexts, faults: Faults, clock: SettableClock
) -> None:
    for number in range(6):
        key = {"pk": {"S": "rows"}, "sk": {"S": str(number)}}
        store.client.put_item(TableName=store.table, Item=key)

    @job("export", checkpoint_interval="10s")
    def handler(run: Run) -> None:
        query = {"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {
            ":pk": {"S": "rows"}}}  # fmt: skip
        for _ in run.paginate(store.client, "query", TableName="anarchon", Limit=2, **query):
            clock.advance(seconds=6)

    assert handler(EVENT, context("15m"))["outcome"] == "succeeded"
    assert [text[:20] for text in cursors(faults)] == ['{"ExclusiveStartKey"', "{}"]
    assert read(store).done == 6


# --- the lease ---------------------------------------------------------------------------------


def test_the_lease_is_renewed_by_a_save_after_a_third_of_it_however_long_the_interval(
    store: Store, context: Contexts, faults: Faults, clock: SettableClock
) -> None:
    ends: list[int] = []

    @job("export", lease="60s", checkpoint_interval="1h")
    def handler(run: Run) -> None:
        for cursor in range(1, 61):
            clock.advance(seconds=1)
            run.save(cursor)
            ends.append(read(store).lease_until - clock.now_ms())

    handler(EVENT, context("15m"))
    assert cursors(faults) == ["20", "40", "60"]
    assert min(ends) > 40_000


def test_the_heartbeat_stores_a_withheld_cursor_with_its_renewal(
    store: Store,
    renewals: threading.Semaphore,  # noqa: F811
) -> None:
    @job("export", lease="1s", checkpoint_interval="1h")
    def handler(run: Run) -> None:
        run.save("first")
        key = run._lease.key
        assert renewals.acquire(timeout=20)
        record = store.read_run(key)
        assert record is not None
        assert record.checkpoint == '"first"'
        seq = record.seq
        assert renewals.acquire(timeout=20)  # nothing is withheld: only the lease
        record = store.read_run(key)
        assert record is not None
        assert (record.checkpoint, record.seq) == ('"first"', seq + 1)

    assert handler(now_event(), LambdaContext("60s"))["outcome"] == "succeeded"


def test_a_long_batch_behind_a_cursor_that_the_heartbeat_stored_is_saved_at_once(
    store: Store, context: Contexts, clock: SettableClock
) -> None:
    """What a kill would repeat counts from the end of the stored batch, not from its write."""

    @job("export", checkpoint_interval="10s")
    def handler(run: Run) -> None:
        run.save(1)
        clock.advance(seconds=19)
        run._lease.renew()
        assert read(store).checkpoint == "1"
        clock.advance(seconds=1)
        run.save(2)
        assert read(store).checkpoint == "2"

    assert handler(EVENT, context("15m"))["outcome"] == "succeeded"


@pytest.mark.parametrize("how", ["cancel", "pause"])
def test_a_stop_that_is_asked_for_is_noticed_within_an_interval(
    store: Store, context: Contexts, clock: SettableClock, how: str
) -> None:
    @job("export", checkpoint_interval="2s")
    def handler(run: Run) -> None:
        for cursor in range(1, 1_000):
            clock.advance(seconds=0.1)
            if cursor == 30:
                ask = {"cancel": lambda: operations.cancel(store, "export", AT),
                       "pause": lambda: operations.pause(store, "export")}  # fmt: skip
                ask[how]()
            run.save(cursor)

    expected = {"cancel": "cancelled", "pause": "interrupted"}
    assert handler(EVENT, context())["outcome"] == expected[how]
    assert read(store).checkpoint == "40"


def test_who_was_frozen_beyond_the_lease_learns_it_at_the_next_save(
    store: Store, context: Contexts, clock: SettableClock
) -> None:
    """A monotonic clock may stand still in a frozen sandbox; the wall clock does not."""
    monotonic_ms = clock.monotonic_ms()
    frozen = SettableClock(SLOT)
    frozen.monotonic_ms = lambda: monotonic_ms  # type: ignore[method-assign]

    @job("export", checkpoint_interval="10s")
    def other(run: Run) -> None:
        run.save(7)

    @job("export", checkpoint_interval="10s")
    def handler(run: Run) -> None:
        run.save(1)
        clock.advance(seconds=70)
        frozen.advance(seconds=75)
        assert other(resume_event("export", SLOT), context())["outcome"] == "succeeded"
        with pytest.raises(LeaseLost):
            run.save(2)
        raise ValueError("went on")

    frozen.advance(seconds=5)
    with pytest.raises(ValueError, match="went on"):
        handler(EVENT, LambdaContext("15m", clock=frozen))
    record = read(store)
    assert (record.state, record.checkpoint) == ("succeeded", "7")


def test_an_overtaken_holder_ends_as_lost_and_stores_nothing_of_what_it_withheld(
    store: Store, context: Contexts, clock: SettableClock
) -> None:
    def is_overtaken(run: Run) -> None:
        operations.release(store, "export", AT)

    assert saves(is_overtaken)(EVENT, context())["outcome"] == "lost"
    assert read(store).checkpoint is None


# --- commit ------------------------------------------------------------------------------------


@pytest.fixture
def put(store: Store) -> Callable[[str], dict[str, Any]]:
    store.client.create_table(
        TableName="totals",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    absent = {"ConditionExpression": "attribute_not_exists(id)"}
    return lambda name: {"Put": {"TableName": "totals", "Item": {"id": {"S": name}}, **absent}}


def test_a_commit_is_stored_at_once_and_what_was_withheld_goes_with_it(
    store: Store, context: Contexts, put: Callable[[str], dict[str, Any]], calls: list[str]
) -> None:
    def commits(run: Run) -> None:
        calls.clear()
        run.commit([put("a")], 4)
        record = read(store)
        assert (record.checkpoint, record.done) == ("4", 30)
        run.commit([put("b")], 5)
        run.save(6)
        assert read(store).checkpoint == "5"

    saves(commits)(EVENT, context())
    assert calls.count("TransactWriteItems") == 2
    assert calls.count("UpdateItem") == 1 + 2  # the cursor 6, then finish and gate
    assert read(store).checkpoint == "6"


def test_a_commit_of_nothing_is_stored_at_once(store: Store, context: Contexts) -> None:
    def commits(run: Run) -> None:
        run.commit([], 4)
        assert read(store).checkpoint == "4"

    saves(commits)(EVENT, context())


def test_a_refused_commit_leaves_what_was_withheld_as_it_was(
    store: Store, context: Contexts, put: Callable[[str], dict[str, Any]]
) -> None:
    def commits(run: Run) -> None:
        store.client.put_item(TableName="totals", Item={"id": {"S": "a"}})
        with pytest.raises(CommitError):
            run.commit([put("a")], 4)

    assert saves(commits)(EVENT, context())["outcome"] == "succeeded"
    assert (read(store).checkpoint, read(store).done) == ("3", 30)


def test_after_a_commit_without_an_answer_nothing_withheld_is_written(
    store: Store, context: Contexts, put: Callable[[str], dict[str, Any]], faults: Faults
) -> None:
    """It may be stored: an older cursor behind it would apply its effects twice."""
    faults.lose_reply("TransactWriteItems", times=99)

    def commits(run: Run) -> None:
        run.commit([put("a")], 4)

    with pytest.raises(StoreError):
        saves(commits)(EVENT, context("15s"))


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cursor", "error"),
    [({1}, CheckpointError), (None, CheckpointError), ("x" * 400_000, CheckpointTooLargeError)],
)
def test_what_is_wrong_with_a_cursor_is_raised_at_its_save(
    store: Store, context: Contexts, cursor: object, error: type[Exception]
) -> None:
    def wrong(run: Run) -> None:
        with pytest.raises(error):
            run.save(cursor)

    assert saves(wrong)(EVENT, context())["outcome"] == "succeeded"
    assert read(store).checkpoint == "3"


def test_a_run_whose_last_cursor_was_not_stored_has_not_succeeded(
    store: Store, context: Contexts, faults: Faults
) -> None:
    faults.answer("save", "AccessDeniedException")
    with pytest.raises(StoreError, match="Grant dynamodb:UpdateItem"):
        saves(lambda run: None)(EVENT, context())
    assert read(store).state == "retrying"


def test_the_handlers_own_error_is_the_one_that_is_raised(
    store: Store, context: Contexts, faults: Faults
) -> None:
    def fail(run: Run) -> None:
        raise ValueError("boom")

    faults.answer("save", "AccessDeniedException")
    with pytest.raises(ValueError, match="boom"):
        saves(fail)(EVENT, context())
    record = read(store)
    assert (record.state, record.error, record.checkpoint) == ("retrying", "ValueError: boom", None)


def test_a_cancel_is_obeyed_although_the_last_cursor_could_not_be_stored(
    store: Store, context: Contexts, faults: Faults, clock: SettableClock
) -> None:
    @job("export", checkpoint_interval="10s")
    def handler(run: Run) -> None:
        operations.cancel(store, "export", AT)
        run._lease.renew()
        run.save(1)
        pytest.fail("went on")

    faults.answer("save", "AccessDeniedException", times=9)
    assert handler(EVENT, context())["outcome"] == "cancelled"
    assert read(store).state == "cancelled"


@pytest.mark.parametrize("last", ["save", "restart"])
def test_no_older_cursor_follows_one_whose_answer_was_lost(
    store: Store, context: Contexts, faults: Faults, clock: SettableClock, last: str
) -> None:
    """It may be stored: the withheld one behind it would move the checkpoint back."""

    @job("export", checkpoint_interval="10s")
    def handler(run: Run) -> None:
        run.save(1)
        clock.advance(seconds=11)
        spare.remaining_ms = 2_000  # no time for tries beyond the SDK's own
        faults.lose_reply("save", times=3)
        run.save(2) if last == "save" else run.restart()

    spare = context("15m")
    with pytest.raises(StoreError):
        handler(EVENT, spare)
    record = read(store)
    assert (record.state, record.checkpoint) == ("retrying", "2" if last == "save" else None)


# --- kills -------------------------------------------------------------------------------------

done: list[int] = []


@outside
def do(batch: int) -> None:
    done.append(batch)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def ticking(clock: SettableClock, **options: Any) -> Job:
    @job("export", **options)
    def handler(run: Run) -> None:
        for batch in range(run.checkpoint or 0, 20):
            do(batch)
            clock.advance(seconds=1)
            run.save(batch + 1)

    return handler


@pytest.mark.usefixtures("anarchon_table")
def test_a_kill_repeats_the_batches_of_less_than_an_interval(anarchon_clock: SettableClock) -> None:
    repeated = []
    for kill in range(1, 21):
        done.clear()
        slot = f"2026-11-29T12:{kill:02}:00Z"
        anarchon_clock.set(datetime.fromisoformat(slot) + timedelta(seconds=5))
        handler = ticking(anarchon_clock, checkpoint_interval="5s")
        driven = drive(handler, slot, kill_at=f"after do {kill}", clock=anarchon_clock)
        assert [attempt.ended for attempt in driven.attempts] == ["killed", "succeeded"]
        assert sorted(set(done)) == list(range(20))
        repeated.append(len(done) - 20)
    # The one in flight, and up to 4 that were done within the 5 s.
    assert repeated == [1, 2, 3, 4, 5] * 4


@pytest.mark.usefixtures("anarchon_table")
def test_crashes_are_explored_with_it(anarchon_clock: SettableClock) -> None:
    explored = explore_crashes(
        ticking(anarchon_clock, checkpoint_interval="5s"),
        slot=SLOT,
        effects=lambda: set(done),
        reset=done.clear,
        clock=anarchon_clock,
        pairs=20,
    )
    # Claim, gate, 20 batches, 4 saves, finish, gate.
    assert explored.points == 2 * (2 + 20 + 4 + 2)
    with pytest.raises(CrashFound, match="0 is there twice: the batch is not safe to repeat"):
        explore_crashes(
            ticking(anarchon_clock, checkpoint_interval="5s"),
            slot=SLOT,
            effects=lambda: list(done),
            reset=done.clear,
            clock=anarchon_clock,
        )


@pytest.mark.usefixtures("anarchon_table")
def test_a_job_that_always_dies_sooner_than_the_interval_comes_to_its_end(
    anarchon_clock: SettableClock,
) -> None:
    """Its last attempt without progress saves each batch; without that it would be stalled."""
    kills = [f"after do {3 * count}" for count in range(1, 20)]  # each attempt in its third batch
    handler = ticking(anarchon_clock, checkpoint_interval="10s")
    driven = drive(handler, SLOT, kill_at=kills, clock=anarchon_clock)
    assert driven.run.state == "succeeded"
    assert sorted(set(done)) == list(range(20))


@pytest.mark.usefixtures("anarchon_table")
def test_a_batch_that_kills_is_found_exactly(anarchon_clock: SettableClock) -> None:
    kills: list[str] = []

    @job("export", checkpoint_interval="10s")
    def handler(run: Run) -> None:
        for batch in range(run.checkpoint or 0, 9):
            if batch == 4:
                anarchon_clock.advance(minutes=30)  # beyond the function's timeout: killed there
            do(batch)
            run.save(batch + 1)

    driven = drive(handler, SLOT, kill_at=kills, clock=anarchon_clock, timeout="1m")
    assert (driven.run.state, driven.run.reason) == ("failed", "stalled")
    assert driven.run.error == "no progress at cursor 4 in 3 attempts"
