"""What a person sees: jobs, next, runs, open and explain, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from anarchon_ddb import Run, job, operations
from anarchon_ddb.clock import iso
from anarchon_ddb.group import ScheduleGroup
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT
from tests.operator import Operator, minutes, put_run, put_runs, schedule

Contexts = Callable[..., LambdaContext]


def die(_held: object, error: BaseException, **_: object) -> None:
    raise error


def killed(clock: SettableClock, context: Contexts, slot: str = SLOT, name: str = "export") -> None:
    """Leave a run behind as a kill does, two of five done."""

    @job(name)
    def handler(run: Run) -> None:
        run.save(1, done=1, total=5)
        clock.advance(seconds=10)
        run.save(2, done=2, total=5)
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.end", die)
        with pytest.raises(SystemExit):
            handler(scheduler_event(name, slot), context())


# --- jobs --------------------------------------------------------------------------------------


def test_jobs_shows_each_job_with_its_schedule_last_run_and_pause(
    ops: Operator, store: Store, clock: SettableClock, context: Contexts
) -> None:
    schedule("export", "cron(0 2 * * ? *)", "Europe/Berlin")
    schedule("rollup", "rate(10 minutes)")
    schedule("off", "cron(0 3 * * ? *)", state="DISABLED")
    killed(clock, context)
    operations.pause(store, "rollup", note="source is down")
    answer = ops("jobs")
    assert answer.code == 0
    export, off, rollup, paused = answer.out.splitlines()[1:]
    for word in ("running", "in 12 h 59 min", "skip", "at 02:00, every day, Europe/Berlin"):
        assert word in export
    assert "(disabled)" in off
    assert "paused" in rollup
    assert paused.startswith("rollup is paused since 2026-11-29 12:00:15 UTC: source is down")
    found = {one["job"]: one for one in ops.json("jobs")["jobs"]}
    assert found["export"]["next_slot"] == "2026-11-30T01:00:00Z"
    assert found["export"]["last_run"]["condition"] == "running"
    assert found["export"]["policy"]["overlap"] == "skip"
    assert found["off"]["next_slot"] is None
    assert found["rollup"]["pause"]["note"] == "source is down"


def test_a_job_without_a_schedule_is_listed_while_a_run_of_it_is_open(
    ops: Operator, clock: SettableClock, context: Contexts
) -> None:
    schedule("other", "rate(1 hour)")
    killed(clock, context, name="ghost")
    rows = {one["job"]: one for one in ops.json("jobs")["jobs"]}
    assert rows["ghost"]["schedules"] == []
    assert "no schedule" in ops("jobs").out


def test_jobs_with_a_damaged_head_and_a_damaged_run_shows_the_others(
    ops: Operator, store: Store
) -> None:
    schedule("bad", "rate(1 hour)")
    schedule("good", "rate(1 hour)")
    store.client.put_item(
        TableName=store.table,
        Item={"pk": {"S": "job#bad"}, "sk": {"S": "head"}, "rev": {"S": "x"}},
    )
    put_run(store, "bad", SLOT, attempt="x")
    put_run(store, "good", SLOT)
    rows = {one["job"]: one for one in ops.json("jobs")["jobs"]}
    assert "damaged" in rows["bad"]["problem"]
    assert rows["bad"]["last_run"]["state"] == "damaged"
    assert rows["good"]["last_run"]["state"] == "succeeded"
    assert ops("jobs").code == 0


def test_C62_a_table_with_replicas_is_warned_of(
    ops: Operator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule("export", "rate(1 hour)")
    assert ops("jobs").err == ""
    original = Store._call

    def global_table(self: Store, operation: str, request: dict[str, Any]) -> Any:
        """Answer as DynamoDB does of a global table: moto's has no replicas."""
        found = original(self, operation, request)
        if operation == "DescribeTable" and found:
            found["Table"]["Replicas"] = [{"RegionName": "eu-central-1"}]
        return found

    monkeypatch.setattr(Store, "_call", global_table)
    assert "replicated to eu-central-1: two regions can both grant a claim" in ops("jobs").err


def test_jobs_of_200_jobs_makes_few_calls_for_each(
    ops: Operator, store: Store, calls: list[str]
) -> None:
    for index in range(200):
        schedule(f"job-{index:03}", "rate(1 hour)")
    calls.clear()
    assert len(ops.json("jobs")["jobs"]) == 200
    assert Counter(
        ListSchedules=4, GetSchedule=200, Query=200 + 4 + 1, BatchGetItem=2, DescribeTable=1
    ) == Counter(calls)


# --- next --------------------------------------------------------------------------------------


def test_C09_next_shows_every_slot_on_the_jobs_clock_and_in_UTC(
    ops: Operator, clock: SettableClock
) -> None:
    clock.set("2026-01-01T12:00:00Z")
    schedule("report", "cron(0 0 * * ? *)", "Asia/Tokyo")
    answer = ops("next", "report", "-n", "2")
    assert answer.out.splitlines()[0] == "report: at 00:00, every day, Asia/Tokyo time"
    assert "Fri 2026-01-02 00:00:00 +09:00  2026-01-01T15:00:00Z  3 h" in answer.out
    assert "Sat 2026-01-03 00:00:00 +09:00  2026-01-02T15:00:00Z" in answer.out
    slots = ops.json("next", "report", "-n", "2")["slots"]
    assert [one["slot"] for one in slots] == ["2026-01-01T15:00:00Z", "2026-01-02T15:00:00Z"]
    assert slots[0]["local"] == "2026-01-02T00:00:00+09:00"


def test_next_marks_a_local_time_that_does_not_exist(ops: Operator, clock: SettableClock) -> None:
    clock.set("2026-03-27T12:00:00Z")
    schedule("export", "cron(30 2 * * ? *)", "Europe/Berlin")
    slots = ops.json("next", "export", "-n", "2")["slots"]
    assert [one["slot"] for one in slots] == ["2026-03-28T01:30:00Z", None, "2026-03-30T00:30:00Z"]
    assert slots[1]["local"] == "2026-03-29T02:30:00"
    assert "does not exist that day" in slots[1]["note"]
    assert "Sun 2026-03-29 02:30:00" in ops("next", "export").out


def test_next_has_one_row_for_a_whole_gap_and_marks_what_the_clock_shows_twice(
    ops: Operator, clock: SettableClock
) -> None:
    clock.set("2026-03-29T00:57:00Z")
    schedule("minutely", "cron(* * * * ? *)", "Europe/Berlin")
    slots = ops.json("next", "minutely", "-n", "4")["slots"]
    assert [one["slot"] is None for one in slots] == [False, False, True, False, False]
    clock.set("2026-10-24T12:00:00Z")
    schedule("export", "cron(30 2 * * ? *)", "Europe/Berlin")
    first = ops.json("next", "export", "-n", "1")["slots"][0]
    assert first["slot"] == "2026-10-25T00:30:00Z"
    assert first["note"] == ("the clock shows it twice; due the first time only, not at 01:30 UTC")


def test_next_counts_a_rate_from_the_last_slot_delivered(ops: Operator, store: Store) -> None:
    schedule("rollup", "rate(10 minutes)")
    assert "AWS does not tell" in ops("next", "rollup", "-n", "1").out
    put_run(store, "rollup", "2026-11-29T11:53:00Z")
    slots = ops.json("next", "rollup", "-n", "2")["slots"]
    assert [one["slot"] for one in slots] == ["2026-11-29T12:03:00Z", "2026-11-29T12:13:00Z"]


# --- runs and open -----------------------------------------------------------------------------


@pytest.fixture
def nightly(store: Store) -> Store:
    """3,000 runs of 1.2 KB each, two of them failed."""
    slots = minutes(datetime(2026, 11, 1, tzinfo=UTC), 3000, step=10)
    common = {
        "checkpoint": '"' + "x" * 1000 + '"',
        "claimed_at": 1_795_953_605_000,
        "finished_at": 1_795_953_665_000,
    }
    failed = {"state": "failed", "reason": "error"}
    put_runs(
        store,
        [
            ("nightly", slot, common | (failed if index in {700, 2500} else {}))
            for index, slot in enumerate(slots)
        ],
    )
    return store


def test_C51_both_failed_runs_are_found_among_3000_and_the_newest_come_first(
    ops: Operator, nightly: Store, calls: list[str]
) -> None:
    calls.clear()
    failed = ops.json("runs", "nightly", "--state", "failed")
    assert [one["slot"] for one in failed["runs"]] == [
        "2026-11-18T08:40:00Z", "2026-11-05T20:40:00Z",
    ]  # fmt: skip
    assert failed["has_more"] is False
    assert 3 <= Counter(calls)["Query"] <= 5  # 3.6 MB in pages of 1 MB
    calls.clear()
    newest = ops.json("runs", "nightly", "--limit", "50")
    assert [one["slot"] for one in newest["runs"]] == sorted(
        (one["slot"] for one in newest["runs"]), reverse=True
    )
    assert (len(newest["runs"]), newest["has_more"], len(calls)) == (50, True, 1)
    assert "There are more: these are the newest 20." in ops("runs", "nightly").out


def test_C51_a_damaged_run_is_a_row_also_where_a_state_is_asked_for(
    ops: Operator, store: Store
) -> None:
    put_run(store, "export", "2026-11-29T10:00:00Z")
    put_run(store, "export", "2026-11-29T11:00:00Z", attempts="[[1,2")
    put_run(store, "export", "2026-11-29T12:00:00Z", state="banana")
    put_run(store, "export", "2026-11-29T13:00:00Z", attempts='[["a",1,2,"lost",3]]')
    put_run(store, "export", "soon")
    states = [one["state"] for one in ops.json("runs", "export")["runs"]]
    assert states == ["damaged", "damaged", "damaged", "damaged", "succeeded"]
    failed = ops.json("runs", "export", "--state", "failed")["runs"]
    assert [one["slot"] for one in failed] == ["2026-11-29T12:00:00Z"]
    assert "its state is none" in ops("runs", "export").out
    assert ops("timeline", "export", "--since", "2d").code == 0
    assert ops("explain", "export", "2026-11-29T12:00:00Z").code == 0


def test_runs_since_takes_a_time_or_a_span(ops: Operator, store: Store) -> None:
    for hour in range(12):
        put_run(store, "export", f"2026-11-29T{hour:02}:00:00Z")
    last_two = [one["slot"][11:13] for one in ops.json("runs", "export", "--since", "150m")["runs"]]
    assert last_two == ["11", "10"]
    since = ops.json("runs", "export", "--since", "2026-11-29T10:00:00+01:00")["runs"]
    assert [one["slot"][11:13] for one in since] == ["11", "10", "09"]
    assert (
        "export has no run that is failed since"
        in ops("runs", "export", "--state", "failed", "--since", "1d").out
    )


def test_C53_a_killed_attempt_is_shown_as_running_with_its_lease_expired(
    ops: Operator, clock: SettableClock, context: Contexts
) -> None:
    killed(clock, context)
    assert ops.json("open")["runs"][0]["condition"] == "running"
    clock.advance(minutes=5)
    (row,) = ops.json("open")["runs"]
    assert (row["condition"], row["is_held"]) == ("running, lease expired", False)
    assert "running, lease expired" in ops("runs", "export").out
    assert "2 of 5" in ops("open").out


def test_open_lists_1000_runs_of_all_jobs_oldest_first_in_few_calls(
    ops: Operator, store: Store, calls: list[str]
) -> None:
    start = datetime(2026, 11, 29, tzinfo=UTC)
    put_runs(
        store,
        [
            (name, slot, {"state": "interrupted", "open": str(index % 4), "due": 1})
            for index, slot in enumerate(minutes(start, 500))
            for name in ("a", "b")
        ],
    )
    calls.clear()
    rows = ops.json("open")["runs"]
    assert len(rows) == 1000
    assert [row["slot"] for row in rows] == sorted(row["slot"] for row in rows)
    assert Counter(Query=4, BatchGetItem=10) == Counter(calls)


def test_control_characters_and_markup_of_the_table_do_not_reach_the_terminal(
    ops: Operator, store: Store
) -> None:
    error = "boom\x1b[31m\x1b]0;title\x07 [bold red]x[/] \u202egnp.exe\nnext line"
    put_run(store, "export", SLOT, state="failed", reason="error", error=error,
            checkpoint='"\x1b[2J"')  # fmt: skip
    for arguments in (
        ("runs", "export"), ("explain", "export", SLOT), ("timeline", "export", "--since", "1d"),
    ):  # fmt: skip
        out = ops(*arguments).out
        assert not any(char in out for char in "\x1b\x07\u202e"), arguments
    assert "boom[31m]0;title [bold red]x[/] gnp.exe next line" in ops("runs", "export").out
    assert "\x1b" not in ops("runs", "export", "--json").out
    assert ops.json("runs", "export")["runs"][0]["error"] == error


# --- explain -----------------------------------------------------------------------------------


def told(ops: Operator, slot: str, name: str = "export") -> str:
    answer = ops("explain", name, slot)
    assert answer.code == 0, answer.err
    return answer.out


def test_explain_tells_each_attempt_from_where_to_where_and_why_it_ended(
    ops: Operator, store: Store, clock: SettableClock, context: Contexts
) -> None:
    schedule("export", "cron(0 * * * ? *)", "Europe/Berlin")

    @job("export", retry_delay="60s")
    def handler(run: Run) -> None:
        if run.attempt == 1:
            clock.advance(seconds=55)
            run.save(10, done=10, total=40)
        run.save(20, done=20, total=40)
        if run.attempt == 2:
            raise ValueError("no space left")
        run.save(40, done=40, total=40)

    handler(scheduler_event("export", SLOT), context("60s"))
    story = told(ops, SLOT)
    assert "slot of 2026-11-29 12:00:00 UTC (13:00:00 in Europe/Berlin), from schedule" in story
    assert "EventBridge delivered it; first claimed at 12:00:05 UTC, 5 s after it was due." in story
    assert "Attempt 1, 12:00:05 to 12:01:00 (55 s): stopped early" in story
    assert "from the beginning to 10." in story
    assert "10 of 40 done (25 %)" in story
    assert "goes on with it, within a minute or so" in story
    with pytest.raises(ValueError, match="no space"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.random.random", lambda: 1.0)
        handler(resume_event("export", SLOT), context("15m"))
    story = told(ops, SLOT)
    assert "Attempt 2, 12:01:00 to 12:01:00 (0 s): failed; from 10 to 20." in story
    assert "The last error: ValueError: no space left" in story
    assert "It is tried again after its backoff, from 12:02:00 UTC (in 1 min) on" in story
    clock.advance(minutes=2)
    handler(resume_event("export", SLOT), context("15m"))
    story = told(ops, SLOT)
    assert "succeeded: its handler returned" in story
    assert "Attempt 3, 12:03:00 to 12:03:00 (0 s): succeeded; from 20 to 40." in story
    assert "It is kept until 2026-12-29 12:03:00 UTC" in story
    assert "no space left" not in story
    data = ops.json("explain", "export", SLOT)
    assert [one["place"] for one in data["run"]["attempts"]] == ["10", "20", "40"]


def test_explain_tells_who_holds_a_run_until_when_and_what_follows_a_kill(
    ops: Operator, clock: SettableClock, context: Contexts
) -> None:
    killed(clock, context)
    story = told(ops, SLOT)
    assert "Attempt 1 holds it in test-function (request" in story
    assert "until 12:01:06 UTC (in 51 s)" in story
    assert f"anarchon-ddb release export {SLOT}" in story
    clock.advance(seconds=53)
    assert "It can be taken over in" in told(ops, SLOT)
    clock.advance(minutes=1)
    story = told(ops, SLOT)
    assert "did not renew: its lease ended 12:01" in story
    assert "takes it over, within a minute or so" in story
    assert f"anarchon-ddb retry export {SLOT}" in story

    @job("export")
    def successor(run: Run) -> None:
        pass

    successor(resume_event("export", SLOT), context())
    assert "Attempt 1, 12:00:05 to 12:02:08 (2 min 3 s): was lost: killed" in told(ops, SLOT)


def test_explain_tells_what_a_queued_run_waits_for(
    ops: Operator, clock: SettableClock, context: Contexts
) -> None:
    following = "2026-11-29T12:01:00Z"

    @job("export", overlap="queue")
    def handler(run: Run) -> None:
        if iso(run.slot) == SLOT:
            handler(scheduler_event("export", following), context())
            story.append(told(ops, following))

    story: list[str] = []
    handler(scheduler_event("export", SLOT), context())
    assert f"It waits for {SLOT} (running); it is the next one." in story[0]
    assert "Attempt 1" in story[0]
    assert "waited for the gate; its handler did not run" in story[0]


def _gone(**changed: Any) -> None:
    schedule("export", "cron(0 * * * ? *)", "Europe/Berlin", **changed)


def made_at(moment: str, patch: pytest.MonkeyPatch) -> None:
    """Let the schedules of the group be made at a moment: moto knows only the machine's clock."""
    original = ScheduleGroup._call

    def call(self: Any, service: str, method: str, **arguments: str) -> Any:
        found = original(self, service, method, **arguments)
        at = datetime.fromisoformat(moment)
        return (
            found | {"CreationDate": at, "LastModificationDate": at} if "Target" in found else found
        )

    patch.setattr(ScheduleGroup, "_call", call)


@pytest.mark.parametrize(
    ("slot", "headline", "sentence"),
    [
        ("2026-11-29T12:00:00Z", "it was due 5 s ago and has not been claimed yet",
         "If it has not come by 2026-11-29 12:02:00 UTC"),
        ("2026-11-29T11:00:00Z", "was never delivered", "lse the resumer records it as missed"),
        ("2026-11-29T13:00:00Z", "it is due in 59 min 55 s", "EventBridge delivers it then"),
        ("2026-11-29T11:30:00Z", "it is not due at that time",
         "nearest to it at 2026-11-29 11:00:00 UTC (12:00:00 in Europe/Berlin) and"),
        ("2026-11-19T11:00:00Z", "the schedule was not there yet", "made or last changed at"),
        ("2026-09-01T11:00:00Z", "no run is kept", "a run is deleted 30 d after its end"),
    ],
)  # fmt: skip
def test_explain_tells_why_a_slot_has_no_run(
    ops: Operator, monkeypatch: pytest.MonkeyPatch, slot: str, headline: str, sentence: str
) -> None:
    _gone()
    made_at("2026-11-20T00:00:00Z", monkeypatch)
    story = told(ops, slot)
    assert headline in story.splitlines()[0]
    assert sentence in story
    assert ops.json("explain", "export", slot)["run"] is None


def test_explain_tells_of_pause_disabled_schedule_and_unknown_job(
    ops: Operator, store: Store, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _gone()
    made_at("2026-11-20T00:00:00Z", monkeypatch)
    operations.pause(store, "export", note="INC-1")
    assert "will be skipped" in told(ops, "2026-11-29T13:00:00Z")
    clock.set("2026-11-29T13:10:00Z")
    assert "the job is paused" in told(ops, "2026-11-29T13:00:00Z")
    operations.unpause(store, "export")
    assert "the job was paused" in told(ops, "2026-11-29T13:00:00Z")
    schedule("off", "cron(0 * * * ? *)", state="DISABLED")
    assert "its schedule is disabled" in told(ops, "2026-11-29T12:00:00Z", "off")
    assert "the job is not known" in told(ops, SLOT, "nobody")


def test_explain_tells_of_missed_and_skipped_slots(ops: Operator, store: Store) -> None:
    for index, (state, reason) in enumerate(
        [("missed", "undelivered"), ("skipped", "overlap"), ("skipped", "paused"),
         ("failed", "timed_out"), ("cancelled", "cancelled")]
    ):  # fmt: skip
        put_run(store, "export", f"2026-11-29T0{index}:00:00Z", state=state, reason=reason,
                attempt=0 if state == "missed" else 1, finished_at=1_795_953_605_000)  # fmt: skip
    assert "never delivered, and the job's catch-up did not run it" in told(
        ops, "2026-11-29T00:00:00Z"
    )
    assert "anarchon-ddb run export --slot 2026-11-29T00:00:00Z" in told(
        ops, "2026-11-29T00:00:00Z"
    )
    assert "its overlap is skip" in told(ops, "2026-11-29T01:00:00Z")
    assert "skipped: the job was paused" in told(ops, "2026-11-29T02:00:00Z")
    assert "used up its own timeout" in told(ops, "2026-11-29T03:00:00Z")
    assert "anarchon-ddb retry export" in told(ops, "2026-11-29T03:00:00Z")
    assert "a person cancelled it" in told(ops, "2026-11-29T04:00:00Z")


def test_explain_goes_on_without_the_registry(
    ops: Operator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_run(store, "export", SLOT)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SCHEDULER", "http://127.0.0.1:9")
    answer = ops("explain", "export", "last")
    assert answer.code == 0
    assert "Note: scheduler:list_schedules for group 'prod'" in answer.err
    monkeypatch.delenv("ANARCHON_SCHEDULE_GROUP")
    assert "the schedule was not looked up" in told(ops, SLOT)
    assert "Whether it was due is not known" in told(ops, "2026-11-29T09:00:00Z")


def test_C50_a_caught_up_slot_keeps_its_own_time_and_the_next_day_its_run(
    ops: Operator, store: Store, clock: SettableClock, context: Contexts
) -> None:
    seen: list[str] = []

    @job("export")
    def handler(run: Run) -> None:
        seen.append(iso(run.slot))

    missed, following = "2026-09-15T21:15:00Z", "2026-09-16T21:15:00Z"
    clock.set("2026-09-15T22:05:00Z")  # after midnight in Berlin
    handler({"job": "export", "slot": missed, "cause": "catch_up"}, context())
    clock.set(following)
    handler(scheduler_event("export", following), context())
    assert seen == [missed, following]
    rows = ops.json("runs", "export")["runs"]
    assert [(one["slot"], one["cause"]) for one in rows] == [
        (following, "schedule"), (missed, "catch_up"),
    ]  # fmt: skip
    put_run(store, "export", "2026-09-14T21:15:00Z", state="skipped", reason="overlap")
    assert ops("retry", "export", "2026-09-14T21:15:00Z").code == 0
