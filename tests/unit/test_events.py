"""Each event names its slot, or is refused with one clear text. None is taken from the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anarchon_ddb.errors import InvalidEventError
from anarchon_ddb.events import parse_event
from anarchon_ddb.schedule import parse
from anarchon_ddb.testing import resume_event, rule_event, scheduler_event

NOW = datetime(2026, 2, 1, 0, 0, 7, tzinfo=UTC)
SLOT = datetime(2026, 2, 1, tzinfo=UTC)
ENVELOPE: dict[str, Any] = rule_event("nightly", SLOT)
SCHEDULER = ENVELOPE | {
    "source": "aws.scheduler",
    "detail": "{}",
    "resources": ["arn:aws:scheduler:eu-west-1:123456789012:schedule/stack/nightly"],
}
CANNED = {  # what `sam local generate-event` gives
    "id": "cdc73f9d-aea9-11e3-9d5a-835b769c0d9c",
    "detail-type": "Scheduled Event",
    "source": "aws.events",
    "account": "123456789012",
    "time": "1970-01-01T00:00:00Z",
    "region": "us-east-1",
    "resources": ["arn:aws:events:us-east-1:123456789012:rule/ExampleRule"],
    "detail": {},
}
WRAPPED = {"Records": [{"messageId": "m1", "eventSource": "aws:sqs", "body": "not json",
                        "attributes": {"SentTimestamp": "1769904000000"}}]}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "schedule"),
    [
        pytest.param(scheduler_event("nightly", SLOT), "schedule/stack/nightly", id="input"),
        pytest.param(ENVELOPE, "rule/nightly", id="rule"),
        pytest.param(SCHEDULER, "schedule/stack/nightly", id="scheduler-envelope"),
        pytest.param(
            {key: value for key, value in ENVELOPE.items() if key != "version"},
            "rule/nightly",
            id="C14-no-version",
        ),
    ],
)
def test_an_event_names_job_slot_and_schedule(event: Any, schedule: str) -> None:
    delivery = parse_event(event, "nightly", now=NOW)
    assert delivery is not None
    assert (delivery.job, delivery.slot, delivery.cause) == ("nightly", SLOT, "schedule")
    assert (delivery.schedule or "").endswith(schedule)
    assert delivery.is_first


@pytest.mark.parametrize(
    ("event", "text"),
    [
        pytest.param({"job": "nightly", "full": True}, "no scheduled time", id="C11-constant"),
        pytest.param({"job": "nightly", "full": True}, "<aws.scheduler.scheduled-time>",
                     id="C11-advice"),
        pytest.param({}, "no scheduled time in event", id="C11-empty"),
        pytest.param({"key1": "value1", "key2": "value2", "key3": "value3"},
                     "not a schedule event", id="C13-console-test"),
        pytest.param(CANNED, "1970-01-01T00:00:00Z is older", id="C14-canned-sample"),
        pytest.param(WRAPPED, "SQS/SNS-wrapped events are not supported", id="C15-queue"),
        pytest.param(ENVELOPE | {"source": "aws.s3"}, "source is 'aws.s3'", id="other-source"),
        pytest.param(ENVELOPE | {"detail-type": "EC2 Spot"}, "detail-type", id="other-detail"),
        pytest.param({key: value for key, value in ENVELOPE.items() if key != "time"},
                     "no time", id="rule-without-time"),
        pytest.param({"job": "nightly", "slot": "<aws.scheduler.scheduled-time>"},
                     "only the Input of an EventBridge", id="placeholder"),
        pytest.param({"job": "nightly", "slot": "2026-02-01T00:00:00"}, "without a zone",
                     id="naive"),
        pytest.param({"job": "nightly", "slot": "2026-02-01T00:00:00.5Z"}, "whole seconds",
                     id="fraction"),
        pytest.param({"job": "nightly", "slot": "yesterday"}, "expected a time such as", id="text"),
        pytest.param({"job": "nightly", "slot": 1769904000}, "must be an ISO 8601", id="number"),
        pytest.param({"job": "other", "slot": "2026-02-01T00:00:00Z"}, "is for job 'other'",
                     id="other-job"),
        pytest.param({"job": "nightly2", "slot": "2026-02-01T00:00:00Z"}, "is for job",
                     id="longer-name"),
        pytest.param({"job": "nightly:a#b", "slot": "2026-02-01T00:00:00Z"}, "is for job",
                     id="instance-with-other-characters"),
        pytest.param({"job": 7, "slot": "2026-02-01T00:00:00Z"}, "'job' must be", id="job-number"),
        pytest.param(scheduler_event("nightly", SLOT) | {"full": True}, "unknown key 'full'",
                     id="unknown-key"),
        pytest.param(scheduler_event("nightly", SLOT) | {"params": [1]}, "must be an object",
                     id="params-list"),
        pytest.param(scheduler_event("nightly", SLOT) | {"cause": "magic"}, "'cause' is 'magic'",
                     id="cause"),
        pytest.param(scheduler_event("nightly", NOW + timedelta(minutes=6)), "5 minutes ahead",
                     id="future"),
        pytest.param(scheduler_event("nightly", NOW - timedelta(days=31)), "older than",
                     id="older-than-retention"),
        pytest.param(None, "expected a JSON object, got NoneType", id="none"),
        pytest.param([1], "expected a JSON object, got list", id="list"),
        pytest.param("x", "expected a JSON object, got str", id="string"),
    ],
)  # fmt: skip
def test_what_names_no_slot_is_refused(event: Any, text: str) -> None:
    with pytest.raises(InvalidEventError) as refusal:
        parse_event(event, "nightly", now=NOW)
    assert text in str(refusal.value)


def test_the_refusal_does_not_show_values_of_the_event() -> None:
    with pytest.raises(InvalidEventError) as refusal:
        parse_event({"password": "hunter2"}, "nightly", now=NOW)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "event",
    [
        {"source": "serverless-plugin-warmup"},
        {"warmer": True},
        {"warmup": True, "concurrency": 3},
    ],
)
def test_a_warm_up_ping_delivers_nothing(event: dict[str, Any]) -> None:
    assert parse_event(event, "nightly", now=NOW) is None


def test_an_offset_is_turned_into_utc() -> None:
    event = {"job": "nightly", "slot": "2026-02-01T09:00:00+09:00"}
    delivery = parse_event(event, "nightly", now=NOW)
    assert delivery is not None
    assert delivery.slot == SLOT
    assert delivery.slot.utcoffset() == timedelta(0)


def test_an_instance_belongs_to_the_job() -> None:
    event = scheduler_event("nightly:tenant-a", SLOT, params={"tenant": "a"})
    delivery = parse_event(event, "nightly", now=NOW)
    assert delivery is not None
    assert (delivery.job, dict(delivery.params)) == ("nightly:tenant-a", {"tenant": "a"})


def test_a_resume_may_be_of_any_age_and_creates_nothing() -> None:
    delivery = parse_event(resume_event("nightly", NOW - timedelta(days=300)), "nightly", now=NOW)
    assert delivery is not None
    assert not delivery.is_first


@pytest.mark.parametrize(
    ("expression", "time", "slot"),
    [
        pytest.param("cron(0/5 * * * ? *)", "00:05:37", "00:05:00", id="cron-floored"),
        pytest.param("cron(0/5 * * * ? *)", "00:05:00", "00:05:00", id="cron-whole-minute"),
        pytest.param("rate(5 minutes)", "00:05:37", "00:05:37", id="rate-as-delivered"),
    ],
)
def test_the_slot_of_a_rule_whose_schedule_is_known(expression: str, time: str, slot: str) -> None:
    event = rule_event("nightly", f"2026-02-01T{time}Z")
    rule = parse(expression, kind="rule")
    delivery = parse_event(event, "nightly", now=NOW + timedelta(minutes=5), schedule=rule)
    assert delivery is not None
    assert delivery.slot == datetime.fromisoformat(f"2026-02-01T{slot}Z")


def test_what_is_no_slot_of_a_known_schedule_is_refused() -> None:
    event = rule_event("nightly", "2026-02-01T00:01:00Z")
    rule = parse("cron(0/5 * * * ? *)", kind="rule")
    with pytest.raises(InvalidEventError, match="is no slot of cron") as refusal:
        parse_event(event, "nightly", now=NOW, schedule=rule)
    assert "2026-02-01T00:01:00Z" in str(refusal.value)


@pytest.mark.parametrize("time", ["05:30:00", "06:30:00"])
def test_C05_both_half_past_one_in_New_York_are_one_slot(time: str) -> None:
    nightly = parse("cron(30 1 * * ? *)", "America/New_York")
    event = scheduler_event("nightly", f"2026-11-01T{time}Z")
    now = datetime(2026, 11, 1, 6, 31, tzinfo=UTC)
    delivery = parse_event(event, "nightly", now=now, schedule=nightly)
    assert delivery is not None
    assert delivery.slot == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)


def test_the_slot_of_a_resume_stays_whatever_the_schedule_says_by_now() -> None:
    event = resume_event("nightly", "2026-02-01T00:01:00Z")
    delivery = parse_event(event, "nightly", now=NOW, schedule=parse("cron(0 5 * * ? *)"))
    assert delivery is not None
    assert delivery.slot == SLOT + timedelta(minutes=1)


@pytest.mark.parametrize("schedule", ["nightly", 7, None, "arn:" + "x" * 600])
def test_what_is_no_arn_of_a_schedule_is_not_kept(schedule: Any) -> None:
    event = scheduler_event("nightly", SLOT) | {"schedule": schedule}
    delivery = parse_event(event, "nightly", now=NOW)
    assert delivery is not None
    assert delivery.schedule is None
