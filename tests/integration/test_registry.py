"""The resumer and the registry: what is listed, read, done, and what is only reported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from anarchon_ddb import Run, dispatch, job, resumer
from anarchon_ddb.clock import iso
from anarchon_ddb.dispatch import Fault
from anarchon_ddb.group import ScheduleGroup
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import (
    LambdaContext,
    SettableClock,
    resume_event,
    rule_event,
    scheduler_event,
)
from tests.conftest import SLOT, read
from tests.twin import Twin

Contexts = Callable[..., LambdaContext]
GROUP = "stack"
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:stack-"


@pytest.fixture
def group(
    store: Store, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Make a schedule in the stack's group, created yesterday."""
    monkeypatch.setenv("ANARCHON_SCHEDULE_GROUP", GROUP)
    monkeypatch.setattr(resumer, "_memories", {})
    created = [clock.now_ms() / 1000 - 86_400]
    monkeypatch.setattr("moto.scheduler.models.unix_time", lambda: created[0])
    client = boto3.client("scheduler")
    client.create_schedule_group(Name=GROUP)

    def make(name: str, expression: str = "cron(0 * * * ? *)", **options: Any) -> None:
        event = {"job": options.pop("job", name), "slot": "<aws.scheduler.scheduled-time>"}
        event |= {"params": options.pop("params")} if "params" in options else {}
        target = {
            "Arn": FUNCTION + event["job"].partition(":")[0],
            "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
            "Input": options.pop("Input", json.dumps(event)),
            "RetryPolicy": {"MaximumEventAgeInSeconds": 3_600},
        }
        client.create_schedule(
            Name=name,
            GroupName=GROUP,
            ScheduleExpression=expression,
            FlexibleTimeWindow=options.pop("FlexibleTimeWindow", {"Mode": "OFF"}),
            Target=target,
            **options,
        )

    return make


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []

    def invoke(_store: Store, function: str, event: dict[str, Any]) -> None:
        made.append(dict(event) | {"function": function})

    monkeypatch.setattr("anarchon_ddb.dispatch.invoke", invoke)
    return made


def slots(sent: list[dict[str, Any]]) -> list[str]:
    return [event["slot"] for event in sent]


def test_a_lost_delivery_is_run_two_minutes_later_with_its_own_slot_and_params(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export", job="export:tenant-a", params={"tenant": "a"})
    clock.set("2026-11-29T12:01:59Z")
    resumer.handler({}, context("50s"))
    assert "2026-11-29T12:00:00Z" not in slots(sent)
    sent.clear()
    clock.set("2026-11-29T12:02:00Z")
    resumer.handler({}, context("50s"))
    assert [
        {
            "job": "export:tenant-a",
            "slot": "2026-11-29T12:00:00Z",
            "schedule": f"arn:aws:scheduler:eu-west-1:123456789012:schedule/{GROUP}/export",
            "cause": "catch_up",
            "params": {"tenant": "a"},
            "function": FUNCTION + "export",
        }
    ] == sent


def test_the_flexible_window_is_waited_for(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export", FlexibleTimeWindow={"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15})
    clock.set("2026-11-29T12:16:59Z")
    resumer.handler({}, context("50s"))
    assert "2026-11-29T12:00:00Z" not in slots(sent)
    clock.set("2026-11-29T12:17:00Z")
    resumer.handler({}, context("50s"))
    assert "2026-11-29T12:00:00Z" in slots(sent)


def test_latest_runs_only_the_newest_and_the_older_are_missed_once_nobody_can_deliver_them(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export")
    clock.set("2026-11-29T12:05:00Z")
    resumer.handler({}, context("50s"))
    assert slots(sent) == ["2026-11-29T12:00:00Z"]
    assert store.read_run(RunKey("export", "2026-11-29T11:00:00Z")) is None  # may still come
    missed = read(store, "2026-11-29T04:00:00Z")
    assert (missed.state, missed.reason) == ("missed", "undelivered")


def test_a_late_first_delivery_still_claims_a_missed_slot(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export")
    clock.set("2026-11-29T12:05:00Z")
    resumer.handler({}, context("50s"))

    @job("export")
    def handler(run: Run) -> None:
        run.save(1)

    answer = handler(scheduler_event("export", "2026-11-29T04:00:00Z"), context())
    assert (answer["outcome"], answer["attempt"]) == ("succeeded", 1)
    assert read(store, "2026-11-29T04:00:00Z").state == "succeeded"


def test_C50_a_catch_up_works_on_its_own_day_and_leaves_the_next_slot_alone(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export", "cron(15 23 * * ? *)", ScheduleExpressionTimezone="Europe/Berlin")
    clock.set("2026-11-28T23:05:00Z")  # 00:05 of the 29th in Berlin
    resumer.handler({}, context("50s"))
    assert slots(sent) == ["2026-11-28T22:15:00Z"]
    days: list[str] = []

    @job("export")
    def handler(run: Run) -> None:
        days.append(f"{run.scheduled_at:%Y-%m-%d %H:%M}")

    event = {name: value for name, value in sent[0].items() if name != "function"}
    assert handler(event, context())["outcome"] == "succeeded"
    late = scheduler_event("export", "2026-11-28T22:15:00Z")
    assert handler(late, context())["outcome"] == "duplicate"
    clock.set("2026-11-29T22:15:05Z")
    live = scheduler_event("export", "2026-11-29T22:15:00Z", schedule=event["schedule"])
    assert handler(live, context())["outcome"] == "succeeded"
    assert days == ["2026-11-28 23:15", "2026-11-29 23:15"]


def test_a_slot_is_not_looked_at_twice(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]],
    calls: list[str],
) -> None:  # fmt: skip
    group("export")

    @job("export")
    def handler(run: Run) -> None:
        pass

    clock.set("2026-11-29T12:00:05Z")
    for hour in range(24):
        slot = datetime.fromisoformat(SLOT) - timedelta(hours=hour)
        handler(scheduler_event("export", slot), context())
    clock.set("2026-11-29T12:03:00Z")
    resumer.handler({}, context("50s"))
    assert store.read_head("export").checked_until == 1_795_953_600_000
    calls.clear()
    resumer.handler({}, context("50s"))
    assert Counter(ListSchedules=1, Query=5) == Counter(calls)  # four shards, the rules
    assert sent == []


def test_a_schedule_is_read_again_only_when_it_changed(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: Any, calls: list[str]
) -> None:
    group("export")
    group("other")
    resumer.handler({}, context("50s"))
    assert calls.count("GetSchedule") == 2
    assert calls.count("GetFunctionEventInvokeConfig") == 2  # once for each function
    calls.clear()
    resumer.handler({}, context("50s"))
    assert calls.count("GetSchedule") == 0


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"expression": "cron(0 0 30 2 ? *)"}, "never fires"),
        ({"Input": "{not json"}, "schedule 'broken' of group 'stack'"),
    ],
)
def test_one_damaged_schedule_is_reported_and_the_rest_done(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str], how: dict[str, Any], text: str,
) -> None:  # fmt: skip
    group("broken", **how)
    group("export")
    clock.set("2026-11-29T12:05:00Z")
    counts = resumer.handler({}, context("50s"))
    assert counts["faults"] == 1
    assert text in capsys.readouterr().out
    assert slots(sent) == ["2026-11-29T12:00:00Z"]


def test_a_schedule_without_a_job_is_not_the_registrys(
    store: Store, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("resumer", "rate(1 minute)", Input="{}")
    assert resumer.handler({}, context("50s"))["faults"] == 0
    assert sent == []


def test_a_disabled_schedule_makes_nothing_due(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export", State="DISABLED")
    clock.set("2026-11-29T12:05:00Z")
    resumer.handler({}, context("50s"))
    assert sent == []


def test_a_rate_is_covered_by_any_run_within_half_a_period(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export", "rate(1 hour)")

    @job("export")
    def handler(run: Run) -> None:
        pass

    clock.set("2026-11-29T12:20:05Z")
    for hour in range(25):
        slot = datetime.fromisoformat("2026-11-29T12:20:00Z") - timedelta(hours=hour)
        if hour != 1:  # 11:20 was lost
            handler(scheduler_event("export", slot), context())
    clock.set("2026-11-29T12:45:00Z")
    resumer.handler({}, context("50s"))
    assert len(sent) == 0  # latest: the newest, 12:00:05, has its run; the lost one is not newest
    clock.advance(hours=8)
    resumer.handler({}, context("50s"))
    assert read(store, "2026-11-29T11:00:05Z").state == "missed"


def test_slots_during_a_pause_are_skipped_whether_delivered_or_not(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    from anarchon_ddb import operations  # noqa: PLC0415

    group("export")
    clock.set("2026-11-29T09:30:00Z")
    operations.pause(store, "export")
    clock.set("2026-11-29T11:30:00Z")
    resumer.handler({}, context("50s"))
    assert _state(store, "2026-11-29T10:00:00Z") == ("skipped", "paused")
    operations.unpause(store, "export")
    clock.set("2026-11-29T12:05:00Z")
    resumer.handler({}, context("50s"))
    assert _state(store, "2026-11-29T11:00:00Z") == ("skipped", "paused")
    assert slots(sent) == ["2026-11-29T12:00:00Z"]


def _state(store: Store, slot: str) -> tuple[str, str | None]:
    record = read(store, slot)
    return record.state, record.reason


def open_run(clock: SettableClock, context: Contexts, slot: str = SLOT, **options: Any) -> None:
    @job("export", **options)
    def handler(run: Run) -> None:
        clock.advance(seconds=55)
        run.save(1)

    handler(scheduler_event("export", slot), context(function_name="old-function"))


def test_an_open_run_goes_to_the_function_that_its_schedule_names_now(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export")
    open_run(clock, context)
    resumer.handler({}, context("50s"))
    resumed = [event for event in sent if event["cause"] == "resume"]
    assert [event["function"] for event in resumed] == [FUNCTION + "export"]


def test_a_renamed_job_s_open_run_ends_as_orphaned_once_its_function_is_gone(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    group("renamed")
    open_run(clock, context)
    resumer.handler({}, context("50s"))
    assert read(store).state == "interrupted"  # the function still exists
    gone = Fault("ResourceNotFoundException", "Function not found")
    monkeypatch.setattr(dispatch, "invoke", lambda *_arguments: gone)
    clock.advance(minutes=1)
    assert resumer.handler({}, context("50s"))["ended"] == 1
    assert (read(store).state, read(store).reason) == ("failed", "orphaned")
    assert store.read_head("export").active_slot is None


def test_nothing_is_orphaned_while_the_registry_can_not_be_read_whole(
    store: Store, clock: SettableClock, context: Contexts, group: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    open_run(clock, context)
    gone = Fault("ResourceNotFoundException", "Function not found")
    monkeypatch.setattr(dispatch, "invoke", lambda *_arguments: gone)

    def denied(*_arguments: Any, **_options: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "ListSchedules")

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", _only("ListSchedules", denied))
    counts = resumer.handler({}, context("50s"))
    assert (counts["faults"], counts["ended"]) == (2, 0)
    assert read(store).state == "interrupted"


def _only(operation: str, replacement: Any) -> Any:
    import botocore.client  # noqa: PLC0415

    original = botocore.client.BaseClient._make_api_call

    def call(self: Any, name: str, arguments: Any) -> Any:
        return replacement() if name == operation else original(self, name, arguments)

    return call


@pytest.mark.parametrize(
    "operation", ["ListSchedules", "GetSchedule", "GetFunctionEventInvokeConfig"]
)
def test_a_fault_of_each_call_of_the_registry_leaves_open_runs_going(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch, operation: str,
) -> None:  # fmt: skip
    group("export")
    open_run(clock, context)

    def throttled() -> Any:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, operation)

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", _only(operation, throttled))
    resumer.handler({}, context("50s"))
    assert SLOT in slots(sent)


def test_a_schedule_that_could_not_be_read_is_read_in_the_next_pass(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("export")
    clock.set("2026-11-29T12:05:00Z")

    def throttled() -> Any:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "GetSchedule")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.client.BaseClient._make_api_call", _only("GetSchedule", throttled))
        assert resumer.handler({}, context("50s"))["faults"] == 1
    assert resumer.handler({}, context("50s"))["faults"] == 0
    assert slots(sent) == ["2026-11-29T12:00:00Z"]


def test_a_run_past_its_timeout_is_ended_by_the_resumer(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("other")
    open_run(clock, context, timeout="10m")
    clock.advance(minutes=11)
    assert resumer.handler({}, context("50s"))["ended"] == 1
    record = read(store)
    assert (record.state, record.reason, record.checkpoint) == ("failed", "timed_out", "1")


def test_two_passes_at_once_send_a_run_once(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]],
    faults: Any,
) -> None:  # fmt: skip
    open_run(clock, context)
    faults.before("dispatch", lambda: resumer.handler({}, context("50s")))
    resumer.handler({}, context("50s"))
    assert slots(sent) == [SLOT]


def test_a_pass_that_runs_out_of_time_starves_nobody(
    store: Store, clock: SettableClock, context: Contexts, group: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    jobs = [f"job{number}" for number in range(9)]
    for name in jobs:
        group(name)
    clock.set("2026-11-29T12:05:00Z")
    ticks = LambdaContext("50s", clock=clock)
    reached: list[str] = []

    def slow(_store: Store, _function: str, event: dict[str, Any]) -> None:
        reached.append(event["job"])
        ticks.remaining_ms -= 15_000

    monkeypatch.setattr(dispatch, "invoke", slow)
    for _ in range(6):
        ticks.remaining_ms = 50_000
        resumer.handler({}, ticks)
    assert set(jobs) == set(reached)


def test_the_calls_of_a_pass_do_not_grow_with_what_is_not_due(
    aws: None, clock: SettableClock, context: Contexts, sent: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """10,000 open runs, 100 of them due: four calls for each of the 100, and the four shards."""
    store, twin = Store("twin", clock=clock), Twin()
    made: Counter[str] = Counter()

    def counted(operation: str, request: dict[str, Any]) -> dict[str, Any]:
        made[operation] += 1
        return twin.dispatch(operation, request)

    monkeypatch.setattr(store._connection, "dispatch", counted)
    monkeypatch.setattr(resumer, "store_of", lambda _clock: store)
    monkeypatch.setattr(resumer, "_memories", {})
    now = clock.now_ms()
    for number in range(10_000):
        slot = iso(datetime.fromisoformat(SLOT) - timedelta(seconds=number))
        due = number % 100 == 0
        twin.items["job#export", f"run#{slot}"] = {
            "pk": "job#export",
            "sk": f"run#{slot}",
            "state": "interrupted" if due else "retrying",
            "attempt": 1,
            "lease_until": 0 if due else now + 60_000,
            "open": str(number % 4),
            "due": now - 1 if due else now + 60_000,
            "claimed_at": now,
        }
    counts = resumer.handler({}, context("50s"))
    assert (counts["open"], counts["sent"]) == (100, 100)
    assert Counter(GetItem=200, UpdateItem=100, Query=4) == made


def test_a_hundred_and_twenty_jobs_with_nothing_to_do_cost_three_pages_of_a_list(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: Any, calls: list[str]
) -> None:
    for number in range(120):
        group(f"job{number}", "cron(0 3 1 1 ? *)", State="DISABLED" if number % 2 else "ENABLED")
    resumer.handler({}, context("15m"))
    clock.set("2026-11-29T12:30:00Z")
    resumer.handler({}, context("15m"))
    made = Counter(calls)
    calls.clear()
    resumer.handler({}, context("15m"))
    assert Counter(ListSchedules=3, Query=5) == Counter(calls)  # moto pages by 50, AWS by 100
    assert made["GetSchedule"] == 120


def test_a_job_that_a_rule_fires_is_caught_up_from_its_first_delivery_on(
    store: Store, clock: SettableClock, context: Contexts, group: Any, sent: list[dict[str, Any]]
) -> None:
    group("other", State="DISABLED")
    boto3.client("events").put_rule(Name="nightly", ScheduleExpression="cron(0 * * * ? *)")

    @job("export", overlap="queue", catch_up="all")
    def handler(run: Run) -> None:
        pass

    clock.set("2026-11-29T09:00:05Z")
    first = handler(rule_event("nightly", "2026-11-29T09:00:00Z"), context())
    assert first["outcome"] == "succeeded"
    clock.set("2026-11-29T11:30:00Z")
    resumer.handler({}, context("50s"))
    assert slots(sent) == ["2026-11-29T10:00:00Z", "2026-11-29T11:00:00Z"]
    assert {"arn:aws:events:eu-west-1:123456789012:rule/nightly"} == {
        event["schedule"] for event in sent
    }
    sent.clear()
    boto3.client("events").delete_rule(Name="nightly")
    counts = resumer.handler({}, context("50s"))
    assert (counts["faults"], sent) == (1, [])


def test_the_group_is_known_by_the_job_of_its_input(
    store: Store, context: Contexts, group: Any
) -> None:
    group("a", job="export:tenant-a", params={"tenant": "a"})
    group("b", job="export:tenant-b", params={"tenant": "b"})
    listing = ScheduleGroup(store, GROUP).refresh(lambda: True)
    assert listing.is_complete
    assert sorted((entry.job, dict(entry.params)) for entry in listing.registered) == [
        ("export:tenant-a", {"tenant": "a"}),
        ("export:tenant-b", {"tenant": "b"}),
    ]


def test_instances_have_gates_and_runs_of_their_own(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    nested: list[str] = []

    @job("export")
    def handler(run: Run) -> None:
        if run.job == "export:tenant-a":
            other = scheduler_event("export:tenant-b", SLOT, params={"tenant": "b"})
            nested.append(handler(other, context())["outcome"])

    event = scheduler_event("export:tenant-a", SLOT, params={"tenant": "a"})
    assert handler(event, context())["outcome"] == "succeeded"
    assert nested == ["succeeded"]
    assert handler(resume_event("export:tenant-b", SLOT), context())["outcome"] == "duplicate"
