"""The resumer sends on their way the open runs that nobody holds, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from anarchon_ddb import Run, job, resumer
from anarchon_ddb.job import Job
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT, read

Contexts = Callable[..., LambdaContext]
EVENT = scheduler_event("export", SLOT)


def die(_held: object, error: BaseException, **_: object) -> None:
    raise error


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, RunKey]]:
    made: list[tuple[str, RunKey]] = []

    def send(_store: Store, function: str, key: RunKey) -> None:
        made.append((function, key))

    monkeypatch.setattr("anarchon_ddb.dispatch.send", send)
    return made


def interrupted(clock: SettableClock) -> Job:
    @job("export", overlap="allow")
    def handler(run: Run) -> None:
        clock.advance(seconds=55)
        run.save((run.checkpoint or 0) + 1)

    return handler


def test_an_interrupted_run_is_sent_to_the_function_that_worked_on_it(
    store: Store, clock: SettableClock, context: Contexts, sent: list[Any]
) -> None:
    interrupted(clock)(EVENT, context(function_name="stack-export"))
    counts = resumer.handler({}, context())
    assert (counts["open"], counts["sent"], counts["faults"]) == (1, 1, 0)
    arn = "arn:aws:lambda:eu-west-1:123456789012:function:stack-export"
    assert [(arn, RunKey("export", SLOT))] == sent


def test_it_is_not_sent_again_at_once_but_a_minute_later(
    store: Store, clock: SettableClock, context: Contexts, sent: list[Any]
) -> None:
    interrupted(clock)(EVENT, context())
    resumer.handler({}, context())
    resumer.handler({}, context())
    assert len(sent) == 1
    clock.advance(seconds=60)
    resumer.handler({}, context())
    assert len(sent) == 2


def test_a_held_run_an_ended_run_and_a_backoff_are_left_alone(
    store: Store, clock: SettableClock, context: Contexts, sent: list[Any]
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        clock.advance(seconds=30)
        assert resumer.handler({}, context())["sent"] == 0

    handler(EVENT, context("15m"))
    assert {0} == set(resumer.handler({}, context()).values())

    @job("export", retry_delay="15m")
    def fails(run: Run) -> None:
        raise ValueError("down")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.random.random", lambda: 1.0)
        with pytest.raises(ValueError, match="down"):
            fails(scheduler_event("export", "2026-11-29T11:00:00Z"), context())
    clock.advance(minutes=14)
    assert resumer.handler({}, context())["sent"] == 0
    clock.advance(minutes=2)
    assert resumer.handler({}, context())["sent"] == 1
    assert [key for _, key in sent if key.slot == SLOT] == []


def test_a_damaged_run_does_not_stop_the_others(
    store: Store, clock: SettableClock, context: Contexts, sent: list[Any]
) -> None:
    slots = [f"2026-11-29T11:{minute:02}:00Z" for minute in range(6)]
    for slot in slots:
        interrupted(clock)(scheduler_event("export", slot), context())
    store.client.update_item(
        TableName=store.table,
        Key=RunKey("export", slots[2]).wire,
        UpdateExpression="SET attempts = :bad",
        ExpressionAttributeValues={":bad": {"S": "{"}},
    )
    counts = resumer.handler({}, context())
    assert (counts["open"], counts["sent"], counts["faults"]) == (6, 5, 1)


def test_a_pass_stops_when_its_time_is_short(
    store: Store, clock: SettableClock, context: Contexts, sent: list[Any]
) -> None:
    interrupted(clock)(EVENT, context())
    assert resumer.handler({}, context("15m", remaining_ms=4_000))["open"] == 0


def test_a_run_left_by_a_kill_is_found_and_finished(
    store: Store, clock: SettableClock, context: Contexts, sent: list[Any]
) -> None:
    @job("export")
    def dies(run: Run) -> None:
        run.save(1)
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anarchon_ddb.ending.end", die)
        with pytest.raises(SystemExit):
            dies(EVENT, context())
    assert resumer.handler({}, context())["sent"] == 0
    clock.advance(seconds=66)
    assert resumer.handler({}, context())["sent"] == 1

    @job("export")
    def finishes(run: Run) -> None:
        assert (run.attempt, run.checkpoint) == (2, 1)

    assert finishes(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert read(store).state == "succeeded"


def test_the_oldest_open_run_is_told_by_when_its_work_began(
    store: Store,
    clock: SettableClock,
    context: Contexts,
    sent: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = interrupted(clock)
    handler(EVENT, context())
    clock.advance(minutes=10)
    handler(resume_event("export", SLOT), context())
    capsys.readouterr()
    resumer.handler({}, context("50s"))
    told = next(line for line in capsys.readouterr().out.splitlines() if "ResumerPasses" in line)
    ages = json.loads(told)["OldestOpenRunAge"]
    assert ages == [55.0 + 600 + 55]
