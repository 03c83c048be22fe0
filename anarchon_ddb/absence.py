"""Why a slot has left no trace: a pure decision, for ``explain``.

No I/O, no clock, no environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from anarchon_ddb import catch_up, gate
from anarchon_ddb.clock import from_ms, iso, to_ms
from anarchon_ddb.wording import moment, relative, span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, tzinfo

    from anarchon_ddb.listing import Registered
    from anarchon_ddb.records import Head


@dataclass(frozen=True, slots=True)
class Absence:
    """What is told of a slot without a run."""

    headline: str
    told: tuple[str, ...] = ()
    comes_next: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question, and what is known."""

    entries: tuple[Registered, ...]
    head: Head
    job: str
    slot: datetime
    now_ms: int
    zone: tzinfo

    @property
    def now(self) -> datetime:
        return from_ms(self.now_ms)

    @property
    def run(self) -> str:
        return f"anarchon-ddb run {self.job} --slot {iso(self.slot)}"

    @property
    def entry(self) -> Registered | None:
        """The schedule that has the slot; a rate's slots are those that were delivered."""
        for entry in self.entries:
            if entry.schedule.period is not None or entry.schedule.slot_of(self.slot) == self.slot:
                return entry
        return None


def explain(
    entries: Sequence[Registered] | None,
    head: Head,
    job: str,
    slot: datetime,
    now_ms: int,
    zone: tzinfo,
) -> Absence:
    """Say why there is no run of a slot, and what will become of it.

    Parameters
    ----------
    entries : sequence of Registered or None
        The job's schedules; None if the registry was not asked.
    """
    asked = _Asked(tuple(entries or ()), head, job, slot, now_ms, zone)
    retention_ms = catch_up.policy_of(head).retention_ms
    if to_ms(slot) < now_ms - retention_ms:
        return Absence(
            "no run is kept",
            ((f"It is {span(now_ms - to_ms(slot))} old; a run is deleted {span(retention_ms)} "
             "after its end, so whether it ran can't be told any more."),),
        )  # fmt: skip
    if entries is None:
        return Absence(
            "there is no run of it",
            ("Whether it was due is not known: the schedules were not looked up.",),
            commands=(f"anarchon-ddb explain {job} {iso(slot)} --stack STACK", asked.run),
        )
    entry = asked.entry
    if entry is None:
        return _not_due(asked)
    if slot > asked.now:
        return _to_come(asked, entry)
    return _was_due(asked, entry)


def _not_due(asked: _Asked) -> Absence:
    if not asked.entries:
        return Absence(
            "the job is not known",
            (f"No schedule of the stack names {asked.job}, and there is no run of this slot.",),
            commands=("anarchon-ddb jobs",),
        )
    told = []
    for entry in asked.entries:
        before, after = entry.schedule.previous(asked.slot), entry.schedule.next(asked.slot)
        near = " and ".join(moment(at, asked.zone) for at in (before, after) if at is not None)
        told.append(
            f"Schedule {entry.name} ({entry.schedule.describe()}) has its slots nearest to it at "
            f"{near}."
            if near
            else f"Schedule {entry.name} ({entry.schedule.describe()}) has no slot at all."
        )
    return Absence("it is not due at that time", tuple(told))


def _to_come(asked: _Asked, entry: Registered) -> Absence:
    if not entry.is_enabled:
        return _disabled(entry)
    if asked.head.paused_until > to_ms(asked.slot):
        return Absence(
            f"it is due {relative(to_ms(asked.slot), asked.now_ms)}",
            comes_next=("The job is paused until after it: it will be skipped.",),
            commands=(f"anarchon-ddb unpause {asked.job}",),
        )
    return Absence(
        f"it is due {relative(to_ms(asked.slot), asked.now_ms)}",
        comes_next=("EventBridge delivers it then.",),
    )


def _disabled(entry: Registered) -> Absence:
    return Absence(
        "its schedule is disabled",
        (f"Schedule {entry.name} is DISABLED: nothing fires it, and nothing is caught up.",),
        commands=("# enable the schedule in template.yaml and deploy",),
    )


def _was_due(asked: _Asked, entry: Registered) -> Absence:
    if not entry.is_enabled:
        return _disabled(entry)
    if asked.slot <= entry.since:
        return Absence(
            "the schedule was not there yet",
            ((f"Schedule {entry.name} was made or last changed at {moment(entry.since, asked.zone)}"
             ", after this slot: what was due before is not known."),),
            comes_next=("Nothing: the resumer does not catch up what came before.",),
            commands=(asked.run,),
        )  # fmt: skip
    if entry.schedule.period is not None:
        return Absence(
            "there is no run of it",
            ("The slots of a rate are those that EventBridge delivered, and this is none.",),
            commands=(f"anarchon-ddb runs {asked.job}",),
        )
    if gate.is_paused(asked.head, asked.now_ms) or catch_up.was_paused(asked.head, asked.slot):
        return Absence(
            "the job was paused" if not gate.is_paused(asked.head, asked.now_ms)
            else "the job is paused",
            comes_next=("The resumer records it as skipped (paused).",),
            commands=(f"anarchon-ddb unpause {asked.job}", asked.run),
        )  # fmt: skip
    return _undelivered(asked, entry)


def _undelivered(asked: _Asked, entry: Registered) -> Absence:
    settled = asked.slot + timedelta(seconds=catch_up.SETTLE_S + entry.flexible_s)
    late = relative(to_ms(asked.slot), asked.now_ms)
    if asked.now < settled:
        return Absence(
            f"it was due {late} and has not been claimed yet",
            ("EventBridge delivers within a minute and its flexible window.",),
            (f"If it has not come by {moment(settled, asked.zone)}, the resumer sees to it.",),
        )
    policy = catch_up.policy_of(asked.head)
    decided = catch_up.decide(catch_up.Due(asked.slot, entry), asked.head, policy, asked.now)
    comes_next = {
        "run": f"The resumer runs it (catch_up: {policy.catch_up}), within a minute or so.",
        "miss": f"The resumer records it as missed (catch_up: {policy.catch_up}).",
        "skip": "The resumer records it as skipped (paused).",
        "leave": f"EventBridge may still deliver it. Else the resumer records it as missed "
        f"(catch_up: {policy.catch_up}).",
    }[decided]
    return Absence(
        f"it was due {late} and was never delivered",
        ("No invocation has claimed it: it was not delivered, or the function could not start.",),
        (comes_next, ("If that does not happen, look at the resumer's log and at the dead-letter "
         "queue of the schedule.")),
        (asked.run,),
    )  # fmt: skip
