"""Overlap, timeout, pause, cancel and version, one slot after another against the table."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from anarchon_ddb import Cancelled, CheckpointError, Run, StopEarly, job, operations, resumer
from anarchon_ddb.clock import iso
from anarchon_ddb.errors import RefusedError
from anarchon_ddb.job import Job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT, read

Contexts = Callable[..., LambdaContext]
WHEN = datetime.fromisoformat(SLOT)
NEXT = "2026-11-29T12:01:00Z"
AFTER = "2026-11-29T12:02:00Z"


def slots_of(handler_outcomes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(answer["slot"], answer["outcome"]) for answer in handler_outcomes]


class Ticks:
    """A job that takes 80 s and is due each minute: the next tick comes while it works."""

    def __init__(self, clock: SettableClock, context: Contexts, overlap: str) -> None:
        self.answers: list[dict[str, Any]] = []
        self.order: list[str] = []
        self._during: dict[str, list[str]] = {}
        self._context = context

        @job("export", overlap=overlap)  # type: ignore[arg-type]
        def handler(run: Run) -> None:
            slot = iso(run.slot)
            self.order.append(slot)
            clock.advance(seconds=50)
            run.save(1)
            for tick in self._during.pop(slot, []):
                self.deliver(tick)
            clock.advance(seconds=30)
            run.save(2)

        self._handler = handler

    def while_working(self, slot: str, *ticks: str) -> None:
        self._during[slot] = list(ticks)

    def deliver(self, slot: str) -> dict[str, Any]:
        answer = self._handler(scheduler_event("export", slot), self._context("15m"))
        self.answers.append(answer)
        return answer

    def resume(self, slot: str) -> dict[str, Any]:
        answer = self._handler(resume_event("export", slot), self._context("15m"))
        self.answers.append(answer)
        return answer


def test_C22_skip_records_the_slot_that_came_too_early(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    ticks = Ticks(clock, context, "skip")
    ticks.while_working(SLOT, NEXT)
    ticks.deliver(SLOT)
    ticks.deliver(AFTER)
    assert slots_of(ticks.answers) == [(NEXT, "skipped"), (SLOT, "succeeded"), (AFTER, "succeeded")]
    assert (read(store, NEXT).state, read(store, NEXT).reason) == ("skipped", "overlap")


def test_C22_queue_runs_them_one_at_a_time_oldest_first(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    ticks = Ticks(clock, context, "queue")
    ticks.while_working(SLOT, AFTER, NEXT)
    ticks.deliver(SLOT)
    assert [answer["outcome"] for answer in ticks.answers[:2]] == ["pending", "pending"]
    assert store.read_head("export").active_slot == NEXT  # handed over, oldest first
    ticks.resume(AFTER)  # too early: it still waits
    ticks.resume(NEXT)
    ticks.resume(AFTER)
    assert ticks.order == [SLOT, NEXT, AFTER]
    assert {"succeeded"} == {read(store, slot).state for slot in ticks.order}
    assert read(store, AFTER).attempt == 3  # waiting took attempts, and no strikes
    assert read(store, AFTER).strikes == 1


def test_C22_allow_runs_both(store: Store, clock: SettableClock, context: Contexts) -> None:
    ticks = Ticks(clock, context, "allow")
    ticks.while_working(SLOT, NEXT)
    ticks.deliver(SLOT)
    assert slots_of(ticks.answers) == [(NEXT, "succeeded"), (SLOT, "succeeded")]


def test_C22_an_interrupted_slot_is_worked_on_before_the_new_one(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    """The invocation of the new slot goes on with the older run; its own slot is skipped."""
    resumed: list[tuple[str, Any]] = []

    @job("export")
    def handler(run: Run) -> None:
        resumed.append((iso(run.slot), run.checkpoint))
        if run.checkpoint is None:
            clock.advance(seconds=55)
            run.save(50)

    handler(scheduler_event("export", SLOT), context("60s"))
    answer = handler(scheduler_event("export", NEXT), context("60s"))
    assert (answer["slot"], answer["outcome"], answer["attempt"]) == (SLOT, "succeeded", 2)
    assert resumed == [(SLOT, None), (SLOT, 50)]
    assert (read(store, NEXT).state, read(store, NEXT).reason) == ("skipped", "overlap")


def test_the_gate_opens_again_when_a_slot_fails(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        if iso(run.slot) == SLOT:
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(scheduler_event("export", SLOT), context())
    assert handler(scheduler_event("export", NEXT), context())["outcome"] == "succeeded"


def test_a_handover_invokes_the_next_slot_at_once_where_the_job_continues_itself(
    store: Store, clock: SettableClock, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr("anarchon_ddb.dispatch.send", lambda _s, _f, key: sent.append(key.slot))
    monkeypatch.setenv("ANARCHON_CONTINUATION", "self")
    ticks = Ticks(clock, context, "queue")
    ticks.while_working(SLOT, NEXT)
    ticks.deliver(SLOT)
    assert sent == [NEXT]


def test_the_resumer_does_not_send_who_waits_for_a_run_that_is_worked_on(
    store: Store, clock: SettableClock, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr("anarchon_ddb.dispatch.send", lambda _s, _f, key: sent.append(key.slot))

    @job("export", overlap="queue")
    def handler(run: Run) -> None:
        if iso(run.slot) == SLOT:
            handler(scheduler_event("export", NEXT), context())
            clock.advance(seconds=1)
            resumer.handler({}, context())
            assert sent == []

    handler(scheduler_event("export", SLOT), context())
    clock.advance(minutes=1)
    resumer.handler({}, context())
    assert sent == [NEXT]


# --- timeout -----------------------------------------------------------------------------------


def test_the_stop_signal_is_set_at_the_deadline_in_the_middle_of_a_batch(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    seen: list[bool] = []

    @job("export", timeout="5m")
    def handler(run: Run) -> None:
        clock.advance(seconds=299)
        seen.append(run.should_stop)
        clock.advance(seconds=1)
        seen.append(run.should_stop)
        with pytest.raises(StopEarly, match="used up its timeout"):
            run.save(7)
        run.raise_if_stopping()

    answer = handler(scheduler_event("export", SLOT), context("15m"))
    assert seen == [False, True]
    assert (answer["outcome"], answer["reason"]) == ("failed", "timed_out")
    assert read(store).checkpoint == "7"


def test_the_timeout_counts_over_all_invocations_and_ends_the_run_at_its_claim(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export", timeout="2m")
    def handler(run: Run) -> None:
        clock.advance(seconds=50)
        run.save((run.checkpoint or 0) + 1)

    assert handler(scheduler_event("export", SLOT), context())["outcome"] == "interrupted"
    clock.advance(minutes=2)
    answer = handler(resume_event("export", SLOT), context())
    assert (answer["outcome"], answer["reason"]) == ("failed", "timed_out")
    assert read(store).checkpoint == "1"


def test_waiting_in_the_queue_does_not_count_in_the_timeout(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export", overlap="queue", timeout="10m")
    def handler(run: Run) -> None:
        if iso(run.slot) == SLOT:
            assert handler(scheduler_event("export", NEXT), context())["outcome"] == "pending"
            clock.advance(minutes=9)

    handler(scheduler_event("export", SLOT), context("15m"))
    clock.advance(minutes=9)
    assert handler(resume_event("export", NEXT), context("15m"))["outcome"] == "succeeded"


# --- cancel ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["save", "renewal"])
def test_a_cancel_is_seen_in_the_reply_to_the_next_write(
    store: Store, clock: SettableClock, context: Contexts, calls: list[str], how: str
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save(1)
        if iso(run.slot) == NEXT:
            return
        operations.cancel(store, "export", WHEN)
        calls.clear()
        if how == "renewal":
            run._lease.renew()
        with pytest.raises(Cancelled):
            run.save(2)
        assert "GetItem" not in calls
        run.raise_if_stopping()

    answer = handler(scheduler_event("export", SLOT), context())
    assert (answer["outcome"], answer["reason"]) == ("cancelled", "cancelled")
    record = read(store)
    assert (record.state, record.checkpoint) == ("cancelled", "2")
    assert handler(scheduler_event("export", NEXT), context())["outcome"] == "succeeded"


def test_a_cancel_of_a_run_that_nobody_holds_ends_it_at_once_and_frees_the_gate(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    ticks = Ticks(clock, context, "skip")
    ticks._handler(scheduler_event("export", SLOT), context("60s"))
    operations.cancel(store, "export", WHEN)
    assert read(store).state == "cancelled"
    assert store.read_head("export").active_slot is None
    with pytest.raises(RefusedError, match="has ended already: cancelled"):
        operations.cancel(store, "export", WHEN)


def test_a_cancel_that_its_holder_never_saw_ends_the_run_at_the_next_claim(
    store: Store, clock: SettableClock, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        operations.cancel(store, "export", WHEN)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.end", _die)
        with pytest.raises(SystemExit):
            handler(scheduler_event("export", SLOT), context())
    clock.advance(minutes=2)
    assert handler(resume_event("export", SLOT), context())["outcome"] == "cancelled"


def _die(_held: object, error: BaseException, **_: object) -> None:
    raise error


# --- pause -------------------------------------------------------------------------------------


def test_C48_a_pause_covers_new_slots_takeovers_and_resumes_and_survives_deploys(
    store: Store, clock: SettableClock, context: Contexts, calls: list[str]
) -> None:
    ran: list[tuple[str, Any]] = []

    @job("export")
    def handler(run: Run) -> None:
        ran.append((iso(run.slot), run.checkpoint))
        if run.checkpoint is None:
            clock.advance(seconds=55)
            run.save(50)

    handler(scheduler_event("export", SLOT), context("60s"))
    operations.pause(store, "export", note="the upstream is being moved")
    clock.advance(minutes=5)
    again = handler(resume_event("export", SLOT), context("60s"))
    tick = handler(scheduler_event("export", NEXT), context("60s"))
    later = handler(scheduler_event("export", AFTER), context("60s"))
    assert (again["outcome"], again["reason"]) == ("interrupted", "paused")
    assert [(one["outcome"], one["reason"]) for one in (tick, later)] == [("skipped", "paused")] * 2
    assert ran == [(SLOT, None)]
    calls.clear()
    resumer.handler({}, context())
    assert read(store).dispatched_at is None  # while paused nothing is sent
    operations.unpause(store, "export")
    clock.advance(hours=1)
    assert handler(resume_event("export", SLOT), context("60s"))["outcome"] == "succeeded"
    assert ran == [(SLOT, None), (SLOT, 50)]
    assert read(store, NEXT).state == "skipped"
    assert read(store).strikes == 1  # no attempt was burnt


@pytest.mark.parametrize("overlap", ["skip", "allow"])
def test_a_pause_lets_the_batch_in_hand_end_and_then_stops(
    store: Store, clock: SettableClock, context: Contexts, overlap: Any
) -> None:
    @job("export", overlap=overlap)
    def handler(run: Run) -> None:
        for cursor in range(run.checkpoint or 0, 3):
            if run.attempt == 1 and cursor == 1:
                told = operations.pause(store, "export")
                assert [record.slot for record in told] == [SLOT]
            run.save(cursor + 1)

    answer = handler(scheduler_event("export", SLOT), context())
    assert (answer["outcome"], answer["reason"]) == ("interrupted", "paused")
    assert read(store).checkpoint == "2"
    assert handler(resume_event("export", SLOT), context())["reason"] == "paused"
    operations.unpause(store, "export")
    assert handler(resume_event("export", SLOT), context())["outcome"] == "succeeded"


def test_a_pause_ends_by_itself(store: Store, clock: SettableClock, context: Contexts) -> None:
    @job("export")
    def handler(run: Run) -> None:
        pass

    operations.pause(store, "export", until=datetime.fromisoformat("2026-11-29T12:30:00Z"))
    assert handler(scheduler_event("export", SLOT), context())["reason"] == "paused"
    clock.set("2026-11-29T12:30:00Z")
    assert handler(scheduler_event("export", NEXT), context())["outcome"] == "succeeded"


def test_a_pause_does_not_count_in_the_timeout(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export", timeout="10m")
    def handler(run: Run) -> None:
        if run.checkpoint is None:
            clock.advance(seconds=55)
            run.save(1)

    handler(scheduler_event("export", SLOT), context("60s"))
    operations.pause(store, "export")
    clock.advance(hours=48)
    operations.unpause(store, "export")
    assert handler(resume_event("export", SLOT), context("60s"))["outcome"] == "succeeded"


def test_unpausing_what_is_not_paused_is_refused(store: Store) -> None:
    with pytest.raises(RefusedError, match="export is not paused"):
        operations.unpause(store, "export")


# --- retry, release ----------------------------------------------------------------------------


def failed_run(store: Store, clock: SettableClock, context: Contexts) -> Job:
    fails = [True]

    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        if run.checkpoint is None:
            run.save(5)
        if fails:
            fails.clear()
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(scheduler_event("export", SLOT), context())
    return handler


@pytest.mark.parametrize(("from_start", "checkpoint"), [(False, "5"), (True, None)])
def test_a_retry_keeps_history_and_checkpoint_unless_from_start(
    store: Store, clock: SettableClock, context: Contexts, from_start: bool, checkpoint: str | None
) -> None:
    handler = failed_run(store, clock, context)
    operations.retry(store, "export", WHEN, from_start=from_start)
    record = read(store)
    assert ("pending", "retry", checkpoint, 0) == (
        record.state,
        record.cause,
        record.checkpoint,
        record.strikes,
    )
    assert record.expires_at is None
    assert handler(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert [attempt.end for attempt in read(store).attempts] == ["failed", "succeeded"]


def test_a_retry_is_refused_with_its_reason(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    with pytest.raises(RefusedError, match="there is no run of export for 2026-11-29T12:00:00Z"):
        operations.retry(store, "export", WHEN)

    @job("export")
    def handler(run: Run) -> None:
        with pytest.raises(RefusedError, match="is being worked on"):
            operations.retry(store, "export", WHEN)

    handler(scheduler_event("export", SLOT), context())
    with pytest.raises(RefusedError, match="has succeeded"):
        operations.retry(store, "export", WHEN)
    operations.retry(store, "export", WHEN, force=True)


def test_of_two_operators_one_does_it_and_the_other_is_told(
    store: Store, clock: SettableClock, context: Contexts, faults: Any
) -> None:
    failed_run(store, clock, context)

    def other() -> None:
        operations.retry(store, "export", WHEN)

    faults._before.append(_once_before_a_retry(other))
    with pytest.raises(RefusedError, match="changed meanwhile"):
        operations.retry(store, "export", WHEN)
    assert read(store).state == "pending"


def _once_before_a_retry(do: Callable[[], None]) -> Any:
    done: list[bool] = []

    def hook(request: Any) -> None:
        if "#cause = :retry" in request.body.get("UpdateExpression", "") and not done:
            done.append(True)
            do()

    return hook


def test_a_released_holder_stays_fenced(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export")
    def zombie(run: Run) -> None:
        run.save(1)
        operations.release(store, "export", WHEN)
        run.save(2)

    @job("export")
    def successor(run: Run) -> None:
        assert (run.attempt, run.checkpoint) == (3, 1)

    assert zombie(scheduler_event("export", SLOT), context())["outcome"] == "lost"
    assert read(store).checkpoint == "1"
    assert successor(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert [one.end for one in read(store).attempts] == ["lost", "released", "succeeded"]
    with pytest.raises(RefusedError, match="nobody holds it"):
        operations.release(store, "export", WHEN)


# --- version -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "seen", "outcome"),
    [("restart", None, "succeeded"), ("continue", 5, "succeeded"), ("fail", "none", "raised")],
)
def test_a_change_of_version_is_handled_as_the_job_says(
    store: Store, clock: SettableClock, context: Contexts, policy: Any, seen: Any, outcome: str
) -> None:
    found: list[Any] = []

    def version(name: str) -> Job:
        @job("export", version=name, on_version_change=policy)
        def handler(run: Run) -> None:
            if name == "1":
                clock.advance(seconds=55)
                run.save(5)
            found.append(run.checkpoint)
            run.save("done")

        return handler

    version("1")(scheduler_event("export", SLOT), context())
    if outcome == "raised":
        with pytest.raises(CheckpointError, match="saved by version '1', this is '2'"):
            version("2")(resume_event("export", SLOT), context())
        assert read(store).checkpoint == "5"
        return
    assert version("2")(resume_event("export", SLOT), context("15m"))["outcome"] == outcome
    assert [seen] == found
    assert read(store).version == "2"


# --- metrics -----------------------------------------------------------------------------------


def metrics_of(out: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in out.splitlines() if '"_aws"' in line]
    known = ("Attempts", "Runs", "Slots", "Takeovers")
    return [
        {name: value[0] for name, value in record.items() if name.startswith(known)}
        for record in records
    ]


def test_C53_every_attempt_is_counted_the_killed_one_by_who_takes_over(
    store: Store,
    clock: SettableClock,
    context: Contexts,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endings = iter(["kill", "raise", "ok"])

    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        ending = next(endings)
        if ending == "kill":
            raise SystemExit
        if ending == "raise":
            raise ValueError("boom")

    with monkeypatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.end", _die)
        with pytest.raises(SystemExit):
            handler(scheduler_event("export", SLOT), context())
    clock.advance(minutes=2)
    with pytest.raises(ValueError, match="boom"):
        handler(resume_event("export", SLOT), context())
    handler(resume_event("export", SLOT), context())
    handler(resume_event("export", SLOT), context())  # a duplicate: no metric of success
    assert metrics_of(capsys.readouterr().out) == [
        {"AttemptsStarted": 1},
        {"AttemptsStarted": 1, "Takeovers": 1},
        {"AttemptsFailed": 1},
        {"AttemptsStarted": 1},
        {"RunsSucceeded": 1},
    ]


def test_C53_no_dimension_names_a_slot_or_an_instance(
    store: Store, context: Contexts, capsys: pytest.CaptureFixture[str]
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        pass

    handler(scheduler_event("export:tenant-a", SLOT), context())
    for line in capsys.readouterr().out.splitlines():
        record = json.loads(line)
        for directive in record.get("_aws", {}).get("CloudWatchMetrics", []):
            assert directive["Dimensions"] == [["stack"], ["job", "stack"]]
            assert directive["Namespace"] == "Anarchon"
            assert (record["job"], record["instance"]) == ("export", "export:tenant-a")


def test_C60_forty_invocations_complete_without_a_chain_from_the_running_one(
    store: Store, clock: SettableClock, context: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resumer is a fresh trigger each time: nothing counts the hops."""
    sent: list[str] = []
    monkeypatch.setattr("anarchon_ddb.dispatch.send", lambda _s, _f, key: sent.append(key.slot))

    @job("export")
    def handler(run: Run) -> None:
        done = run.checkpoint or 0
        while done < 40:
            clock.advance(seconds=55)
            done += 1
            run.save(done)

    answer = handler(scheduler_event("export", SLOT), context("60s"))
    while answer["outcome"] == "interrupted":
        clock.advance(seconds=60)
        resumer.handler({}, context("50s"))
        answer = handler(resume_event("export", sent.pop()), context("60s"))
    assert (answer["outcome"], answer["attempt"]) == ("succeeded", 41)


def test_a_cancel_that_comes_just_before_the_handler_fails_ends_the_run(
    store: Store, context: Contexts
) -> None:
    """The let-go takes the request away: it must not be lost with it."""

    @job("export")
    def handler(run: Run) -> None:
        operations.cancel(store, "export", WHEN)
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(scheduler_event("export", SLOT), context())
    record = read(store)
    assert (record.state, record.reason, record.error) == (
        "cancelled",
        "cancelled",
        "ValueError: boom",
    )
    assert store.read_head("export").active_slot is None


def test_a_cancel_that_comes_just_before_an_early_stop_ends_the_run(
    store: Store, context: Contexts
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save(1)
        operations.cancel(store, "export", WHEN)
        spare.remaining_ms = 1_000
        assert run.should_stop

    spare = context()
    answer = handler(scheduler_event("export", SLOT), spare)
    assert (answer["outcome"], read(store).state) == ("cancelled", "cancelled")
    assert read(store).expires_at is not None
    assert store.read_head("export").active_slot is None


def test_a_cancel_of_a_run_that_is_claimed_again_at_once_is_told(
    store: Store, context: Contexts, faults: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def claimed(request: Any) -> None:
        if "#state = :cancelled" in request.body.get("UpdateExpression", ""):
            store.client.update_item(
                TableName=store.table,
                Key=request.body["Key"],
                UpdateExpression="SET attempt = :two",
                ExpressionAttributeValues={":two": {"N": "2"}},
            )

    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        operations.cancel(store, "export", WHEN)
        faults._before.append(claimed)
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(scheduler_event("export", SLOT), context())
    assert read(store).state == "retrying"
    assert "cancel it again" in capsys.readouterr().out


def test_a_cancel_behind_the_let_go_whose_reply_was_lost_has_ended_the_run(
    store: Store, context: Contexts, faults: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The SDK's copy of it is refused, since the run is cancelled by then."""

    @job("export")
    def handler(run: Run) -> None:
        run.save(1)
        operations.cancel(store, "export", WHEN)
        faults.lose_reply("finish")
        spare.remaining_ms = 1_000
        assert run.should_stop

    spare = context()
    answer = handler(scheduler_event("export", SLOT), spare)
    assert (answer["outcome"], read(store).state) == ("cancelled", "cancelled")
    assert store.read_head("export").active_slot is None
    assert "cancel it again" not in capsys.readouterr().out


def test_a_cancel_that_can_not_be_stored_behind_the_let_go_is_told(
    store: Store, context: Contexts, faults: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failure is recorded by then: only the cancel is not."""

    @job("export")
    def handler(run: Run) -> None:
        operations.cancel(store, "export", WHEN)
        faults.answer("finish", "AccessDeniedException")
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(scheduler_event("export", SLOT), context())
    assert read(store).state == "retrying"
    told = capsys.readouterr().out
    assert "cancel it again" in told
    assert "The failure was not recorded" not in told
