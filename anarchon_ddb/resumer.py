"""The resumer: fired each minute, it makes sure that nothing due is lost and nothing is stuck.

A pass reads the registry, then in bounded work and time, going on in the next minute:

* open runs that nobody holds are sent on their way; one past its timeout, or whose job has neither
  a schedule nor a function any more, is claimed and ended here;
* slots that were due and have left no trace are run or recorded, as the job's policy says.

It takes candidates from the index and decides on the base table. A run is claimed by the function
that is invoked, so two passes at once do no harm. One job's damage is reported and counted, and the
others go on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from anarchon_ddb import catch_up, dispatch, gate, logs, metrics, protocol, records
from anarchon_ddb.clock import from_ms, iso, to_ms
from anarchon_ddb.errors import AnarchonError, StoreError
from anarchon_ddb.events import SlotEvent
from anarchon_ddb.group import GROUP_SETTING, ScheduleGroup
from anarchon_ddb.listing import Listing
from anarchon_ddb.options import Options
from anarchon_ddb.schema import RunKey
from anarchon_ddb.worker import Invocation, JobDefinition, clock_of, store_of, warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anarchon_ddb.catch_up import Due
    from anarchon_ddb.clock import Clock
    from anarchon_ddb.listing import Registered
    from anarchon_ddb.records import Head, RunRecord
    from anarchon_ddb.store import Store

STOP_MARGIN_MS = 5_000

REDISPATCH_MS = 50_000
"""Not sent again within this: less than the minute between two passes, so none is left out."""


@dataclass(slots=True)
class _Memory:
    """What a warm sandbox keeps from pass to pass; none of it is needed for being right."""

    group: ScheduleGroup | None = None
    heads: dict[str, Head] = field(default_factory=dict)
    turn: int = 0
    """Where the next pass begins, so that a pass that runs out of time starves nobody."""


_memories: dict[tuple[str, str], _Memory] = {}


def handler(event: object, context: Any) -> dict[str, int]:  # noqa: ARG001  the event is a tick
    """Run one pass; return what it did.

    Raises
    ------
    StoreError
        If the index can't be read.
    """
    clock = clock_of(context)
    store = store_of(clock)
    group = os.environ.get(GROUP_SETTING, "")
    memory = _memories.setdefault((store.table, group), _Memory())
    if group and (memory.group is None or memory.group.store is not store):
        memory.group = ScheduleGroup(store, group)
        memory.heads.clear()
    return Pass(store, memory, context, clock).run()


class Pass:
    """One pass."""

    def __init__(self, store: Store, memory: _Memory, context: Any, clock: Clock) -> None:
        self.store = store
        self.memory = memory
        self.context = context
        self.clock = clock
        self.now_ms = clock.now_ms()
        self.log = logs.logger()
        self.listing = Listing()
        self.counts = {"open": 0, "sent": 0, "ended": 0, "missed": 0, "skipped": 0, "faults": 0}
        self.oldest_ms = self.now_ms

    def has_time(self) -> bool:
        """Tell whether another call may be begun; what is left is done in the next minute."""
        remaining: int = self.context.get_remaining_time_in_millis()
        return remaining > STOP_MARGIN_MS

    def run(self) -> dict[str, int]:
        """Do as much as there is time for."""
        if self.memory.group is not None:
            listed = self.memory.group.refresh(self.has_time)
            heads = [self.store.read_head(job) for job in self.store.jobs_of_rules()]
            self.listing = listed.with_more(self.memory.group.rules(heads))
        for fault in self.listing.faults:
            self._report(fault)
        self._resume_open_runs()
        self._catch_up()
        metrics.emit(
            {
                "ResumerPasses": 1,
                "OpenRuns": self.counts["open"],
                "OldestOpenRunAge": (self.now_ms - self.oldest_ms) / 1000,
            }
        )
        return self.counts

    def _report(self, text: str, **fields: str) -> None:
        self.counts["faults"] += 1
        self.log.error(text, extra=fields)

    # --- open runs

    def _resume_open_runs(self) -> None:
        for key in self.store.open_runs(self.now_ms):
            if not self.has_time():
                return
            self.counts["open"] += 1
            try:
                self._resume(key)
            except AnarchonError as fault:
                self._report(str(fault), job=key.job, slot=key.slot)

    def _resume(self, key: RunKey) -> None:
        record = self.store.read_run(key)
        if record is None or not records.is_open(record):
            return
        # Since its work began; since its last claim while its clock stands still.
        self.oldest_ms = min(self.oldest_ms, record.started_at or record.claimed_at)
        if not protocol.is_claimable(record, self.now_ms):
            return
        head = self.store.read_head(key.job)
        if self._is_over(record, head):
            self._end(record, head, "timed_out")
        elif self._may_pass(record, head):
            self._send(record, head)

    def _is_over(self, record: RunRecord, head: Head) -> bool:
        """Tell whether the run used up its own timeout, whose clock a pause holds."""
        if not record.started_at or gate.is_paused(head, self.now_ms):
            return False
        timeout_ms = catch_up.policy_of(head).timeout_ms
        return self.now_ms >= protocol.deadline_ms(record, timeout_ms)

    def _may_pass(self, record: RunRecord, head: Head) -> bool:
        """Tell whether sending a run makes sense: a pause or another run at the gate refuses it."""
        if gate.is_paused(head, self.now_ms):
            return False
        if record.slot not in head.waiting or head.active_slot is None:
            return True
        active = self.store.read_run(RunKey(record.job, head.active_slot))
        # The gate was left by a run that has ended: who waits is sent to hand it on.
        return active is None or not records.is_open(active)

    def _send(self, record: RunRecord, head: Head) -> None:
        key = RunKey(record.job, record.slot)
        values = {
            "attempt": record.attempt,
            "now": self.now_ms,
            "dispatched_before": self.now_ms - REDISPATCH_MS,
        }
        if self.store.write(key, protocol.DISPATCH, values) is None:
            return
        entries = self.listing.of(record.job)
        function = entries[0].function if entries else record.function
        fault = dispatch.send(self.store, function, key)
        if fault is None:
            self.counts["sent"] += 1
        elif fault.is_gone and not entries and self.listing.is_complete:
            self._end(record, head, "orphaned")
        else:
            self._report(
                f"the function of a run could not be invoked: {fault}",
                job=key.job,
                slot=key.slot,
                function=function,
            )

    def _end(self, record: RunRecord, head: Head, reason: str) -> None:
        """Claim a run and end it here: no function will."""
        policy = catch_up.policy_of(head)
        options = Options(timeout=policy.timeout_ms, retention=policy.retention_ms)
        definition = JobDefinition(record.job, _never, options)
        delivery = SlotEvent(record.job, datetime.fromisoformat(record.slot), "resume")
        invocation = Invocation(definition, delivery, self.context, self.store, self.clock)
        answer = invocation.end_as("failed", reason)
        self.counts["ended"] += answer["outcome"] in records.TERMINAL_STATES

    # --- slots that left no trace

    def _catch_up(self) -> None:
        jobs = sorted({entry.job for entry in self.listing.registered})
        for count in range(len(jobs)):
            if not self.has_time():
                return
            job = jobs[(self.memory.turn + count) % len(jobs)]
            try:
                self._catch_up_job(job, self.listing.of(job))
            except AnarchonError as fault:
                self._report(str(fault), job=job)
            if not self.has_time():
                self.memory.turn += count + 1

    def _catch_up_job(self, job: str, entries: Sequence[Registered]) -> None:
        now = from_ms(self.now_ms)
        head = self.memory.heads.get(job)
        if head is not None and not catch_up.due_slots(
            entries, head, catch_up.policy_of(head), now
        ):
            return  # as far as this sandbox knows, and it only moves forward
        head = self.memory.heads[job] = self.store.read_head(job)
        policy = catch_up.policy_of(head)
        due = catch_up.due_slots(entries, head, policy, now)
        if not due:
            return
        # As wide as half a period of a rate may reach.
        first, last = due[0].slot, max(due[-1].slot, now)
        widest = max((one.entry.schedule.period for one in due if one.entry.schedule.period),
                     default=None)  # fmt: skip
        if widest is not None:
            first -= widest
        existing = {
            datetime.fromisoformat(slot)
            for slot in self.store.slots_between(job, iso(first), iso(last))
        }
        todo, settled = catch_up.walk(
            due, existing, lambda one: catch_up.decide(one, head, policy, now)
        )
        for one, action in todo:
            if not self.has_time():
                return
            self._act(one, action, policy)
        if settled is not None:
            self._settle(job, settled)

    def _act(self, due: Due, action: catch_up.Action, policy: catch_up.Policy) -> None:
        if action == "run":
            self._run(due)
            return
        state, reason = ("skipped", "paused") if action == "skip" else ("missed", "undelivered")
        key = RunKey(due.entry.job, iso(due.slot))
        values: dict[str, records.Value] = {
            "state": state,
            "reason": reason,
            "cause": "catch_up",
            "now": self.now_ms,
            "expires_at": (self.now_ms + policy.retention_ms) // 1000,
        }
        if self.store.write(key, protocol.TRACE, values) is None:
            return  # it was delivered after all
        self.counts[state] += 1
        self.log.warning(
            "A slot was not run", extra={"job": key.job, "slot": key.slot, "outcome": state}
        )
        metric: metrics.Metric = "SlotsSkipped" if state == "skipped" else "SlotsMissed"
        fields = {"slot": key.slot, "instance": key.job, "reason": reason}
        metrics.emit({metric: 1}, job=key.job, fields=fields)

    def _run(self, due: Due) -> None:
        event: dict[str, Any] = {
            "job": due.entry.job,
            "slot": iso(due.slot),
            "schedule": due.entry.arn,
            "cause": "catch_up",
        }
        if due.entry.params:
            event["params"] = dict(due.entry.params)
        fault = dispatch.invoke(self.store, due.entry.function, event)
        if fault is None:
            self.counts["sent"] += 1
        else:
            self._report(
                f"a slot that was not delivered could not be run: {fault}",
                job=due.entry.job,
                slot=iso(due.slot),
            )

    def _settle(self, job: str, until: datetime) -> None:
        values: dict[str, records.Value] = {"checked_until": to_ms(until)}
        head = self.store.write_head(job, gate.CHECKED, values)
        if head is not None:
            self.memory.heads[job] = head


def _never(_run: object) -> None:
    raise StoreError("the resumer runs no handler")


if "AWS_LAMBDA_RUNTIME_API" in os.environ:
    warm_up()
