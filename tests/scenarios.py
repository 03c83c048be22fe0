"""What is explored: workers and an operator on two slots of one job, and the promises to check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from anarchon_ddb import Run, dispatch, operations, resumer, worker
from anarchon_ddb.errors import RefusedError
from anarchon_ddb.lease import Lease
from anarchon_ddb.options import resolve
from anarchon_ddb.protocol import Write
from anarchon_ddb.records import OPEN_STATES
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, resume_event, scheduler_event
from tests.explorer import Killed, World

A = "2026-11-29T11:58:00Z"
B = "2026-11-29T11:59:00Z"
C = "2026-11-29T12:00:00Z"
LATER = "2026-11-29T12:00:05Z"
BATCHES = 2


@dataclass(frozen=True)
class Mutant:
    """A write with a part of its expressions replaced."""

    write: str
    old: str
    new: str = ""

    def apply(self, write: Write, values: dict[str, Any]) -> tuple[Write, dict[str, Any]]:
        if write.name != self.write:
            return write, values
        changed = Write(
            name=write.name,
            sets=tuple(part.replace(self.old, self.new) for part in write.sets),
            requires=tuple(
                part
                for part in (part.replace(self.old, self.new) for part in write.requires)
                if part
            )
            or ("attribute_exists(#pk)",),
            removes=write.removes,
            constants={},
        )
        used = f"{changed.update} {changed.condition}"
        every = {**write.constants, **values}
        return changed, {
            name: value for name, value in every.items() if re.search(rf":{name}\b", used)
        }


@dataclass
class Ledger:
    """What the handlers did, and what the table said over time."""

    bodies: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By worker: the slot and attempt it is in the middle of."""
    ran: set[str] = field(default_factory=set)
    cursors: dict[str, int] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    retried: set[str] = field(default_factory=set)
    paused_at: tuple[Any, int] | None = None
    released: set[str] = field(default_factory=set)
    leases: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """By slot: state, attempt and end of the lease as they were before the step."""
    answers: list[dict[str, Any]] = field(default_factory=list)


class Scenario:
    """One world with its job.

    Parameters
    ----------
    overlap : str
        The job's policy.
    script : callable
        Given the scenario, adds its workers.
    """

    retries_from_start = True
    """Whether a person's retry forgets the checkpoint."""

    def __init__(self, overlap: str, script: Callable[[Scenario], None], **options: Any) -> None:
        self.world = World()
        self.ledger = Ledger()
        self.overlap = overlap
        self.store = Store("twin", clock=self.world.clock)
        self.store._connection = self.world  # type: ignore[assignment]
        self.mutant: Mutant | None = None
        self._write = self.store.write
        self.store.write = self._mutated  # type: ignore[method-assign]
        effective, _ = resolve("job", {"overlap": overlap, "retry_delay": "0s", **options}, {})
        self.definition = worker.JobDefinition("job", self._handler, effective)
        self.world.checks.append(self.check)
        self.world.end = self.end
        script(self)

    def _mutated(self, key: Any, write: Any, values: Any, **rest: Any) -> Any:
        """Send a write as a mutant would have it."""
        if self.mutant is not None:
            write, values = self.mutant.apply(write, values)
        self.world.current.write = write.name
        return self._write(key, write, values, **rest)

    # --- what the workers do

    def deliver(self, slot: str) -> Callable[[], Any]:
        return lambda: self._invoke(scheduler_event("job", slot))

    def resume(self, slot: str) -> Callable[[], Any]:
        return lambda: self._invoke(resume_event("job", slot))

    def operate(self, *steps: tuple[str, str | None]) -> Callable[[], Any]:
        """Do what an operator does; a refusal is told and the next step follows."""

        def script() -> None:
            for name, slot in steps:
                try:
                    self._operate(name, slot)
                except RefusedError:
                    continue

        return script

    def _operate(self, name: str, slot: str | None) -> None:
        function = getattr(operations, name)
        if slot is None:
            function(self.store, "job")
            return
        if name == "release":
            self.ledger.released.add(slot)
        if name == "retry":
            self.ledger.retried.add(slot)
        anew = {"force": True, "from_start": self.retries_from_start} if name == "retry" else {}
        function(self.store, "job", datetime.fromisoformat(slot), **anew)

    def _invoke(self, event: dict[str, Any]) -> Any:
        context = LambdaContext("15m", clock=self.world.clock)
        delivery = worker.parse_event(event, "job", now=self.world.clock.now)
        assert delivery is not None
        invocation = worker.Invocation(
            self.definition, delivery, context, self.store, self.world.clock
        )
        answer = invocation.work()
        self.ledger.answers.append(answer)
        return answer

    def _handler(self, run: Run) -> None:
        current = getattr(self.world.current, "worker", None)
        name = current.name if current else "recovery"
        slot = f"{run.slot:%Y-%m-%dT%H:%M:%SZ}"
        item = self.item(slot)
        if item["attempt"] == run.attempt:  # else it lost the lease on the way here
            stored = json.loads(item.get("checkpoint", "null"))
            assert stored == run.checkpoint, f"{slot} resumed at {run.checkpoint}, not {stored}"
        self.ledger.bodies[name] = (slot, run.attempt)
        self.ledger.ran.add(slot)
        try:
            for batch in range(run.checkpoint or 0, BATCHES):
                run.save(batch + 1)
        except Killed:
            self.ledger.bodies.pop(name, None)
            raise
        finally:
            self.ledger.bodies.pop(name, None)

    # --- what must hold

    def item(self, slot: str) -> dict[str, Any]:
        wire = RunKey("job", slot).wire
        return self.world.twin.items.get((wire["pk"]["S"], wire["sk"]["S"]), {})

    @property
    def head(self) -> dict[str, Any]:
        return self.world.twin.items.get(("job#job", "head"), {})

    def check(self) -> None:
        self._check_bodies()
        for slot in (A, B, C):
            self._check_run(slot)
        self._check_pause()
        head = self.head
        assert head.get("active_slot") or not head.get("waiting"), (
            f"nobody is at the gate, and {sorted(head['waiting'])} wait"
        )

    def _check_bodies(self) -> None:
        now = self.world.clock.now_ms()
        live = []
        for slot, attempt in self.ledger.bodies.values():
            item = self.item(slot)
            holds = item.get("state") == "running" and item.get("attempt") == attempt
            if holds and item["lease_until"] > now:
                live.append(slot)
        assert len(live) == len(set(live)), f"two live holders of {live}"
        if self.overlap != "allow":
            assert len(set(live)) < 2, f"two live runs past the gate: {live}"

    def _check_pause(self) -> None:
        """While a job is paused nothing passes its gate."""
        head = self.head
        passed = (head.get("active_slot"), head.get("active_attempt", 0))
        if head.get("paused_until", 0) <= self.world.clock.now_ms():
            self.ledger.paused_at = None
            return
        if self.ledger.paused_at is None:
            self.ledger.paused_at = passed
        assert passed[1] == 0 or passed == self.ledger.paused_at, f"{passed} passed while paused"

    def _check_run(self, slot: str) -> None:
        item = self.item(slot)
        if not item:
            return
        cursor = json.loads(item.get("checkpoint", "0"))
        if slot in self.ledger.retried and "checkpoint" not in item:
            self.ledger.cursors[slot] = 0  # a person had it begin anew
        before = self.ledger.cursors.get(slot, 0)
        assert cursor >= before, f"the checkpoint of {slot} went from {before} back to {cursor}"
        self.ledger.cursors[slot] = cursor
        self._check_lease(slot, item)
        state, ended = item["state"], self.ledger.ended.get(slot)
        if ended is not None and slot not in self.ledger.retried:
            assert state == ended, f"{slot} ended as {ended} and is {state} now"
        if state not in OPEN_STATES:
            self.ledger.ended[slot] = state
            assert "expires_at" in item
            assert "open" not in item, f"{slot} is {state} and in the index of open runs"
        if state == "succeeded":
            assert cursor == BATCHES, f"{slot} succeeded at {cursor}"
        if state == "failed":
            assert slot in self.ledger.ran, f"{slot} failed and never ran"

    def _check_lease(self, slot: str, item: dict[str, Any]) -> None:
        """No claim takes a lease that has not run out; only a person's release may."""
        before = self.ledger.leases.get(slot)
        self.ledger.leases[slot] = (item["state"], item["attempt"], item["lease_until"])
        if before is None or slot in self.ledger.released:
            return
        state, attempt, until_ms = before
        if state == "running" and item["attempt"] != attempt:
            now_ms = self.world.clock.now_ms()
            assert until_ms < now_ms, f"the lease of {slot}, attempt {attempt}, was taken alive"

    def end(self) -> None:
        """Nothing is stuck: without further faults every run ends and the gate becomes free."""
        self._check_answers()
        self.ledger.bodies.clear()
        if self.head.get("paused_until"):
            operations.unpause(self.store, "job")
        for _ in range(8):
            self.world.clock.advance(minutes=16)
            self._resume_all()
            self.check()
            if not self._open_slots():
                break
        assert not self._open_slots(), f"stuck: {self._open_slots()}"
        later = self._invoke(scheduler_event("job", LATER))
        if later["outcome"] == "pending":  # the gate was handed to a run that has ended
            self.world.clock.advance(minutes=1)
            self._resume_all()
        state = self.item(LATER)["state"]
        assert state == "succeeded", f"the gate is not free: {self.head}, {later}"
        assert not self.head.get("active_slot"), f"the gate was not left: {self.head}"
        delivered = [slot for slot in (A, B, C) if self.item(slot)]
        if self.overlap == "queue":
            states = {self.item(slot)["state"] for slot in delivered}
            assert states <= {"succeeded", "failed", "cancelled", "skipped"}, states

    def _check_answers(self) -> None:
        for answer in self.ledger.answers:
            if answer["outcome"] in {"succeeded", "cancelled", "failed"}:
                item = self.item(answer["slot"])
                told = [entry[0] for entry in json.loads(item["attempts"])]
                assert answer["attempt"] in told, f"{answer} is not in the table: {item}"

    def _open_slots(self) -> list[str]:
        return [slot for slot in (A, B, C) if self.item(slot).get("state") in OPEN_STATES]

    def _resume_all(self) -> None:
        sent: list[RunKey] = []
        original, original_of = dispatch.send, resumer.store_of
        dispatch.send = lambda _store, _function, key: sent.append(key)  # type: ignore[assignment]
        resumer.store_of = lambda _clock: self.store  # type: ignore[assignment]
        try:
            resumer.handler({}, LambdaContext("50s", clock=self.world.clock))
        finally:
            dispatch.send, resumer.store_of = original, original_of
        for key in sorted(sent, key=lambda key: key.slot):
            self._invoke(resume_event("job", key.slot))


def quiet() -> None:
    """Start no heartbeat threads: time moves only where the explorer moves it."""
    Lease.start = lambda _self: None  # type: ignore[method-assign]


def two_slots(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("w2", s.deliver(B))


def two_deliveries_of_one(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("w2", s.deliver(A))


def a_resume_and_the_next_slot(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("w2", s.resume(A))
    s.world.add("w3", s.deliver(B))


def three_slots(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("w2", s.deliver(B))
    s.world.add("w3", s.deliver(C))


def a_pause(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("op", s.operate(("pause", None), ("unpause", None)))
    s.world.add("w2", s.deliver(B))


def a_cancel(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("op", s.operate(("cancel", A)))
    s.world.add("w2", s.deliver(B))


def a_release(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("op", s.operate(("release", A)))
    s.world.add("w2", s.resume(A))
    s.world.add("w3", s.deliver(B))


def a_retry(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("op", s.operate(("cancel", A), ("retry", A)))
    s.world.add("w2", s.resume(A))
    s.world.add("w3", s.deliver(B))


def a_forced_retry(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("op", s.operate(("retry", A)))
    s.world.add("w2", s.resume(A))
    s.world.add("w3", s.deliver(B))


def killed_four_times(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    for number in (2, 3, 4):
        s.world.add(f"w{number}", s.resume(A))


def waits_five_times(s: Scenario) -> None:
    s.world.add("w1", s.deliver(A))
    s.world.add("w2", s.deliver(B))
    for number in range(3, 7):
        s.world.add(f"w{number}", s.resume(B))


SCENARIOS = {
    script.__name__: script
    for script in (
        two_slots,
        two_deliveries_of_one,
        a_resume_and_the_next_slot,
        three_slots,
        a_pause,
        a_cancel,
        a_release,
        a_retry,
        a_forced_retry,
    )
}


def building(
    overlap: str, script: Callable[[Scenario], None], mutant: Mutant | None = None, **options: Any
) -> Callable[[], World]:
    """Return what builds a fresh world of a scenario."""

    def build() -> World:
        scenario = Scenario(overlap, script, **options)
        scenario.mutant = mutant
        return scenario.world

    return build
