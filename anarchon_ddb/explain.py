"""The story of one slot, in plain sentences: what happened, why, what comes next, what to do.

Also of a slot that left no run: not due, yet to come, on its way, paused, missed, before the
schedule was there, or deleted by retention. For people: nothing is written and nothing printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from anarchon_ddb import absence, gate, history, protocol, records
from anarchon_ddb.clock import iso, to_ms
from anarchon_ddb.records import Damaged, Head, RunRecord
from anarchon_ddb.schema import RunKey
from anarchon_ddb.wording import CAUSES, ENDS, REASONS, clock_time, moment, relative, span
from anarchon_ddb.zones import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, tzinfo

    from anarchon_ddb.history import Row
    from anarchon_ddb.listing import Registered
    from anarchon_ddb.reading import ReadingStore


@dataclass(frozen=True, slots=True)
class Story:
    """What can be told of a slot."""

    job: str
    slot: str
    headline: str
    told: tuple[str, ...]
    """What happened, oldest first."""
    comes_next: tuple[str, ...]
    """What happens by itself."""
    commands: tuple[str, ...]
    """What a person may do now."""
    row: Row | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read for a story, each item consistently."""

    job: str
    slot: datetime
    now_ms: int
    entries: tuple[Registered, ...] | None
    """The job's schedules; None if the registry was not asked."""
    head: Head
    row: Row | None
    active: RunRecord | None
    """The run that has the gate, where the slot waits for it."""

    @property
    def zone(self) -> tzinfo:
        """The clock that the job's schedule is read on."""
        return load(self.entries[0].schedule.timezone) if self.entries else UTC

    @property
    def name(self) -> str:
        """Job and slot, as a command takes them."""
        return f"{self.job} {iso(self.slot)}"

    @property
    def is_paused(self) -> bool:
        """Whether nothing of the job runs now."""
        return gate.is_paused(self.head, self.now_ms)

    def at(self, moment_ms: int) -> str:
        """Return an instant, its date only where it is not the slot's."""
        return clock_time(moment_ms, self.slot)


def explain(
    store: ReadingStore, entries: Sequence[Registered] | None, job: str, slot: datetime
) -> Story:
    """Return the story of a slot.

    Parameters
    ----------
    entries : sequence of Registered, optional
        The job's schedules; None if the registry is not known.
    slot : datetime
        Aware.
    """
    facts = _read(store, entries, job, slot)
    if facts.row is None:
        found = absence.explain(facts.entries, facts.head, job, slot, facts.now_ms, facts.zone)
        return Story(job, iso(slot), found.headline, (_due(facts), *found.told),
                     found.comes_next, found.commands, None)  # fmt: skip
    if isinstance(facts.row, Damaged):
        return _damaged(facts, facts.row)
    return _run_story(facts, facts.row)


def _read(
    store: ReadingStore, entries: Sequence[Registered] | None, job: str, slot: datetime
) -> Facts:
    rows = tuple(store.read_runs([RunKey(job, iso(slot))]))
    found = store.read_heads([job])[job]
    head = found if isinstance(found, Head) else Head(job)
    active = None
    if head.active_slot not in {None, iso(slot)} and iso(slot) in head.waiting:
        others = tuple(store.read_runs([RunKey(job, head.active_slot or "")]))
        active = others[0] if others and isinstance(others[0], RunRecord) else None
    known = None if entries is None else tuple(entries)
    row = rows[0] if rows else None
    return Facts(job, slot, store.clock.now_ms(), known, head, row, active)


def _damaged(facts: Facts, row: Damaged) -> Story:
    return Story(
        facts.job,
        iso(facts.slot),
        "its item in the table is damaged",
        (_due(facts), f"{row.problem}."),
        ("Nothing runs it: the resumer reports it in each pass and goes on with the others.",),
        (f"look at the item in DynamoDB: pk job#{facts.job}, sk run#{iso(facts.slot)}",),
        row,
    )


def _due(facts: Facts) -> str:
    when = f"It is the slot of {moment(facts.slot, facts.zone)}"
    if facts.entries is None:
        return f"{when}; the schedule was not looked up (give --stack)."
    if not facts.entries:
        return f"{when}; no schedule of the stack names this job."
    for entry in facts.entries:
        if entry.schedule.period is not None or entry.schedule.slot_of(facts.slot) == facts.slot:
            return f"{when}, from schedule {entry.name}: {entry.schedule.describe()}."
    return f"{when}, which none of the job's schedules has."


def _run_story(facts: Facts, record: RunRecord) -> Story:
    told = [_due(facts), _delivery(facts, record), *_attempts(facts, record)]
    told += _progress(facts, record)
    if record.error and record.state != "succeeded":
        told.append(f"The last error: {record.error}")
    if records.is_open(record):
        told.append(_holder(facts, record))
    comes_next = _next_of(facts, record)
    return Story(
        facts.job,
        record.slot,
        _headline(facts, record),
        tuple(told),
        comes_next,
        _commands(facts, record),
        record,
    )


def _headline(facts: Facts, record: RunRecord) -> str:
    if records.is_open(record):
        return history.condition(record, facts.now_ms)
    why = REASONS.get(record.reason or "", record.reason or "no reason is stored")
    return f"{record.state}: {why}"


def _delivery(facts: Facts, record: RunRecord) -> str:
    cause = CAUSES.get(record.cause, record.cause)
    if not record.attempt:
        at = "" if record.finished_at is None else f" at {facts.at(record.finished_at)}"
        return f"It was never delivered; the resumer recorded it{at}."
    first = history.first_claimed_at(record)
    if first is None:
        return f"{cause.capitalize()}; when first, is not kept any more."
    late_ms = first - to_ms(facts.slot)
    late = f", {span(late_ms)} after it was due" if late_ms >= 1_000 else ""
    return f"{cause[0].upper()}{cause[1:]}; first claimed at {facts.at(first)} UTC{late}."


def _attempts(facts: Facts, record: RunRecord) -> list[str]:
    past = history.attempts(record, facts.now_ms)
    sentences = []
    if past and past[0].number > 1:
        sentences.append(
            f"{_numbers(past[0].number - 1)} not told: the last {records.HISTORY_LIMIT} are kept."
        )
    came_from = ""
    for attempt in past:
        under_way = record.state == "running" and attempt.number == record.attempt
        sentences.append(_attempt(facts, record, attempt, came_from, under_way=under_way))
        came_from = attempt.place or came_from
    return sentences


def _numbers(last: int) -> str:
    return "Attempt 1 is" if last == 1 else f"Attempts 1 to {last} are"


def _attempt(
    facts: Facts, record: RunRecord, attempt: records.Attempt, came_from: str, *, under_way: bool
) -> str:
    start = facts.at(attempt.claimed_at_ms)
    if under_way:
        end = "" if history.is_held(record, facts.now_ms) else ": its lease ran out"
        return f"Attempt {attempt.number} since {start}{end}{_way(attempt, came_from)}."
    took = span(attempt.ended_at_ms - attempt.claimed_at_ms)
    how = ENDS.get(attempt.end, attempt.end)
    return (
        f"Attempt {attempt.number}, {start} to {facts.at(attempt.ended_at_ms)} ({took}): "
        f"{how}{_way(attempt, came_from)}."
    )


def _way(attempt: records.Attempt, came_from: str) -> str:
    if attempt.end in {"waited", "skipped", "released"}:
        return ""
    if attempt.place == came_from:
        return "; stored no new checkpoint" if came_from else "; stored no checkpoint"
    return f"; from {came_from or 'the beginning'} to {attempt.place or 'the beginning'}"


def _progress(facts: Facts, record: RunRecord) -> list[str]:
    if record.checkpoint is None:
        return []
    done = "" if record.done is None else f"{record.done:,} done"
    if record.done is not None and record.total:
        done = f"{record.done:,} of {record.total:,} done ({100 * record.done // record.total} %)"
    saved = "" if record.checkpoint_at is None else f", saved {_ago(facts, record.checkpoint_at)}"
    cursor = record.checkpoint if len(record.checkpoint) <= 120 else f"{record.checkpoint[:120]}…"
    return [f"Its checkpoint is {cursor}{saved}{'; ' if done else ''}{done}."]


def _ago(facts: Facts, at_ms: int) -> str:
    return f"at {facts.at(at_ms)} UTC ({relative(at_ms, facts.now_ms)})"


def _holder(facts: Facts, record: RunRecord) -> str:
    if record.state != "running":
        return "Nobody holds it."
    until = f"{facts.at(record.lease_until)} UTC ({relative(record.lease_until, facts.now_ms)})"
    function = record.function.rpartition(":")[2] or "a function"
    if record.lease_until > facts.now_ms:
        return (
            f"Attempt {record.attempt} holds it in {function} (request {record.request_id}) until "
            f"{until}; each save and each heartbeat prolong that."
        )
    return (
        f"Its holder, {function} (request {record.request_id}), did not renew: its lease ended "
        f"{until}."
    )


def _next_of(facts: Facts, record: RunRecord) -> tuple[str, ...]:
    if not records.is_open(record):
        if record.expires_at is None:
            return ()
        kept = moment(record.expires_at * 1000, facts.zone)
        return (f"Nothing: it has ended. It is kept until {kept}.",)
    if facts.is_paused:
        return (_paused_text(facts),)
    if record.stop_requested == "cancel":
        return ("A cancel was asked for: it ends at its holder's next save, or its next claim.",)
    if record.state == "running":
        return (_after_the_lease(facts, record),)
    if iso(facts.slot) in facts.head.waiting:
        return (_queue(facts),)
    if record.lease_until > facts.now_ms:
        until = f"{facts.at(record.lease_until)} UTC ({relative(record.lease_until, facts.now_ms)})"
        return (f"It is tried again after its backoff, from {until} on, by the resumer.",)
    return ("The resumer or the job's next tick goes on with it, within a minute or so.",)


def _after_the_lease(facts: Facts, record: RunRecord) -> str:
    free_ms = record.lease_until + protocol.CLOCK_SKEW_MS
    if record.lease_until > facts.now_ms:
        return (
            "It goes on. Should its holder die, the run is taken over from its checkpoint once "
            f"the lease has run out, from {facts.at(free_ms)} UTC on."
        )
    if free_ms > facts.now_ms:
        return f"It can be taken over {relative(free_ms, facts.now_ms)}, by the resumer."
    return "The resumer or the job's next tick takes it over, within a minute or so."


def _paused_text(facts: Facts) -> str:
    note = f" ({facts.head.pause_note})" if facts.head.pause_note else ""
    if facts.head.paused_until >= gate.FOREVER_MS:
        return f"The job is paused{note}: nothing happens until a person unpauses it."
    until = moment(facts.head.paused_until, facts.zone)
    return f"The job is paused{note} until {until}; it goes on then."


def _queue(facts: Facts) -> str:
    ahead = sorted(facts.head.waiting).index(iso(facts.slot))
    text = f"It waits for {facts.head.active_slot or 'the gate'}"
    if facts.active is not None:
        text += f" ({history.condition(facts.active, facts.now_ms)})"
    return f"{text}, with {ahead} ahead of it." if ahead else f"{text}; it is the next one."


def _commands(facts: Facts, record: RunRecord) -> tuple[str, ...]:
    name = facts.name
    if history.is_held(record, facts.now_ms):
        return (
            f"anarchon-ddb watch {facts.job}",
            f"anarchon-ddb cancel {name}",
            f"anarchon-ddb release {name}    (only if its holder is known to be dead)",
        )
    if facts.is_paused and records.is_open(record):
        return (f"anarchon-ddb unpause {facts.job}", f"anarchon-ddb cancel {name}")
    if records.is_open(record):
        return (f"anarchon-ddb retry {name}", f"anarchon-ddb cancel {name}")
    if record.state == "missed":
        return (f"anarchon-ddb run {facts.job} --slot {record.slot}",)
    if record.state == "succeeded":
        return (f"anarchon-ddb retry {name} --force --from-start    (it all runs once more)",)
    return (f"anarchon-ddb retry {name}", f"anarchon-ddb retry {name} --from-start")
