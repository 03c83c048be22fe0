"""``run.window`` and ``run.scheduled_at``: the schedule of a deployed job, read when asked for."""

from __future__ import annotations

import doctest
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

import anarchon_ddb.testing.schedules
from anarchon_ddb import InvalidEventError, InvalidScheduleError, Run, StoreError, job, registry
from anarchon_ddb.job import Job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import (
    LambdaContext,
    SettableClock,
    create_schedule,
    resume_event,
    rule_event,
    scheduler_event,
)
from tests.conftest import SLOT, read

Contexts = Callable[..., LambdaContext]
Window = tuple[datetime, datetime]
ARN = "arn:aws:scheduler:eu-west-1:123456789012:schedule/stack/export"
RULE = "arn:aws:events:eu-west-1:123456789012:rule"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def asks(seen: list[Any], question: Callable[[Run], Any] = lambda run: run.window) -> Job:
    """Make a job whose handler keeps what a question to its run gives."""

    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        seen.append(question(run))

    return handler


def put_rule(expression: str, name: str = "nightly") -> None:
    boto3.client("events").put_rule(Name=name, ScheduleExpression=expression)


def window_of(event: dict[str, Any], context: LambdaContext) -> Window:
    seen: list[Window] = []
    assert asks(seen)(event, context)["outcome"] == "succeeded"
    return seen[0]


def test_the_window_reaches_from_the_slot_before_to_the_slot(
    store: Store, context: Contexts
) -> None:
    create_schedule("export", "cron(0 0/6 * * ? *)")
    window = window_of(scheduler_event("export", SLOT), context())
    assert window == (at("2026-11-29T06:00:00Z"), at(SLOT))
    assert [moment.tzinfo for moment in window] == [UTC, UTC]


def test_the_window_over_a_day_of_25_hours_is_25_hours_long(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    create_schedule("export", "cron(0 2 * * ? *)", "America/New_York")
    clock.set("2026-11-02T07:00:05Z")
    start, end = window_of(scheduler_event("export", "2026-11-02T07:00:00Z"), context())
    assert start == at("2026-11-01T07:00:00Z")
    clock.set("2026-11-01T07:00:05Z")
    start, end = window_of(scheduler_event("export", "2026-11-01T07:00:00Z"), context())
    assert end - start == timedelta(hours=25)


def test_the_windows_of_a_day_lie_end_to_end(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    create_schedule("export", "cron(0/30 * * * ? *)", "America/New_York")
    arn = registry.read_schedule(store, ARN)
    slots = list(arn.between(at("2026-11-01T00:00:00Z"), at("2026-11-02T00:00:00Z")))
    windows: list[Window] = []
    handler = asks(windows)
    for slot in slots:
        clock.set(slot + timedelta(seconds=5))
        handler(scheduler_event("export", slot), context())
    assert slots == [end for _, end in windows]
    assert slots[:-1] == [start for start, _ in windows[1:]]


@pytest.mark.parametrize("time", ["11:30:00", "11:30:41"])
def test_the_window_of_a_rate_is_its_period_counted_from_the_slot(
    store: Store, context: Contexts, time: str
) -> None:
    create_schedule("export", "rate(2 hours)")
    slot = at(f"2026-11-29T{time}Z")
    window = window_of(scheduler_event("export", slot), context())
    assert window == (slot - timedelta(hours=2), slot)


def test_a_one_time_schedule_has_no_window_but_a_local_time(
    store: Store, context: Contexts
) -> None:
    create_schedule("export", "at(2026-11-29T13:00:00)", "Europe/Berlin")
    seen: list[datetime] = []
    asks(seen, lambda run: run.scheduled_at)(scheduler_event("export", SLOT), context())
    assert [moment.isoformat() for moment in seen] == ["2026-11-29T13:00:00+01:00"]
    with pytest.raises(InvalidScheduleError, match=r"no slot before 2026-11-29T12:00:00Z"):
        asks(seen)(scheduler_event("export:b", SLOT, schedule=ARN), context())


def test_C09_scheduled_at_is_the_slot_on_the_clock_of_the_schedules_zone(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    create_schedule("export", "cron(0 0 * * ? *)", "Asia/Tokyo")
    clock.set("2026-01-01T15:00:05Z")
    seen: list[datetime] = []
    event = scheduler_event("export", "2026-01-01T15:00:00Z")
    asks(seen, lambda run: run.scheduled_at)(event, context())
    assert [moment.isoformat() for moment in seen] == ["2026-01-02T00:00:00+09:00"]
    assert str(seen[0].tzinfo) == "Asia/Tokyo"
    assert seen[0] == at("2026-01-01T15:00:00Z")


@pytest.mark.parametrize(
    ("expression", "time", "start"),
    [
        pytest.param("cron(0 12 * * ? *)", SLOT, "2026-11-28T12:00:00Z", id="cron"),
        pytest.param("rate(5 minutes)", "2026-11-29T11:58:07Z", "2026-11-29T11:53:07Z", id="rate"),
    ],
)
def test_a_rules_window_and_local_time_are_in_UTC(
    store: Store, context: Contexts, expression: str, time: str, start: str
) -> None:
    put_rule(expression)
    seen: list[tuple[Window, datetime]] = []
    handler = asks(seen, lambda run: (run.window, run.scheduled_at))
    handler(rule_event("nightly", time), context())
    (window, scheduled_at) = seen[0]
    assert window == (at(start), at(time))
    assert scheduled_at.isoformat() == time.replace("Z", "+00:00")
    assert str(scheduled_at.tzinfo) == "UTC"


def test_the_schedule_is_read_once_in_a_sandbox(
    store: Store, context: Contexts, calls: list[str]
) -> None:
    create_schedule("export", "cron(0 * * * ? *)")
    calls.clear()
    handler = asks([], lambda run: (run.window, run.scheduled_at, run.window))
    for hour in (10, 11, 12):
        handler(scheduler_event("export", f"2026-11-29T{hour}:00:00Z"), context())
    assert Counter(calls)["GetSchedule"] == 1


def test_a_rule_is_read_once_in_a_sandbox(
    store: Store, context: Contexts, calls: list[str]
) -> None:
    put_rule("rate(5 minutes)")
    handler = asks([])
    for minute in (50, 55):
        handler(rule_event("nightly", f"2026-11-29T11:{minute}:07Z"), context())
    assert Counter(calls)["DescribeRule"] == 1


def test_a_slot_that_the_known_schedule_does_not_have_makes_it_read_again(
    store: Store, context: Contexts
) -> None:
    create_schedule("export", "cron(0 0/6 * * ? *)")
    seen: list[Window] = []
    handler = asks(seen)
    handler(scheduler_event("export", "2026-11-29T06:00:00Z"), context())
    boto3.client("scheduler").update_schedule(
        Name="export",
        GroupName="stack",
        ScheduleExpression="cron(0 * * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:lambda:eu-west-1:1:function:f", "RoleArn": "arn:aws:iam::1:role/r"},
    )
    handler(scheduler_event("export", "2026-11-29T11:00:00Z"), context())
    assert seen[1] == (at("2026-11-29T10:00:00Z"), at("2026-11-29T11:00:00Z"))


def test_another_store_reads_for_itself(store: Store, calls: list[str]) -> None:
    create_schedule("export", "cron(0 * * * ? *)")
    calls.clear()
    for asked in (store, store, Store("another")):
        registry.schedule_of(asked, ARN, at(SLOT))
    assert calls == ["GetSchedule"] * 2


def test_a_run_that_does_not_ask_reads_no_schedule(
    store: Store, context: Contexts, calls: list[str]
) -> None:
    asks([], lambda run: run.slot)(scheduler_event("export", SLOT), context())
    asks([], lambda run: run.slot)(rule_event("nightly", "2026-11-29T11:58:07Z"), context())
    assert set() == set(calls) & {"GetSchedule", "DescribeRule"}


def test_a_resume_whose_event_names_no_schedule_knows_it_all_the_same(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    create_schedule("export", "cron(0 0/6 * * ? *)")
    seen: list[tuple[int, Window]] = []

    @job("export")
    def handler(run: Run) -> None:
        seen.append((run.attempt, run.window))
        clock.advance(seconds=55)
        run.save(run.attempt)

    assert handler(scheduler_event("export", SLOT), context())["outcome"] == "interrupted"
    handler(resume_event("export", SLOT), context())
    window = (at("2026-11-29T06:00:00Z"), at(SLOT))
    assert seen == [(1, window), (2, window)]


def test_the_schedule_of_the_first_delivery_stays_with_the_run(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        clock.advance(seconds=55)
        run.save(run.attempt)

    handler(scheduler_event("export", SLOT), context())
    handler(scheduler_event("export", SLOT, schedule=ARN + "-again"), context())
    assert (read(store).schedule, read(store).attempt) == (ARN, 2)


def test_a_run_by_hand_names_what_is_missing(store: Store, context: Contexts) -> None:
    event = {"job": "export", "slot": SLOT, "cause": "person"}
    with pytest.raises(InvalidScheduleError, match="named none") as refusal:
        asks([])(event, context())
    assert "<aws.scheduler.schedule-arn>" in str(refusal.value)
    assert "job 'export', slot 2026-11-29T12:00:00Z" in str(refusal.value)
    assert "no schedule is known" in (read(store).error or "")


def test_a_schedule_that_is_gone_is_named(store: Store, context: Contexts) -> None:
    with pytest.raises(StoreError, match="deleted or renamed") as refusal:
        asks([])(scheduler_event("export", SLOT), context())
    assert f"scheduler:GetSchedule of {ARN}" in str(refusal.value)
    assert not refusal.value.retryable


@pytest.mark.parametrize(
    ("event", "grant"),
    [
        pytest.param(
            scheduler_event("export", SLOT), f"scheduler:GetSchedule on {ARN}", id="schedule"
        ),
        pytest.param(
            rule_event("nightly", SLOT), f"events:DescribeRule on {RULE}/nightly", id="rule"
        ),
    ],
)
def test_a_permission_that_is_missing_is_named(
    store: Store,
    context: Contexts,
    monkeypatch: pytest.MonkeyPatch,
    event: dict[str, Any],
    grant: str,
) -> None:
    import botocore.client  # noqa: PLC0415

    original = botocore.client.BaseClient._make_api_call

    def denied(self: Any, operation: str, arguments: Any) -> Any:
        if operation in {"GetSchedule", "DescribeRule"}:  # moto checks no policy of a role
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "x")
        return original(self, operation, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", denied)
    with pytest.raises(StoreError) as refusal:
        asks([])(event, context())
    assert f"Grant {grant} to the function's role" in str(refusal.value)


def test_a_rule_that_fires_on_a_pattern_has_no_slots(store: Store, context: Contexts) -> None:
    boto3.client("events").put_rule(Name="nightly", EventPattern='{"source":["mine"]}')
    with pytest.raises(InvalidScheduleError, match="has no ScheduleExpression"):
        asks([])(rule_event("nightly", SLOT), context())


def test_an_expression_that_this_package_refuses_is_told_with_its_schedule(store: Store) -> None:
    create_schedule("export", "rate(1 hour)")
    boto3.client("scheduler").update_schedule(
        Name="export",
        GroupName="stack",
        ScheduleExpression="cron(0 0 30 2 ? *)",  # moto takes any
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:lambda:eu-west-1:1:function:f", "RoleArn": "arn:aws:iam::1:role/r"},
    )
    with pytest.raises(InvalidScheduleError, match=r"schedule/stack/export: .*never fires"):
        registry.read_schedule(store, ARN)


def test_the_bounds_of_a_schedule_are_read_with_it(store: Store) -> None:
    create_schedule("export", "rate(1 hour)")
    start, end = datetime(2090, 1, 1, 0, 30, tzinfo=UTC), datetime(2090, 2, 1, tzinfo=UTC)
    boto3.client("scheduler").update_schedule(
        Name="export",
        GroupName="stack",
        ScheduleExpression="cron(0 0 * * ? *)",
        StartDate=start,
        EndDate=end,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:lambda:eu-west-1:1:function:f", "RoleArn": "arn:aws:iam::1:role/r"},
    )
    found = registry.read_schedule(store, ARN)
    assert (found.start, found.end) == (start, end)
    # The first slot's window is not cut at the StartDate: its length is that of any other.
    assert found.window(datetime(2090, 1, 2, tzinfo=UTC))[0] == datetime(2090, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arn", "arguments"),
    [
        (f"{RULE}/nightly", {"Name": "nightly"}),
        (f"{RULE}/bus/nightly", {"EventBusName": "bus", "Name": "nightly"}),
        (f"{RULE}/aws.partner/a/b/nightly", {"EventBusName": "aws.partner/a/b", "Name": "nightly"}),
        (ARN, {"GroupName": "stack", "Name": "export"}),
    ],
)
def test_an_arn_tells_which_call_reads_it(arn: str, arguments: dict[str, str]) -> None:
    source = registry.source_of(arn)
    assert (dict(source.arguments), source.region) == (arguments, "eu-west-1")


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:lambda:eu-west-1:123456789012:function:f",
        "arn:aws:scheduler:eu-west-1:123456789012:schedule/export",
        "arn:aws:scheduler:eu-west-1:123456789012:schedule-group/stack",
        "arn:aws:scheduler::123456789012:schedule/stack/export",
        "arn:aws:events:eu-west-1:123456789012:rule/",
        "arn:aws",
        "",
    ],
)
def test_the_arn_of_something_else_is_refused(arn: str) -> None:
    with pytest.raises(InvalidScheduleError, match="is not the ARN of a schedule"):
        registry.source_of(arn)


def test_the_schedule_is_read_in_the_region_that_its_arn_names(store: Store) -> None:
    boto3.client("events", "us-east-1").put_rule(Name="far", ScheduleExpression="rate(1 hour)")
    arn = "arn:aws:events:us-east-1:123456789012:rule/far"
    found = registry.read_schedule(store, arn)
    assert (found.expression, found.kind) == ("rate(1 hour)", "rule")


def test_C05_two_events_of_the_repeated_half_hour_are_one_run(
    store: Store, clock: SettableClock, context: Contexts
) -> None:
    from anarchon_ddb.events import parse_event  # noqa: PLC0415

    create_schedule("export", "cron(30 1 * * ? *)", "America/New_York")
    nightly = registry.read_schedule(store, ARN)
    clock.set("2026-11-01T06:30:05Z")
    outcomes = []
    for time in ("05:30:00", "06:30:00"):
        event = scheduler_event("export", f"2026-11-01T{time}Z")
        delivery = parse_event(event, "export", now=clock.now, schedule=nightly)
        assert delivery is not None
        delivered = scheduler_event("export", delivery.slot)
        outcomes.append(asks([])(delivered, context())["outcome"])
    assert outcomes == ["succeeded", "duplicate"]


@pytest.mark.parametrize("event", [{"job": "export", "full": True}, {}])
def test_C11_a_constant_input_is_refused_at_each_delivery_and_nothing_is_written(
    store: Store, clock: SettableClock, context: Contexts, calls: list[str], event: dict[str, Any]
) -> None:
    create_schedule("export", "cron(0 12 * * ? *)")
    calls.clear()
    for _delivery in range(2):
        with pytest.raises(InvalidEventError, match="no scheduled time in event"):
            asks([])(event, context())
        clock.advance(seconds=62)
    assert calls == []


def test_a_run_with_the_longest_names_stays_under_1_KB(store: Store, context: Contexts) -> None:
    name = "j" * 64
    arn = f"arn:aws-us-gov:scheduler:us-gov-west-1:123456789012:schedule/{'g' * 64}/{'n' * 64}"

    @job(name, max_attempts=9)
    def fails(run: Run) -> None:
        run.save(run.attempt)
        raise ValueError("x" * 300)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.random.random", lambda: 0.0)
        for _attempt in range(6):
            with pytest.raises(ValueError, match="x"):
                fails(scheduler_event(name, SLOT, schedule=arn), context(function_name="f" * 64))
    key = {"pk": {"S": f"job#{name}"}, "sk": {"S": f"run#{SLOT}"}}
    item = store.client.get_item(TableName=store.table, Key=key)["Item"]
    size = sum(len(k) + len(next(iter(v.values()))) for k, v in item.items() if k != "error")
    assert arn == item["schedule"]["S"]
    assert size < 1024


def test_a_schedule_that_a_test_changes_is_read_anew(store: Store) -> None:
    windows = []
    for expression in ("rate(1 hour)", "rate(2 hours)"):
        create_schedule("export", expression)
        start, end = registry.schedule_of(store, ARN, at(SLOT)).window(at(SLOT))
        windows.append(end - start)
    assert windows == [timedelta(hours=1), timedelta(hours=2)]


def test_the_kits_schedule_is_refused_where_AWS_would_refuse_it(store: Store) -> None:
    with pytest.raises(InvalidScheduleError, match="6 fields"):
        create_schedule("export", "cron(* * * * *)")


@pytest.mark.parametrize("module", [anarchon_ddb.testing.schedules, registry])
def test_the_examples_in_the_docstrings_are_true(
    module: Any, aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)
