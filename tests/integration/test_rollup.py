"""The rollup job on real weather, through the change of 10 March 2013: each observation once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from anarchon_ddb import resumer
from anarchon_ddb.clock import iso
from anarchon_ddb.records import OPEN_STATES
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock
from handlers import rollup
from tests import weather

GROUP = "stack"
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:stack-rollup"
FIRST = datetime(2013, 3, 9, 22, tzinfo=UTC)
HOURS = 22


@pytest.fixture
def stack(store: Store, clock: SettableClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables and the schedule of the job, made the day before."""
    clock.set("2013-03-09T20:30:00Z")
    for name, value in {
        "WEATHER_TABLE": "weather",
        "ROLLUP_TABLE": "rollup",
        "AIRPORTS": ",".join(weather.AIRPORTS),
        "ANARCHON_SCHEDULE_GROUP": GROUP,
        "ANARCHON_RETRY_DELAY": "0s",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(resumer, "_memories", {})
    monkeypatch.setattr("moto.scheduler.models.unix_time", lambda: clock.now_ms() / 1000)
    rollup.table.cache_clear()
    make_table("weather", "origin", "time_hour")
    make_table("rollup", "airport", "slot")
    last = iso(FIRST + timedelta(hours=HOURS))
    with rollup.table("weather").batch_writer() as batch:
        for row in weather.rows():
            if iso(FIRST - timedelta(hours=2)) <= row["time_hour"] <= last:
                batch.put_item(Item=row)
    make_schedule("rollup", "cron(0 * * * ? *)", "America/New_York")


def make_table(name: str, hash_key: str, range_key: str) -> None:
    boto3.client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": hash_key, "KeyType": "HASH"},
            {"AttributeName": range_key, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": hash_key, "AttributeType": "S"},
            {"AttributeName": range_key, "AttributeType": "S"},
        ],
    )


def make_schedule(job: str, expression: str, zone: str, **options: Any) -> None:
    client = boto3.client("scheduler")
    if not any(group["Name"] == GROUP for group in client.list_schedule_groups()["ScheduleGroups"]):
        client.create_schedule_group(Name=GROUP)
    event = {"job": job, "slot": "<aws.scheduler.scheduled-time>",
             "schedule": "<aws.scheduler.schedule-arn>"}  # fmt: skip
    client.create_schedule(
        Name=job,
        GroupName=GROUP,
        ScheduleExpression=expression,
        ScheduleExpressionTimezone=zone,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={
            "Arn": FUNCTION,
            "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
            "Input": json.dumps(event),
            "RetryPolicy": {"MaximumEventAgeInSeconds": 3_600},
        },
        **options,
    )


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_lost_doubled_late_or_killed_each_observation_counts_once(
    store: Store,
    clock: SettableClock,
    context: Callable[..., LambdaContext],
    stack: None,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    chance = random.Random(seed)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "anarchon_ddb.dispatch.invoke", lambda _store, _function, event: sent.append(dict(event))
    )
    slots = [FIRST + timedelta(hours=number) for number in range(HOURS)]
    arn = f"arn:aws:scheduler:eu-west-1:123456789012:schedule/{GROUP}/rollup"
    late: list[tuple[datetime, dict[str, Any]]] = []
    for slot in slots:
        event = {"job": "rollup", "slot": iso(slot), "schedule": arn}
        fate = chance.choice(["on time", "on time", "lost", "late", "doubled"])
        if fate == "late":
            late.append((slot + timedelta(minutes=chance.randrange(10, 200)), event))
        elif fate != "lost":
            late += [(slot + timedelta(seconds=30), event)] * (2 if fate == "doubled" else 1)

    def deliver(event: dict[str, Any]) -> None:
        if chance.random() < 0.2:  # killed in the middle, or before the claim
            with monkeypatch.context() as patch:
                patch.setattr("anarchon_ddb.ending.end", _die)
                patch.setattr("handlers.rollup.summary", _killed)
                with pytest.raises(_Killed):
                    rollup.handler(event, context("60s"))
                    raise _Killed
        else:
            rollup.handler(event, context("60s"))

    clock.set(iso(FIRST - timedelta(minutes=1)))
    end = slots[-1] + timedelta(hours=9)
    while clock.now < end:
        now = clock.now
        for when, event in sorted(late, key=lambda pair: pair[0]):
            if when <= now:
                late.remove((when, event))
                deliver(event)
        resumer.handler({}, context("50s"))
        pending, sent[:] = list(sent), []
        for event in pending:
            deliver(event)
        clock.advance(minutes=9)
    states = {iso(slot): state(store, slot) for slot in slots}
    assert {"succeeded"} == set(states.values()), states
    due = {iso(slot) for slot in slots}  # the schedule goes on behind them
    found = [row for row in rollup.table("rollup").scan()["Items"] if row["slot"] in due]
    counts = {(row["airport"], row["slot"]): int(row["observations"]) for row in found}
    plain = weather.expected(slots)
    assert {key: count for key, count in counts.items() if count} == plain
    assert len(counts) == len(slots) * len(weather.AIRPORTS)
    texts = {row["slot"]: row["local_time"] for row in found}
    assert texts["2013-03-10T06:00:00Z"] == "2013-03-10T01:00:00-05:00"
    assert texts["2013-03-10T07:00:00Z"] == "2013-03-10T03:00:00-04:00"


class _Killed(BaseException):
    pass


def _killed(_found: object) -> None:
    raise _Killed


def _die(_held: object, error: BaseException | None, **_: object) -> None:
    raise error or _Killed


def state(store: Store, slot: datetime) -> str:
    record = store.read_run(RunKey("rollup", iso(slot)))
    assert record is None or record.state not in OPEN_STATES or record.attempt
    return "absent" if record is None else record.state
