"""Simulated weeks on a moved clock: every slot that was due leaves its trace, and no other does.

Deliveries are lost, late, doubled and reordered; schedules are edited, disabled, enabled and
renamed; a job is paused over midnight and over a change of the clock. The ledger of each job is
compared, slot by slot, with an independent listing of what was due.
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import boto3
import pytest
from moto.scheduler.models import scheduler_backends

from anarchon_ddb import Run, metrics, operations, resumer, worker
from anarchon_ddb.clock import iso
from anarchon_ddb.options import resolve
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock
from tests.properties import naive_schedule
from tests.twin import Twin

GROUP = "stack"
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:stack-"
BEGIN = datetime(2027, 3, 9, 5, tzinfo=UTC)
"""New York puts its clocks forward on 14 March 2027, Berlin on the 28th."""
DAYS = 31
STEP = timedelta(minutes=10)

POLICIES: dict[str, dict[str, Any]] = {
    "hourly": {"catch_up": "all", "overlap": "queue"},
    "nightly": {"catch_up": "latest"},
    "report": {"catch_up": "none", "overlap": "allow"},
    "edited": {"catch_up": "all", "overlap": "queue"},
    "switched": {"catch_up": "all", "overlap": "queue"},
    "paused": {"catch_up": "all", "overlap": "queue"},
    "renamed": {"catch_up": "all", "overlap": "queue"},
    "renewed": {"catch_up": "all", "overlap": "queue"},
}


class Simulation:
    """The cloud around the real worker and resumer."""

    def __init__(self, clock: SettableClock, store: Store, seed: int) -> None:
        self.clock = clock
        self.store = store
        self.chance = random.Random(seed)
        self.client = boto3.client("scheduler", region_name="eu-west-1")
        self.client.create_schedule_group(Name=GROUP)
        self.due: dict[str, set[datetime]] = {job: set() for job in POLICIES}
        self.lost: dict[str, set[datetime]] = {job: set() for job in POLICIES}
        self.queue: list[tuple[datetime, dict[str, Any]]] = []
        self.plan: list[tuple[datetime, Any]] = []
        self.fates: Counter[str] = Counter()
        self.is_ending = False
        self._current: dict[str, tuple[str, str, datetime]] = {}
        self._quiet_until: dict[str, datetime] = {}

    # --- the schedules, and what they make due

    def create(self, job: str, expression: str, zone: str) -> None:
        event = {"job": job, "slot": "<aws.scheduler.scheduled-time>"}
        self.client.create_schedule(Name=job, **self._body(job, expression, zone, event))
        self._current[job] = (expression, zone, self.clock.now)

    def _body(self, job: str, expression: str, zone: str, event: Any) -> dict[str, Any]:
        return {
            "GroupName": GROUP,
            "ScheduleExpression": expression,
            "ScheduleExpressionTimezone": zone,
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {
                "Arn": FUNCTION + job,
                "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
                "Input": json.dumps(event),
                "RetryPolicy": {"MaximumEventAgeInSeconds": 3_600},
            },
        }

    def close(self, job: str) -> None:
        """Note what was due under the schedule as it stood until now."""
        expression, zone, since = self._current.pop(job)
        # Behind the instant of creation: at it nothing is due yet.
        begin, end = since + timedelta(seconds=1), self.clock.now + timedelta(seconds=1)
        self.due[job] |= set(naive_schedule.slots(expression, ZoneInfo(zone), begin, end))

    def edit(self, job: str, expression: str, zone: str) -> None:
        self.close(job)
        event = {"job": job, "slot": "<aws.scheduler.scheduled-time>"}
        self.client.update_schedule(Name=job, **self._body(job, expression, zone, event))
        self._current[job] = (expression, zone, self.clock.now)

    def switch(self, job: str, state: str) -> None:
        found = self.client.get_schedule(Name=job, GroupName=GROUP)
        body = {name: found[name] for name in ("ScheduleExpression", "FlexibleTimeWindow", "Target",
                                               "ScheduleExpressionTimezone")}  # fmt: skip
        if state == "DISABLED":
            self.close(job)
        else:
            expression, zone = body["ScheduleExpression"], body["ScheduleExpressionTimezone"]
            self._current[job] = (expression, zone, self.clock.now)
        self.client.update_schedule(Name=job, GroupName=GROUP, State=state, **body)

    def delete(self, job: str) -> None:
        self.close(job)
        self.client.delete_schedule(Name=job, GroupName=GROUP)

    # --- delivery

    def at(self, hours: float, action: Any, job: str | None = None) -> None:
        """Plan an action; shortly before it the job's deliveries are all in time."""
        when = BEGIN + timedelta(hours=hours)
        self.plan.append((when, action))
        if job:
            self._quiet_until[job] = when

    def fire(self, before: datetime, now: datetime) -> None:
        """Deliver what fell due in this step, or lose it, or keep it for later."""
        for job, (expression, zone, since) in self._current.items():
            begin = max(before, since) + timedelta(seconds=1)
            window = (begin, now + timedelta(seconds=1))
            for slot in naive_schedule.slots(expression, ZoneInfo(zone), *window):
                self._decide(job, slot)

    def _decide(self, job: str, slot: datetime) -> None:
        event = {"job": job, "slot": iso(slot)}
        quiet = self._quiet_until.get(job)
        is_quiet = quiet is not None and timedelta(0) <= quiet - slot < timedelta(hours=12)
        fate = "on time" if is_quiet or self.is_ending else self.chance.choice(
            ["on time"] * 6 + ["lost", "lost", "late", "doubled"]
        )  # fmt: skip
        self.fates[fate] += 1
        if fate == "lost":
            self.lost[job].add(slot)
        elif fate == "late":
            self.queue.append((slot + timedelta(minutes=self.chance.randrange(5, 300)), event))
        else:
            self.queue += [(slot, event)] * (2 if fate == "doubled" else 1)

    def invoke(self, event: dict[str, Any]) -> None:
        job = event["job"]
        options, _ = resolve(job, {"retry_delay": "0s", **POLICIES[job]}, {})
        definition = worker.JobDefinition(job, self._work, options)
        delivery = worker.parse_event(event, job, now=self.clock.now)
        assert delivery is not None
        context = LambdaContext("15m", clock=self.clock)
        worker.Invocation(definition, delivery, context, self.store, self.clock).work()

    def _work(self, run: Run) -> None:
        run.save(1)

    def run(self, days: int) -> None:
        now, end = BEGIN, BEGIN + timedelta(days=days, hours=9)
        while now < end:
            before, now = now, now + STEP
            self.clock.set(iso(now))
            for when, action in sorted(self.plan, key=lambda planned: planned[0]):
                if when <= now:
                    self.plan.remove((when, action))
                    action()
            self.is_ending = now > BEGIN + timedelta(days=days)
            self.fire(before, now)
            for due in [pair for pair in self.queue if pair[0] <= now]:
                self.queue.remove(due)
                self.invoke(due[1])
            resumer.handler({}, LambdaContext("50s", clock=self.clock))
        for job in list(self._current):
            self.close(job)


@pytest.fixture
def simulation(
    aws: None, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Simulation]:
    clock.set(iso(BEGIN - timedelta(minutes=5)))
    monkeypatch.setenv("ANARCHON_SCHEDULE_GROUP", GROUP)
    monkeypatch.setattr(metrics, "emit", lambda *_args, **_options: None)
    monkeypatch.setattr("anarchon_ddb.lease.Lease.start", lambda _self: None)
    monkeypatch.setattr("moto.scheduler.models.unix_time", lambda: clock.now_ms() / 1000)
    monkeypatch.setattr(resumer, "_memories", {})
    store = Store("twin", clock=clock)
    twin, session = Twin(), store.session
    monkeypatch.setattr(store._connection, "dispatch", twin.dispatch)
    monkeypatch.setattr(resumer, "store_of", lambda _clock: store)
    made = Simulation(clock, store, seed=11)
    monkeypatch.setattr(
        "anarchon_ddb.dispatch.invoke",
        lambda _store, _function, event: made.queue.append((clock.now, dict(event))),
    )
    made.twin = twin  # type: ignore[attr-defined]
    logging.disable(logging.CRITICAL)
    yield made
    logging.disable(logging.NOTSET)
    scheduler_backends.reset()
    del session


def ledger(simulation: Simulation, job: str) -> dict[datetime, dict[str, Any]]:
    items = simulation.twin.items  # type: ignore[attr-defined]
    return {
        datetime.fromisoformat(sk.removeprefix("run#")): item
        for (pk, sk), item in items.items()
        if pk == f"job#{job}" and sk != "head"
    }


def test_the_ledger_of_every_job_is_what_was_due(simulation: Simulation) -> None:
    s = simulation
    s.create("hourly", "cron(0 * * * ? *)", "America/New_York")
    s.create("nightly", "cron(30 2 * * ? *)", "America/New_York")
    s.create("report", "cron(15 0/6 * * ? *)", "Europe/Berlin")
    s.create("edited", "cron(0 0/2 * * ? *)", "UTC")
    s.create("switched", "cron(20 * * * ? *)", "UTC")
    s.create("paused", "cron(0 * * * ? *)", "America/New_York")
    s.create("renamed", "cron(40 0/3 * * ? *)", "UTC")
    s.at(60.5, lambda: s.edit("edited", "cron(30 1/2 * * ? *)", "Asia/Kathmandu"), "edited")
    s.at(50.6, lambda: s.switch("switched", "DISABLED"), "switched")
    s.at(98.6, lambda: s.switch("switched", "ENABLED"))
    pause = (datetime(2027, 3, 14, 3, 30, tzinfo=UTC), datetime(2027, 3, 14, 14, 30, tzinfo=UTC))
    s.at((pause[0] - BEGIN) / timedelta(hours=1), lambda: operations.pause(s.store, "paused"))
    s.at((pause[1] - BEGIN) / timedelta(hours=1), lambda: operations.unpause(s.store, "paused"))
    s.at(80.2, lambda: s.delete("renamed"), "renamed")
    s.at(80.2, lambda: s.create("renewed", "cron(40 0/3 * * ? *)", "UTC"))
    s.run(DAYS)
    for job, policy in POLICIES.items():
        found = ledger(s, job)
        assert s.due[job] == set(found), job
        states = Counter(item["state"] for item in found.values())
        assert set(states) <= {"succeeded", "skipped", "missed"}, (job, states)
        missed = {slot for slot, item in found.items() if item["state"] == "missed"}
        assert missed <= s.lost[job], (job, missed - s.lost[job])
        if policy["catch_up"] == "all":
            assert not missed, job
        if policy["catch_up"] == "none":
            assert missed == s.lost[job]
        skipped = {slot for slot, item in found.items() if item["state"] == "skipped"}
        in_pause = {slot for slot in found if pause[0] <= slot < pause[1]}
        if job == "paused":
            assert in_pause <= skipped | late_of(found), job
            assert skipped <= in_pause
        elif policy.get("overlap") in {"queue", "allow"}:
            assert not skipped, job
    assert s.fates["lost"] > 20


def late_of(found: dict[datetime, dict[str, Any]]) -> set[datetime]:
    """Slots delivered after the pause although they fell into it: they were on their way."""
    return {slot for slot, item in found.items() if item["state"] == "succeeded"}
