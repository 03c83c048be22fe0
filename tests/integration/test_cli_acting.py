"""What a person does: run, retry, cancel, pause, release, rewind, backfill; and races of two."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from anarchon_ddb import Run, job, operations
from anarchon_ddb.clock import iso
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT, read
from tests.faults import Faults, Request
from tests.operator import ARN, Lambda, Operator, put_run, schedule

Contexts = Callable[..., LambdaContext]
FUNCTION = "prod-export"


class Terminal(io.StringIO):
    """A person who answers."""

    def isatty(self) -> bool:
        return True


def before_write(faults: Faults, marker: str, do: Callable[[], Any]) -> None:
    """Let another person be first: just before the write that has the marker is sent."""
    done: list[bool] = []

    def hook(request: Request) -> None:
        if marker in request.body.get("UpdateExpression", "") and not done:
            done.append(True)
            do()

    faults._before.append(hook)


@pytest.fixture
def ran(lambdas: Lambda, ops: Operator) -> list[tuple[str, Any]]:
    """The export job, deployed: what its handler was given."""
    seen: list[tuple[str, Any]] = []

    @job("export")
    def handler(run: Run) -> None:
        seen.append((iso(run.slot), run.params or run.checkpoint))
        run.save(7, done=7, total=7)

    lambdas.handlers[FUNCTION] = handler
    schedule("export", "cron(0 * * * ? *)", params={"region": "eu"})
    return seen


def failed_run(context: Contexts, slot: str = SLOT) -> None:
    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        run.save(5)
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        handler(scheduler_event("export", slot), context(function_name=FUNCTION))


# --- run ---------------------------------------------------------------------------------------


def test_run_invokes_the_jobs_function_which_claims_the_slot_as_any(
    ops: Operator, store: Store, lambdas: Lambda, ran: list[Any]
) -> None:
    answer = ops("run", "export", "--slot", SLOT)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"Sent: export {SLOT} is run by {ARN}{FUNCTION}.\n"
    assert ran == [(SLOT, {"region": "eu"})]
    assert (read(store).state, read(store).cause) == ("succeeded", "person")
    assert lambdas.events[0]["schedule"].endswith("schedule/prod/export")


def test_run_without_a_slot_is_now_with_the_params_given_and_waits(
    ops: Operator, store: Store, ran: list[Any], clock: SettableClock
) -> None:
    answer = ops("run", "export", "--params", '{"day": 3}', "--wait")
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "export 2026-11-29T12:00:05Z: succeeded, 7 of 7 done"
    assert ran == [("2026-11-29T12:00:05Z", {"day": 3})]
    clock.advance(seconds=1)
    found = ops.json("run", "export", "--wait")
    assert (found["state"], found["params"]) == ("succeeded", '{"region":"eu"}')


def test_run_waits_and_tells_a_failure_by_its_exit_code(
    ops: Operator, lambdas: Lambda, ran: list[Any]
) -> None:
    @job("export", max_attempts=1)
    def fails(run: Run) -> None:
        raise ValueError("no such bucket")

    lambdas.handlers[FUNCTION] = fails
    answer = ops("run", "export", "--wait")
    assert answer.code == 1
    assert "failed (error): ValueError: no such bucket" in answer.out


def test_run_gives_up_waiting_for_what_is_never_claimed(
    ops: Operator, lambdas: Lambda, ran: list[Any]
) -> None:
    lambdas.handlers[FUNCTION] = lambda *_: None
    answer = ops("run", "export", "--wait")
    assert answer.code == 1
    assert "has claimed nothing for 2 minutes. Look at its log" in answer.err


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("succeeded", "has run already: succeeded. To run it again: anarchon-ddb retry"),
        ("failed", "has run already: failed. To run it again: anarchon-ddb retry"),
        ("interrupted", "it goes on by itself. See: anarchon-ddb explain"),
    ],
)
def test_run_of_a_slot_that_has_a_run_is_refused(
    ops: Operator, store: Store, ran: list[Any], state: str, hint: str
) -> None:
    put_run(store, "export", SLOT, state=state)
    answer = ops("run", "export", "--slot", SLOT)
    assert (answer.code, ran) == (1, [])
    assert hint in answer.err


def test_run_of_a_missed_slot_is_its_first_delivery(
    ops: Operator, store: Store, ran: list[Any]
) -> None:
    put_run(store, "export", SLOT, state="missed", reason="undelivered", attempt=0)
    assert ops("run", "export", "--slot", SLOT, "--wait").code == 0
    assert read(store).state == "succeeded"


def test_run_warns_of_a_slot_that_the_schedule_does_not_have(ops: Operator, ran: list[Any]) -> None:
    answer = ops("run", "export", "--slot", "2026-11-29T11:30:00Z")
    assert answer.code == 0
    assert "2026-11-29T11:30:00Z is no slot of the job's schedules" in answer.err


def test_run_without_a_registry_takes_the_function_of_the_last_run(
    ops: Operator, store: Store, lambdas: Lambda, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANARCHON_SCHEDULE_GROUP")
    answer = ops("run", "export")
    assert answer.code == 1
    assert "no function is known for export: it has no run yet" in answer.err
    put_run(store, "export", "2026-11-29T11:00:00Z", function=ARN + FUNCTION)
    assert ops("run", "export", "--slot", SLOT, "--wait").code == 0


def test_run_of_a_function_that_is_gone_says_so(
    ops: Operator, lambdas: Lambda, ran: list[Any]
) -> None:
    lambdas.handlers.clear()
    answer = ops("run", "export")
    assert answer.code == 1
    assert "could not be invoked" in answer.err
    assert "Deploy the job" in answer.err


def test_ctrl_c_ends_the_waiting_and_not_the_run(
    ops: Operator, lambdas: Lambda, ran: list[Any], clock: SettableClock, store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", interrupt)
    lambdas.handlers[FUNCTION] = lambda *_: None
    answer = ops("run", "export", "--wait")
    assert (answer.code, "what was sent goes on by itself" in answer.err) == (130, True)


# --- retry -------------------------------------------------------------------------------------


def test_retry_sends_the_run_on_its_way_and_keeps_its_history(
    ops: Operator, store: Store, context: Contexts, ran: list[Any]
) -> None:
    failed_run(context)
    answer = ops("retry", "export", SLOT)
    assert answer.out == (
        f"export {SLOT} was failed and is tried again. Sent to {ARN}{FUNCTION}.\n"
    )
    assert ran == [(SLOT, 5)]
    assert [one.end for one in read(store).attempts] == ["failed", "succeeded"]


def test_retry_from_start_forgets_the_checkpoint_and_last_means_the_newest(
    ops: Operator, store: Store, context: Contexts, ran: list[Any]
) -> None:
    failed_run(context)
    found = ops.json("retry", "export", "last", "--from-start", "--yes")
    assert (found["slot"], found["was"], found["is_sent"]) == (SLOT, "failed", True)
    assert ran == [(SLOT, None)]


def test_retry_of_a_succeeded_or_held_run_is_refused_with_the_reason(
    ops: Operator, store: Store, clock: SettableClock, context: Contexts, ran: list[Any]
) -> None:
    put_run(store, "export", SLOT)
    answer = ops("retry", "export", SLOT)
    assert (answer.code, "has succeeded; to run it once more, force it" in answer.err) == (1, True)
    assert ops("retry", "export", SLOT, "--force", "--yes").code == 0
    assert read(store).state == "succeeded"
    later = clock.now_ms() + 30_000
    put_run(store, "export", SLOT, state="running", lease_until=later)
    answer = ops("retry", "export", SLOT, "--force", "--from-start", "--yes")
    assert (answer.code, "is being worked on (attempt 1)" in answer.err) == (1, True)


def test_of_two_who_retry_one_does_it_and_the_other_is_told(
    ops: Operator, store: Store, context: Contexts, ran: list[Any], faults: Faults
) -> None:
    failed_run(context)
    before_write(faults, "#cause = :retry", lambda: operations.retry(
        store, "export", datetime.fromisoformat(SLOT)))  # fmt: skip
    answer = ops("retry", "export", SLOT)
    assert answer.code == 1
    assert "changed meanwhile, nothing was done: look at it again" in answer.err
    assert (read(store).state, ran) == ("pending", [])


# --- cancel, pause, release --------------------------------------------------------------------


def test_cancel_asks_and_ends_an_open_run_at_once(
    ops: Operator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_run(store, "export", SLOT, state="interrupted", open="1", due=1)
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    answer = ops("cancel", "export", SLOT)
    assert (answer.code, read(store).state) == (1, "interrupted")
    assert "Stopped: nothing was done" in answer.err
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert ops("cancel", "export", SLOT).out == f"export {SLOT} was interrupted and is cancelled.\n"
    assert read(store).state == "cancelled"
    answer = ops("cancel", "export", SLOT, "--yes")
    assert (answer.code, "has ended already: cancelled" in answer.err) == (1, True)


def test_cancel_tells_a_live_holder(ops: Operator, store: Store, context: Contexts) -> None:
    told: list[str] = []

    @job("export")
    def handler(run: Run) -> None:
        told.append(ops("cancel", "export", SLOT, "--yes").out)
        run.save(1)

    answer = handler(scheduler_event("export", SLOT), context())
    assert told == [
        f"export {SLOT} was told to stop: it ends at its next save, or its next heartbeat.\n"
    ]
    assert answer["outcome"] == "cancelled"


@pytest.mark.parametrize(
    ("marker", "first", "second"),
    [
        ("#state = :cancelled", "cancel", "cancel"),
        ("#state = :cancelled", "retry", "cancel"),
        ("#checkpoint = :checkpoint", "cancel", "rewind"),
    ],
)
def test_of_two_persons_who_change_a_run_one_is_told(
    ops: Operator, store: Store, faults: Faults, marker: str, first: str, second: str
) -> None:
    put_run(store, "export", SLOT, state="interrupted", open="1", due=1)
    when = datetime.fromisoformat(SLOT)
    before_write(faults, marker, lambda: getattr(operations, first)(store, "export", when))
    arguments = ["--to", "3"] if second == "rewind" else []
    answer = ops(second, "export", SLOT, *arguments, "--yes")
    assert answer.code == 1
    assert "changed meanwhile" in answer.err


def test_C48_a_pause_holds_through_ticks_and_the_run_goes_on_after_it(
    ops: Operator, store: Store, clock: SettableClock, context: Contexts
) -> None:
    seen: list[Any] = []

    @job("export")
    def handler(run: Run) -> None:
        seen.append(run.checkpoint)
        if run.checkpoint is None:
            clock.advance(seconds=55)
            run.save(50)

    handler(scheduler_event("export", SLOT), context("60s"))
    found = ops.json("pause", "export", "--note", "source is down")
    assert (found["stopping"], found["until"]) == ([], None)
    assert handler(resume_event("export", SLOT), context())["reason"] == "paused"
    following = "2026-11-29T12:01:00Z"
    assert handler(scheduler_event("export", following), context())["outcome"] == "skipped"
    assert (
        "The job is paused (source is down): nothing happens until"
        in ops("explain", "export", SLOT).out
    )
    assert ops("unpause", "export").code == 0
    assert handler(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert seen == [None, 50]
    states = {one["slot"]: one["condition"] for one in ops.json("runs", "export")["runs"]}
    assert states == {SLOT: "succeeded", following: "skipped (paused)"}
    answer = ops("unpause", "export")
    assert (answer.code, "export is not paused" in answer.err) == (1, True)


def test_a_pause_with_an_end_says_when_it_is(ops: Operator) -> None:
    assert ops("pause", "export", "--until", "2h").out == (
        "export is paused until 2026-11-29 14:00:05 UTC.\n"
    )
    answer = ops("run", "export")
    assert (answer.code, "export is paused: the function would skip" in answer.err) == (1, True)


def test_a_released_holder_stays_fenced(ops: Operator, store: Store, context: Contexts) -> None:
    @job("export")
    def zombie(run: Run) -> None:
        run.save(1)
        assert ops("release", "export", SLOT, "--yes").code == 0
        run.save(2)

    assert zombie(scheduler_event("export", SLOT), context())["outcome"] == "lost"
    assert (read(store).checkpoint, read(store).attempt) == ("1", 2)
    answer = ops("release", "export", SLOT, "--yes")
    assert (answer.code, "nobody holds it" in answer.err) == (1, True)


# --- rewind ------------------------------------------------------------------------------------


def test_rewind_sets_the_cursor_of_a_failed_run_which_a_retry_begins_at(
    ops: Operator, store: Store, context: Contexts, ran: list[Any]
) -> None:
    failed_run(context)
    answer = ops("rewind", "export", SLOT, "--to", "3", "--yes")
    assert answer.out == (
        f"export {SLOT}: its checkpoint was 5 and is 3 now. "
        f"To run it: anarchon-ddb retry export {SLOT}\n"
    )
    assert ops("retry", "export", SLOT).code == 0
    assert ran == [(SLOT, 3)]


def test_rewind_takes_a_cursor_as_it_is_stored_type_for_type(ops: Operator, store: Store) -> None:
    put_run(store, "export", SLOT, state="interrupted", open="1", due=1, done=4, total=9)
    stored = '{"$":"tuple","v":[1,{"$":"date","v":"2026-11-29"}]}'
    assert ops("rewind", "export", SLOT, "--to", stored, "--yes").code == 0
    assert (read(store).checkpoint, read(store).done) == (stored, None)


@pytest.mark.parametrize(
    ("attributes", "to", "code", "told"),
    [
        ({"state": "running", "lease_until": 1}, "1", 1, "is running (attempt 1): cancel it, or"),
        ({"state": "succeeded"}, "1", 1, "has ended as succeeded: retry it first"),
        ({"state": "interrupted"}, "null", 1, "null is no cursor"),
        ({"state": "interrupted"}, "NaN", 1, "not a finite number"),
        ({"state": "interrupted"}, '{"$":"what","v":1}', 2, "--to is no cursor"),
        ({"state": "interrupted"}, "{", 2, "is no JSON"),
    ],
)
def test_rewind_is_refused_and_the_stored_cursor_stays(
    ops: Operator, store: Store, attributes: dict[str, Any], to: str, code: int, told: str
) -> None:
    put_run(store, "export", SLOT, checkpoint="9", **attributes)
    answer = ops("rewind", "export", SLOT, "--to", to, "--yes")
    assert (answer.code, told in answer.err) == (code, True), answer.err
    assert read(store).checkpoint == "9"


# --- backfill ----------------------------------------------------------------------------------

HOURS = [f"2026-11-29T{hour:02}:00:00Z" for hour in range(13)]
SPAN = ("--from", HOURS[6], "--to", "2026-11-29T12:00:01Z")


@pytest.fixture
def gaps(store: Store, ran: list[Any]) -> None:
    put_run(store, "export", HOURS[7])
    put_run(store, "export", HOURS[8], state="failed", reason="error", function=ARN + FUNCTION,
            checkpoint="4", params='{"region":"eu"}')  # fmt: skip
    put_run(store, "export", HOURS[9], state="skipped", reason="overlap")
    put_run(store, "export", HOURS[10], state="missed", reason="undelivered", attempt=0)
    put_run(store, "export", HOURS[11], state="interrupted", open="1", due=1)


@pytest.mark.usefixtures("gaps")
def test_backfill_shows_its_plan_and_a_dry_run_does_nothing(ops: Operator, lambdas: Lambda) -> None:
    answer = ops("backfill", "export", *SPAN, "--dry-run")
    assert answer.code == 0
    rows = [line.split() for line in answer.out.splitlines()[1:-1]]
    assert [(row[0], row[1]) for row in rows] == [
        (HOURS[6], "missing"), (HOURS[8], "failed"), (HOURS[9], "skipped"),
        (HOURS[10], "missed"), (HOURS[12], "missing"),
    ]  # fmt: skip
    assert "5 of 7 slots to run; left alone: 1 succeeded, 1 interrupted: it goes on" in answer.out
    plan = ops.json("backfill", "export", *SPAN, "--dry-run", "--force")["slots"]
    assert Counter(one["action"] for one in plan) == Counter(run=3, retry=2, restart=1, leave=1)
    assert lambdas.events == []


@pytest.mark.usefixtures("gaps")
def test_backfill_runs_what_did_not_succeed_one_after_another(
    ops: Operator, store: Store, lambdas: Lambda, ran: list[Any]
) -> None:
    answer = ops("backfill", "export", *SPAN, "--yes")
    assert answer.code == 0, answer.err
    assert "5 of 5 succeeded." in answer.out
    assert [slot for slot, _ in ran] == [HOURS[6], HOURS[8], HOURS[9], HOURS[10], HOURS[12]]
    causes = [read(store, slot).cause for slot in (HOURS[6], HOURS[8])]
    assert causes == ["backfill", "retry"]
    again = ops.json("backfill", "export", *SPAN, "--yes")["slots"]
    assert {one["action"] for one in again} == {"leave"}


@pytest.mark.usefixtures("gaps")
@pytest.mark.parametrize(
    ("only", "slots"),
    [("missing", (6, 10, 12)), ("failed", (8,)), ("skipped", (9,))],
)
def test_backfill_only_runs_what_is_asked_for(
    ops: Operator, ran: list[Any], only: str, slots: tuple[int, ...]
) -> None:
    assert ops("backfill", "export", *SPAN, "--only", only, "--yes").code == 0
    assert [slot for slot, _ in ran] == [HOURS[hour] for hour in slots]


@pytest.mark.usefixtures("gaps")
def test_backfill_tells_what_failed_and_goes_on(
    ops: Operator, store: Store, lambdas: Lambda
) -> None:
    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        if iso(run.slot) == HOURS[8]:
            raise ValueError("still broken")

    lambdas.handlers[FUNCTION] = handler
    found = ops("backfill", "export", *SPAN, "--yes", "--json")
    assert found.code == 1
    outcomes = {one["slot"]: one.get("outcome") for one in found.data["slots"]}
    assert outcomes[HOURS[8]] == "failed (error)"
    assert outcomes[HOURS[12]] == "succeeded"


def test_a_live_delivery_during_a_backfill_leaves_its_trace_and_never_runs_beside_it(
    ops: Operator, store: Store, lambdas: Lambda, clock: SettableClock, context: Contexts
) -> None:
    inside: list[str] = []

    @job("export", overlap="queue", continuation="self")
    def handler(run: Run) -> None:
        assert inside == []
        inside.append(iso(run.slot))
        clock.advance(seconds=1)
        if iso(run.slot) == HOURS[10]:
            live = handler(scheduler_event("export", SLOT), context(function_name=FUNCTION))
            assert live["outcome"] == "pending"
        run.save(1)
        inside.clear()

    lambdas.handlers[FUNCTION] = handler
    schedule("export", "cron(0 * * * ? *)")
    put_run(store, "export", HOURS[9])
    answer = ops("backfill", "export", "--from", HOURS[9], "--to", HOURS[12], "--yes")
    assert answer.code == 0, answer.err + answer.out
    states = {row["slot"]: row["state"] for row in ops.json("runs", "export")["runs"]}
    assert states == {HOURS[9]: "succeeded", HOURS[10]: "succeeded", HOURS[11]: "succeeded",
                      SLOT: "succeeded"}  # fmt: skip


def test_a_live_delivery_under_skip_is_recorded_and_can_be_filled_in(
    ops: Operator, store: Store, lambdas: Lambda, context: Contexts
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        if iso(run.slot) == HOURS[11]:
            handler(scheduler_event("export", SLOT), context(function_name=FUNCTION))
        run.save(1)

    lambdas.handlers[FUNCTION] = handler
    schedule("export", "cron(0 * * * ? *)")
    assert ops("backfill", "export", "--from", HOURS[11], "--to", SLOT, "--yes").code == 0
    assert (read(store).state, read(store).reason) == ("skipped", "overlap")
    assert ops("backfill", "export", *SPAN, "--only", "skipped", "--yes").code == 0
    assert read(store).state == "succeeded"


def test_backfill_of_a_rate_fills_what_lies_between_the_slots_delivered(
    ops: Operator, store: Store, lambdas: Lambda, ran: list[Any]
) -> None:
    @job("rollup")
    def rollup(run: Run) -> None:
        pass

    lambdas.handlers["prod-rollup"] = rollup
    schedule("rollup", "rate(1 hour)")
    answer = ops("backfill", "rollup", "--from", HOURS[6], "--to", HOURS[12], "--yes")
    assert "is due at a rate, and has no run yet" in answer.err
    put_run(store, "rollup", "2026-11-29T07:17:00Z")
    put_run(store, "rollup", "2026-11-29T10:16:58Z")
    plan = ops.json("backfill", "rollup", "--from", HOURS[6], "--to", HOURS[12], "--dry-run")
    missing = [one["slot"][11:19] for one in plan["slots"] if one["was"] == "missing"]
    assert missing == ["06:16:58", "08:16:58", "09:16:58", "11:16:58"]


@pytest.mark.usefixtures("gaps")
def test_backfill_stops_when_the_job_is_paused_meanwhile(
    ops: Operator, store: Store, lambdas: Lambda
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        operations.pause(store, "export")
        run.save(1)

    lambdas.handlers[FUNCTION] = handler
    answer = ops("backfill", "export", *SPAN, "--yes")
    assert answer.code == 1
    assert "the job was paused; it goes on when unpaused" in answer.err
    assert "the job was paused; not sent" in answer.err


def test_backfill_of_what_is_older_than_the_retention_is_refused_in_the_plan(
    ops: Operator, ran: list[Any]
) -> None:
    plan = ops.json("backfill", "export", "--from", "2026-10-01T00:00:00Z", "--to",
                    "2026-10-01T02:00:00Z", "--dry-run")  # fmt: skip
    assert [(one["action"], one["was"]) for one in plan["slots"]] == [
        ("leave", "missing, older than the retention")
    ] * 2
