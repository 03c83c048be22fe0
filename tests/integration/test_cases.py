"""The reported cases that the main job must get right, each named by its id."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from anarchon_ddb import CheckpointTooLargeError, Run, job, protocol
from anarchon_ddb.job import Job
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import KEY, SLOT, read
from tests.faults import Faults

EVENT = scheduler_event("export", SLOT)
Contexts = Callable[..., LambdaContext]


def die(_held: object, error: BaseException | None, **_: object) -> None:
    """Stand for a killed sandbox: nothing of the ending is written."""
    raise error or SystemExit


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Job, dict[str, Any], LambdaContext], None]:
    """Invoke a handler that raises SystemExit in the middle, as a kill there would end it."""

    def run(handler: Job, event: dict[str, Any], context: LambdaContext) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("anarchon_ddb.ending.end", die)
            with pytest.raises(SystemExit):
                handler(event, context)

    return run


def test_C17_of_two_deliveries_at_once_exactly_one_works(
    store: Store, clock: SettableClock
) -> None:
    ran: list[str] = []
    outcomes: list[str] = []

    @job("export")
    def handler(run: Run) -> None:
        ran.append(run._lease.key.slot)

    def deliver(event: dict[str, Any], start: threading.Barrier) -> None:
        start.wait()
        outcomes.append(handler(event, LambdaContext("60s", clock=clock))["outcome"])

    handler(scheduler_event("export", "2026-11-29T11:59:59Z"), LambdaContext(clock=clock))
    ran.clear()
    for trial in range(200):
        slot = f"2026-11-29T11:{trial // 60:02}:{trial % 60:02}Z"
        start = threading.Barrier(2)
        threads = [
            threading.Thread(target=deliver, args=(scheduler_event("export", slot), start))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ran) == len(set(ran)) == 200
    assert outcomes.count("succeeded") == 200
    assert set(outcomes) <= {"succeeded", "busy", "duplicate"}


def test_C17_a_duplicate_while_it_works_and_one_afterwards(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    during: list[str] = []

    @job("export")
    def handler(run: Run) -> None:
        during.append(handler(EVENT, context())["outcome"])
        clock.advance(seconds=40)

    assert handler(EVENT, context())["outcome"] == "succeeded"
    clock.advance(seconds=5)
    after = handler(EVENT, context())
    assert (during, after["outcome"], after["reason"]) == (["busy"], "duplicate", "succeeded")
    assert [attempt.number for attempt in read(store).attempts] == [1]


def test_C18_a_retry_with_the_same_request_id_is_no_owner(
    store: Store, clock: SettableClock, context: Contexts, killed: Any
) -> None:
    @job("export", lease="15m")
    def first(run: Run) -> None:
        run.save(5)
        clock.advance(seconds=60)
        assert first(EVENT, context("15m", request_id="R"))["outcome"] == "busy"
        raise SystemExit

    seen: list[tuple[int, Any]] = []

    @job("export")
    def second(run: Run) -> None:
        seen.append((run.attempt, run.checkpoint))

    killed(first, EVENT, context("15m", request_id="R"))
    owner = read(store).owner
    clock.advance(minutes=16)
    assert second(EVENT, context("15m", request_id="R"))["outcome"] == "succeeded"
    assert seen == [(2, 5)]
    assert owner != read(store).owner
    assert read(store).request_id == "R"


def test_C23_a_kill_while_holding_frees_itself_without_waiting(
    store: Store, clock: SettableClock, context: Contexts, killed: Any, calls: list[str]
) -> None:
    @job("export", lease="75s")
    def hangs(run: Run) -> None:
        run.save(3)
        clock.advance(seconds=60)
        raise SystemExit

    resumed: list[Any] = []

    @job("export")
    def resumes(run: Run) -> None:
        resumed.append((run.attempt, run.checkpoint))

    killed(hangs, EVENT, context("60s"))
    clock.advance(seconds=1)
    calls.clear()
    assert resumes(EVENT, context("60s"))["outcome"] == "busy"
    assert calls == ["UpdateItem", "GetItem"]
    clock.advance(seconds=60)
    assert resumes(EVENT, context("60s"))["outcome"] == "succeeded"
    assert resumed == [(2, 3)]


def test_C24_the_ttl_is_in_seconds_and_only_on_what_has_ended(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        own = store.read_run(run._lease.key)
        run.save(1)
        saved = store.read_run(run._lease.key)
        assert own is not None
        assert saved is not None
        assert (own.expires_at, saved.expires_at) == (None, None)

    handler(EVENT, context())
    now_s = clock.now_ms() // 1000
    assert now_s < (read(store).expires_at or 0) < now_s + 10 * 365 * 86_400
    clock.advance(hours=24 * 31)  # expired, and still there: TTL deletes days late
    fresh = scheduler_event("export", clock.now.replace(microsecond=0))
    assert handler(fresh, context())["outcome"] == "succeeded"
    assert handler(resume_event("export", SLOT), context())["outcome"] == "duplicate"


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "UTC", "Asia/Tokyo"])
def test_C29_the_zone_of_the_process_decides_nothing(zone: str) -> None:
    code = (
        "from anarchon_ddb.testing import scheduler_event\n"
        "from anarchon_ddb.events import parse_event\n"
        "from anarchon_ddb.clock import to_ms\n"
        "from datetime import datetime, timezone\n"
        "now = datetime(2026, 11, 29, 12, 0, 5, tzinfo=timezone.utc)\n"
        "event = {'job': 'a', 'slot': '2026-11-29T04:00:00-08:00'}\n"
        "print(to_ms(parse_event(event, now=now).slot))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "1795953600000"


@pytest.mark.parametrize(
    ("remaining_ms", "expected_ms"),
    [(870_000, 1_700_000_060_000), (20_000, 1_700_000_021_000), (0, 1_700_000_001_000)],
)
def test_C30_the_lease_ends_with_the_invocation_at_the_latest(
    remaining_ms: int, expected_ms: int
) -> None:
    assert expected_ms == protocol.lease_until(1_700_000_000_000, 60_000, remaining_ms)


def test_C30_a_longer_lease_never_outlives_the_sandbox(
    store: Store, clock: SettableClock, context: Contexts, killed: Any
) -> None:
    @job("export", lease="24h")
    def handler(run: Run) -> None:
        raise SystemExit

    killed(handler, EVENT, context("870s"))
    deadline_ms = clock.now_ms() + 870_000
    assert read(store).lease_until == deadline_ms + protocol.LEASE_GRACE_MS
    clock.advance(seconds=869)
    assert handler(EVENT, context())["outcome"] == "busy"
    clock.advance(seconds=1 + 1 + 5 + 1)  # the deadline, the grace, the clock skew, and past it
    killed(handler, EVENT, context())
    assert read(store).attempt == 2


def test_C31_a_batch_longer_than_the_margin_is_not_started(
    store: Store, clock: SettableClock, context: Contexts, capsys: pytest.CaptureFixture[str]
) -> None:
    batches: list[int] = []

    @job("export", stop_margin="5s")
    def handler(run: Run) -> None:
        for number in range(100):
            clock.advance(seconds=8)
            batches.append(number)
            run.save(number)

    assert handler(EVENT, context("327s"))["outcome"] == "interrupted"
    assert len(batches) == 40  # 7 s are left: more than the margin, less than a batch
    warned = [line for line in capsys.readouterr().out.splitlines() if "shorter than a ba" in line]
    assert len(warned) == 1
    assert '"stop_margin_s":5.0,"longest_batch_s":8.0' in warned[0]


@pytest.mark.parametrize("fault", ["raises", "flushed", "throttled", "partial"])
def test_C32_a_cursor_moves_only_behind_durable_work(
    store: Store, clock: SettableClock, context: Contexts, faults: Faults, fault: str, killed: Any
) -> None:
    sink: set[int] = set()
    starts: list[int] = []
    once = [True]

    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        start = run.checkpoint or 0
        starts.append(start)
        while start < 300:
            rows = range(start, start + 100)
            now = start == 100 and once and once.pop()
            if now and fault == "raises":
                raise OSError("before the flush")
            sink.update(row for row in rows if not (now and fault == "partial" and row % 33 == 0))
            if now and fault == "partial":
                raise OSError("3 of 100 failed")
            if now and fault == "flushed":
                raise SystemExit
            if now and fault == "throttled":
                faults.answer("save", "ThrottlingException", times=99)
            start += 100
            run.save(start)

    if fault == "flushed":
        killed(handler, EVENT, context())
        clock.advance(minutes=2)
    else:
        with pytest.raises((OSError, Exception)):
            handler(EVENT, context())
    assert read(store).checkpoint == "100"
    faults._before.clear()
    clock.advance(minutes=2)
    assert handler(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert starts == [0, 100]
    assert set(range(300)) == sink


def test_C34_a_composite_keyset_loses_no_row(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    rows = {("t1", "a"), ("t1", "b"), ("t1", "c"), ("t2", "d")}
    exported: list[tuple[str, str]] = []

    @job("export")
    def handler(run: Run) -> None:
        def fetch(after: Any) -> tuple[list[tuple[str, str]], Any] | None:
            page = sorted(row for row in rows if after is None or row > after)[:2]
            return (page, page[-1]) if page else None

        for page in run.batches(fetch):
            exported.extend(page)
            clock.advance(seconds=55)

    handler(EVENT, context())
    rows -= {("t1", "a"), ("t1", "b")}  # the anchor itself is deleted between two invocations
    rows.add(("t1", "bb"))
    while handler(resume_event("export", SLOT), context())["outcome"] == "interrupted":
        pass
    assert exported == [("t1", "a"), ("t1", "b"), ("t1", "bb"), ("t1", "c"), ("t2", "d")]


def test_C35_the_previous_checkpoint_stays_and_the_run_resumable(
    store: Store, clock: SettableClock, context: Contexts, capsys: pytest.CaptureFixture[str]
) -> None:
    @job("export", retry_delay="0s")
    def grows(run: Run) -> None:
        run.save(["x" * 300_000])  # moto counts the old item and the new one: one step only
        run.save(["x" * 300_000, "y" * 100_000])

    with pytest.raises(CheckpointTooLargeError, match=r"job 'export', slot .* limit is 350,000"):
        grows(EVENT, context())
    assert len(read(store).checkpoint or "") == 300_004
    assert "nears the size limit" in capsys.readouterr().out
    assert read(store).state == "retrying"


def test_C36_an_expired_token_can_be_forgotten(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export", timeout="7d")
    def handler(run: Run) -> None:
        if run.checkpoint == "abc":
            assert run.checkpoint_at is not None
            age = clock.now - run.checkpoint_at
            if age.days >= 2:
                run.restart()
        if run.checkpoint is None:
            run.save("abc" if run.attempt == 1 else "fresh")
        clock.advance(seconds=55)
        run.save(f"{run.checkpoint}+")

    handler(EVENT, context())
    store.client.update_item(
        TableName=store.table,
        Key=KEY.wire,
        UpdateExpression="SET checkpoint = :c",
        ExpressionAttributeValues={":c": {"S": '"abc"'}},
    )
    clock.advance(hours=57)
    handler(resume_event("export", SLOT), context())
    assert read(store).checkpoint == '"fresh"'


def test_C36_an_error_repeated_from_one_cursor_ends_the_run(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export", max_attempts=3)
    def handler(run: Run) -> None:
        if run.checkpoint is None:
            run.save("abc")
        raise OSError("400 Pagination token parsing failed as it expired")

    for _ in range(3):
        with pytest.raises(OSError, match="expired"):
            handler(resume_event("export", SLOT) if _ else EVENT, context())
        clock.advance(minutes=15)
    assert handler(EVENT, context())["outcome"] == "duplicate"
    record = read(store)
    assert (
        record.state,
        record.reason,
        record.attempt,
        record.checkpoint,
    ) == ("failed", "error", 3, '"abc"')
    assert "token parsing failed" in (record.error or "")


def test_C37_a_batch_longer_than_the_function_ends_as_stalled(
    store: Store, clock: SettableClock, context: Contexts, killed: Any
) -> None:
    started: list[int] = []

    @job("export", max_attempts=3)
    def handler(run: Run) -> None:
        started.append(run.attempt)
        if run.checkpoint is None:
            run.save(7)
        raise SystemExit  # killed in the batch behind 7

    for _ in range(3):
        killed(handler, EVENT, context())
        clock.advance(minutes=2)
    result = handler(EVENT, context())
    assert (result["outcome"], result["reason"]) == ("failed", "stalled")
    assert started == [1, 2, 3]
    record = read(store)
    assert record.error == "no progress at cursor 7 in 3 attempts"
    assert record.checkpoint == "7"
    assert handler(EVENT, context())["outcome"] == "duplicate"


def test_C37_an_interruption_that_moved_nothing_counts_too(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export", max_attempts=2)
    def handler(run: Run) -> None:
        run._batches = 1
        clock.advance(seconds=55)
        run.raise_if_stopping()

    assert handler(EVENT, context())["outcome"] == "interrupted"
    assert handler(EVENT, context())["outcome"] == "interrupted"
    assert handler(EVENT, context())["reason"] == "stalled"


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_C58_attempts_are_counted_whatever_layer_caused_them(
    store: Store, clock: SettableClock, context: Contexts, max_attempts: int
) -> None:
    starts: list[Any] = []

    @job("export", max_attempts=max_attempts)
    def handler(run: Run) -> None:
        starts.append(run.checkpoint)
        for batch in range((run.checkpoint or 0) + 1, 10):
            if batch == 3:
                raise ValueError("at batch 3")
            run.save(batch)

    for _ in range(max_attempts):
        with pytest.raises(ValueError, match="at batch 3"):
            handler(EVENT, context())
        clock.advance(minutes=15)
    for _ in range(2):
        late = handler(EVENT, context())
        assert (late["outcome"], late["reason"]) == ("duplicate", "failed")
    assert [None, 2, 2][:max_attempts] == starts


@pytest.mark.parametrize(
    ("state", "granted"),
    [
        pytest.param("absent", True, id="C66-absent"),
        pytest.param("let-go", True, id="C66-let-go"),
        pytest.param("expired", True, id="C66-expired"),
        pytest.param("live", False, id="C66-live"),
    ],
)
def test_C66_the_claim_condition_on_each_kind_of_item(
    store: Store, clock: SettableClock, state: str, granted: bool
) -> None:
    now = clock.now_ms()
    if state != "absent":
        item = {
            "state": {"S": "interrupted" if state == "let-go" else "running"},
            "attempt": {"N": "1"},
            "lease_until": {"N": str({"let-go": 0, "expired": now - 5_001, "live": now}[state])},
        }
        store.client.put_item(TableName=store.table, Item=KEY.wire | item)
    values: dict[str, str | int] = {
        "owner": "me",
        "lease_until": now + 60_000,
        "now": now,
        "expired_before": now - protocol.CLOCK_SKEW_MS,
        "due": now,
        "request_id": "r",
        "function": "f",
        "cause": "schedule",
    }
    claimed = store.claim(KEY, protocol.claim_first(with_params=False), values)
    assert granted == (claimed is not None)


def test_a_slot_is_stored_in_one_fixed_form(store: Store, context: Contexts) -> None:
    @job("export")
    def handler(run: Run) -> None:
        pass

    handler({"job": "export", "slot": "2026-11-29T21:00:00+09:00"}, context())
    assert store.read_run(RunKey("export", SLOT)) is not None
