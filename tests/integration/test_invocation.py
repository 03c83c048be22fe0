"""One invocation after another against the table: claim, early stop, resume, end."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from unittest.mock import MagicMock

import pytest

from anarchon_ddb import (
    CheckpointError,
    CheckpointTooLargeError,
    InvalidEventError,
    InvalidJobError,
    LeaseLost,
    Run,
    StopEarly,
    StoreError,
    job,
    protocol,
)
from anarchon_ddb.job import Job
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import KEY, SLOT, read

EVENT = scheduler_event("export", SLOT)
Contexts = Callable[..., LambdaContext]


def counting(clock: SettableClock, batches: int, seconds: float, **options: Any) -> Job:
    """A job of so many batches, each so long; its cursor is the number of batches done."""

    @job("export", **options)
    def handler(run: Run) -> None:
        done = run.checkpoint or 0
        while done < batches:
            clock.advance(seconds=seconds)
            done += 1
            run.save(done, done=done, total=batches)

    return handler


def test_a_run_of_one_invocation_succeeds(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    result = counting(clock, 3, 1)(EVENT, context())
    assert result == {"job": "export", "slot": SLOT, "attempt": 1, "outcome": "succeeded"}
    record = read(store)
    assert (record.state, record.checkpoint, record.done, record.total) == ("succeeded", "3", 3, 3)


def test_a_run_stops_early_and_goes_on_from_its_checkpoint(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    handler = counting(clock, 12, 8)
    outcomes = []
    for _ in range(3):
        outcomes.append(handler(EVENT, context("45s"))["outcome"])
        clock.advance(seconds=1)
    assert outcomes == ["interrupted", "interrupted", "succeeded"]
    assert [(attempt.end, attempt.seq) for attempt in read(store).attempts] == [
        ("interrupted", 5),
        ("interrupted", 10),
        ("succeeded", 12),
    ]


def test_the_longest_batch_is_known_from_the_first_batch_of_the_next_invocation(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    seconds = iter([20, 1, 1, 1])

    @job("export", stop_margin="2s")
    def handler(run: Run) -> None:
        done = run.checkpoint or 0
        while done < 4:
            clock.advance(seconds=next(seconds))
            done += 1
            run.save(done)

    assert handler(EVENT, context("40s"))["outcome"] == "interrupted"
    # 31 s are enough for 1 s batches, but one took 20 s: only the first is sure to fit.
    assert handler(EVENT, context("31s"))["outcome"] == "interrupted"
    assert read(store).checkpoint == "2"


def test_an_invocation_always_runs_one_batch(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    handler = counting(clock, 3, 30)
    for expected in ("1", "2", "3"):
        handler(EVENT, context("40s"))
        assert expected == read(store).checkpoint


def test_a_timeout_below_the_margin_is_said_and_nothing_is_written(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    with pytest.raises(InvalidJobError, match="raise the function's Timeout or lower stop_margin"):
        counting(clock, 3, 1)(EVENT, context("3s"))
    assert store.read_run(KEY) is None


def test_stop_early_is_not_swallowed_by_except_exception(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        for cursor in range(1, 9):
            try:
                clock.advance(seconds=20)
                run.save(cursor)
            except Exception:
                pytest.fail("swallowed")

    assert handler(EVENT, context())["outcome"] == "interrupted"


@pytest.mark.parametrize("how", ["bare", "should_stop"])
def test_a_swallowed_stop_is_no_success(
    store: Store, clock: SettableClock, context: Contexts, how: str
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        clock.advance(seconds=55)
        if how == "bare":
            try:
                run.save(1)
            except:  # noqa: E722  what a user may write
                return
        run._store(1, run_progress())
        if run.should_stop:
            return

    assert handler(EVENT, context())["outcome"] == "interrupted"
    assert read(store).state == "interrupted"


def run_progress() -> Any:
    from anarchon_ddb.lease import Progress  # noqa: PLC0415

    return Progress()


def test_a_stop_followed_by_another_error_is_that_error(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        try:
            clock.advance(seconds=55)
            run.save(1)
        finally:
            raise KeyError("cleaning up failed")

    with pytest.raises(KeyError):
        handler(EVENT, context())
    assert read(store).state == "retrying"


def test_an_error_is_raised_after_it_was_recorded(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save({"after": "N102UW"})
        raise ValueError("no such customer" * 100)

    with pytest.raises(ValueError, match="no such customer"):
        handler(EVENT, context())
    record = read(store)
    assert (record.state, record.checkpoint) == ("retrying", '{"after":"N102UW"}')
    assert (record.error or "").startswith("ValueError: no such customer")
    assert len(record.error or "") <= 300
    assert clock.now_ms() <= record.lease_until <= clock.now_ms() + 30_000


def test_a_run_in_its_backoff_is_busy_and_goes_on_afterwards(
    store: Store, clock: SettableClock, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anarchon_ddb.ending.random.random", lambda: 1.0)
    failing = [True]

    @job("export", retry_delay="30s")
    def handler(run: Run) -> None:
        if failing:
            raise OSError("upstream is down")

    with pytest.raises(OSError, match="upstream"):
        handler(EVENT, context())
    failing.clear()
    clock.advance(seconds=29)
    assert handler(EVENT, context())["outcome"] == "busy"
    clock.advance(seconds=1)
    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert read(store).error is None


@pytest.mark.parametrize(
    ("cursor", "error"),
    [
        ({"a": {1, 2}}, CheckpointError),
        ("x" * 400_000, CheckpointTooLargeError),
        (None, CheckpointError),
    ],
)
def test_a_cursor_that_is_refused_leaves_the_stored_one(
    store: Store, context: Contexts, cursor: Any, error: type[Exception]
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save(7)
        run.save(cursor)

    with pytest.raises(error, match=r"job 'export', slot 2026-11-29T12:00:00Z"):
        handler(EVENT, context())
    assert (read(store).state, read(store).checkpoint) == ("retrying", "7")


def test_a_stored_checkpoint_that_is_damaged_is_kept_and_reported(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    counting(clock, 8, 8)(EVENT, context("45s"))
    store.client.update_item(
        TableName=store.table,
        Key=KEY.wire,
        UpdateExpression="SET checkpoint = :bad",
        ExpressionAttributeValues={":bad": {"S": "{broken"}},
    )
    clock.advance(seconds=1)
    with pytest.raises(CheckpointError, match="can't be decoded"):
        counting(clock, 8, 8)(EVENT, context("45s"))
    assert read(store).checkpoint == "{broken"


@pytest.mark.parametrize("event", [{}, {"key1": "value1"}, {"job": "other", "slot": SLOT}, None])
def test_a_bad_event_writes_nothing_and_makes_no_call(
    store: Store, context: Contexts, clock: SettableClock, calls: list[str], event: Any
) -> None:
    with pytest.raises(InvalidEventError):
        counting(clock, 1, 1)(event, context())
    assert calls == []


def test_a_warm_up_ping_is_ignored(
    store: Store, context: Contexts, clock: SettableClock, calls: list[str]
) -> None:
    assert counting(clock, 1, 1)({"warmer": True}, context())["outcome"] == "ignored"
    assert calls == []


def test_a_resume_of_a_run_that_does_not_exist_creates_none(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    result = counting(clock, 1, 1)(resume_event("export", SLOT), context())
    assert (result["outcome"], result["reason"]) == ("ignored", "absent")
    assert store.read_run(KEY) is None


def test_other_params_for_the_same_slot_are_told(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    handler = counting(clock, 12, 8)
    handler(scheduler_event("export", SLOT, params={"tenant": "a", "n": 1}), context("45s"))
    clock.advance(seconds=1)
    for params in ({"tenant": "b"}, None):
        with pytest.raises(InvalidEventError, match="delivered with other params"):
            handler(scheduler_event("export", SLOT, params=params), context("45s"))
    same = scheduler_event("export", SLOT, params={"n": 1, "tenant": "a"})
    assert handler(same, context("45s"))["attempt"] == 2
    clock.advance(seconds=1)
    assert handler(resume_event("export", SLOT), context("45s"))["attempt"] == 3


def test_params_are_the_same_on_every_attempt(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    seen = []

    @job("export")
    def handler(run: Run) -> None:
        seen.append(dict(run.params))
        clock.advance(seconds=55)
        run.save(len(seen))

    handler(scheduler_event("export", SLOT, params={"tenant": "a"}), context())
    handler(resume_event("export", SLOT), context())
    assert seen == [{"tenant": "a"}] * 2


def test_restart_forgets_the_cursor_and_goes_on(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    counting(clock, 8, 8)(EVENT, context("45s"))
    clock.advance(seconds=1)

    @job("export")
    def handler(run: Run) -> None:
        assert run.is_resuming
        run.restart()
        assert run.checkpoint is None
        assert read(store).checkpoint is None
        run.save("anew")

    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert read(store).checkpoint == '"anew"'


def test_batches_saves_after_each_body(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    pages = {None: ([1, 2], 2), 2: ([], 3), 3: ([3], None)}
    seen: list[tuple[list[int], str | None]] = []

    @job("export")
    def handler(run: Run) -> None:
        for batch in run.batches(pages.__getitem__):
            seen.append((batch, read(store).checkpoint))

    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert seen == [([1, 2], None), ([], "2"), ([3], "3")]


def test_batches_refuses_what_is_no_pair_and_what_never_ends(
    store: Store, context: Contexts, clock: SettableClock
) -> None:
    def fetching(fetch: Any, slot: str) -> None:
        @job("export", overlap="allow")
        def handler(run: Run) -> None:
            for _ in run.batches(fetch):
                pass

        handler(scheduler_event("export", slot), context())

    with pytest.raises(TypeError, match=r"fetch must return \(batch, cursor\) or None, got list"):
        fetching(lambda _: [1, 2], SLOT)
    with pytest.raises(CheckpointError, match="same cursor twice"):
        fetching(lambda _: ([1], 7), "2026-11-29T11:00:00Z")


def test_the_run_tells_what_it_is(store: Store, clock: SettableClock, context: Contexts) -> None:
    seen: dict[str, Any] = {}

    @job("export")
    def handler(run: Run) -> None:
        seen.update(
            slot=run.slot.isoformat(),
            attempt=run.attempt,
            token=run.fencing_token,
            resuming=run.is_resuming,
            remaining=run.remaining,
            at=run.checkpoint_at,
        )

    handler(EVENT, context("60s"))
    assert seen == {
        "slot": "2026-11-29T12:00:00+00:00",
        "attempt": 1,
        "token": 1,
        "resuming": False,
        "remaining": 60.0,
        "at": None,
    }


def test_logs_hold_no_payload(
    store: Store, clock: SettableClock, context: Contexts, capsys: pytest.CaptureFixture[str]
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save({"secret": "hunter2"})
        run.logger.info("a line of the handler's")
        clock.advance(seconds=55)
        run.save({"secret": "hunter3"})

    handler(scheduler_event("export", SLOT, params={"token": "hunter4"}), context())
    handler(resume_event("export", SLOT), context())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "hunter" not in json.dumps(lines)
    own = next(line for line in lines if line.get("message") == "a line of the handler's")
    assert (own["job"], own["slot"], own["attempt"]) == ("export", SLOT, 1)


def test_the_same_job_goes_on_after_a_kill(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    class Killed(BaseException):
        """Stands for SIGKILL: the worker's own code must not run after it."""

    @job("export")
    def handler(run: Run) -> None:
        run.save(41)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.end", _kill)
        with pytest.raises(Killed):
            handler(EVENT, context())
    assert handler(EVENT, context())["outcome"] == "busy"
    clock.advance(seconds=60)
    assert handler(EVENT, context())["outcome"] == "busy"  # the skew of another clock
    clock.advance(seconds=6)
    result = counting(clock, 42, 1)(EVENT, context())
    assert (result["outcome"], result["attempt"]) == ("succeeded", 2)
    assert [attempt.end for attempt in read(store).attempts] == ["lost", "succeeded"]


def _kill(_held: object, error: BaseException, **_: object) -> None:
    raise error


def test_a_failure_of_self_invocation_is_no_failed_attempt(
    store: Store, clock: SettableClock, context: Contexts, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = counting(clock, 8, 8, continuation="self")
    assert handler(EVENT, context("45s"))["outcome"] == "interrupted"
    assert "the resumer will do it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("AccessDeniedException", "Grant dynamodb:UpdateItem"),
        ("ResourceNotFoundException", "check its name and the region"),
        ("ValidationException", "Create it from infra/table.yaml"),
    ],
)
def test_a_table_that_refuses_is_one_clear_error_and_the_handler_does_not_run(
    store: Store, context: Contexts, faults: Any, code: str, advice: str
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        pytest.fail("ran")

    faults.answer("claim", code)
    with pytest.raises(StoreError) as error:
        handler(EVENT, context())
    text = str(error.value)
    for part in ("'anarchon'", "ANARCHON_TABLE", "eu-west-1 (from AWS_DEFAULT_REGION)", advice):
        assert part in text


def test_C56_a_missing_table_and_an_empty_name_fail_closed(
    aws: None, context: Contexts, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = counting(clock, 1, 1)
    with pytest.raises(StoreError, match="ANARCHON_TABLE is not set"):
        handler(EVENT, context())
    monkeypatch.setenv("ANARCHON_TABLE", "nowhere")
    with pytest.raises(StoreError, match=r"'nowhere'.*ResourceNotFoundException"):
        handler(EVENT, context())


def test_a_throttled_claim_is_tried_again_and_then_an_error_not_busy(
    store: Store, context: Contexts, clock: SettableClock, faults: Any
) -> None:
    faults.answer("claim", "ThrottlingException", times=4)  # more than the SDK's own three
    assert counting(clock, 1, 1)(EVENT, context())["outcome"] == "succeeded"
    faults.answer("claim", "ThrottlingException", times=99)
    with pytest.raises(StoreError, match="ThrottlingException"):
        counting(clock, 1, 1)(scheduler_event("export", "2026-11-29T11:00:00Z"), context())


def test_a_wrong_key_schema_is_explained(
    aws: None, context: Contexts, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANARCHON_TABLE", "other-keys")
    store = Store.from_environment()
    store.client.create_table(
        TableName="other-keys",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    with pytest.raises(StoreError, match="must have the keys pk and sk"):
        counting(clock, 1, 1)(EVENT, context())


def test_lease_lost_reaches_the_handler_once_and_is_told(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    raised: list[type[BaseException]] = []

    @job("export")
    def slow(run: Run) -> None:
        run.save(100)
        clock.advance(seconds=70)  # a long pause: the lease runs out
        counting(clock, 180, 0)(EVENT, context())
        try:
            run.save(120)
        except BaseException as error:
            raised.append(type(error))
            with pytest.raises(LeaseLost):
                run.save(121)
            raise

    before = slow(EVENT, context("15m"))
    assert (before["outcome"], before["reason"]) == ("lost", "lease_lost")
    assert [LeaseLost] == raised
    assert (
        read(store).state,
        read(store).checkpoint,
        read(store).attempt,
    ) == ("succeeded", "180", 2)


def test_the_margin_is_kept_with_a_stop_early_text(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    texts: list[str] = []

    @job("export", stop_margin="5s")
    def handler(run: Run) -> None:
        clock.advance(seconds=8)
        try:
            run.save(1)
        except StopEarly as stop:
            texts.append(str(stop))
            raise

    handler(EVENT, context("15s"))
    assert texts == ["7.0 s are left, a further batch may need 12.0 s"]
    assert protocol.needed_ms(5_000, 8_000, 0) == 12_000


def test_keys_of_two_jobs_never_run_together(store: Store) -> None:
    assert RunKey("a", "b").wire != RunKey("a#run", "b").wire


@pytest.mark.parametrize("bad", [None, object(), MagicMock()])
def test_a_second_argument_that_is_no_context_is_told(
    store: Store, clock: SettableClock, bad: Any
) -> None:
    recent = scheduler_event("export", datetime.now(UTC).replace(microsecond=0))
    with pytest.raises(TypeError, match=r"use anarchon_ddb\.testing\.LambdaContext"):
        counting(clock, 1, 1)(recent, bad)
    assert list(store.open_runs(2**50)) == []


def test_a_mock_of_a_context_that_tells_the_time_is_enough(
    store: Store, clock: SettableClock
) -> None:
    context = MagicMock()
    context.get_remaining_time_in_millis.return_value = 60_000
    recent = scheduler_event("export", datetime.now(UTC).replace(microsecond=0))
    assert counting(clock, 1, 1)(recent, context)["outcome"] == "succeeded"
