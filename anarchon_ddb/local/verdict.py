"""What the whole play showed: each promise, whether it held, and the evidence.

Judged are the slots that were due while it played. What can't be told from outside is said to be
not judged, never to hold.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from anarchon_ddb.clock import iso
from anarchon_ddb.records import OPEN_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from anarchon_ddb.local.history import Line
    from anarchon_ddb.local.referee import Referee
    from anarchon_ddb.local.stack import ScheduleSpec, Stack

RESUMER = "anarchon_ddb.resumer.handler"
"""Its schedule is a tick: a tick that is lost is made up for by the next."""

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, judged."""

    number: int
    text: str
    holds: bool | None
    """None where nothing happened that it is about."""
    evidence: str
    broken: tuple[str, ...] = ()


@dataclass(slots=True)
class Ledger:
    """What became of the slots of one schedule."""

    schedule: str
    function: str
    is_resumer: bool
    job: str | None
    """None for a function that does not use the package."""
    due: int = 0
    worked: int = 0
    """Slots that were worked on to the end: once for a job, at least once for a plain function."""
    repeated: int = 0
    """Of a plain function: slots that it worked on more than once."""
    other: dict[str, int] = field(default_factory=dict)
    """Slots of a job that ended in another state."""
    last_error: str | None = None
    """Of the last slot whose run failed."""
    absent: list[str] = field(default_factory=list)
    """Slots that left no trace, or that a plain function never worked on to the end."""
    open: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Slots that left no trace, where one may still come: a delivery, a retry, a resumer's tick."""

    def as_dict(self) -> dict[str, Any]:
        """Return it for the JSON summary."""
        return asdict(self)


@dataclass(slots=True)
class Tally:
    """Counts what the history tells; one reader of it."""

    events: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    cold: int = 0
    late: int = 0
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Invocations that returned, by schedule and slot."""
    _requests: dict[str, tuple[str, str]] = field(default_factory=dict)
    _lost: set[tuple[str, str]] = field(default_factory=set)
    _under_way: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many deliveries of a slot are neither returned nor given up."""

    @property
    def kills(self) -> int:
        """How many invocations chaos killed."""
        return sum(count for event, count in self.events.items() if event.startswith("killed "))

    def is_lost(self, schedule: str, slot: str) -> bool:
        """Tell whether nothing more comes of a slot: each delivery of it was given up."""
        return (schedule, slot) in self._lost and not self._under_way[schedule, slot]

    def read(self, line: Line) -> None:
        """Take one line of the history into account."""
        event = line["event"]
        self.events[event] += 1
        if event == "delivered":
            slot = self._requests[line["request"]] = (line["schedule"], line["slot"])
            self._under_way[slot] += 1
            self.events["duplicate"] += line["delivery"] > 1
            self.late += line["late_s"] > 60
        elif event == "undelivered":
            self._lost.add((line["schedule"], line["slot"]))
        elif event == "given up" and line["request"] in self._requests:
            slot = self._requests[line["request"]]
            self._lost.add(slot)
            self._under_way[slot] -= 1
        elif event == "ended":
            self.ends[line["end"]] += 1
            self.cold += line["cold"]
            if line["end"] == "returned" and line["request"] in self._requests:
                slot = self._requests[line["request"]]
                self.done[slot] += 1
                self._under_way[slot] -= 1


def ledgers(
    stack: Stack, referee: Referee, tally: Tally, start: datetime, end: datetime, *, is_early: bool
) -> list[Ledger]:
    """Return what became of each slot that was due from ``start`` to before ``end``.

    Parameters
    ----------
    is_early : bool
        Whether what is under way may still go on: then nothing of it is missed yet.
    """
    return [
        _ledger(stack, spec, referee, tally, start, end, is_early=is_early)
        for spec in stack.schedules.values()
        if spec.enabled
    ]


def job_of(spec: ScheduleSpec, referee: Referee) -> str | None:
    """Return the job that a schedule fires; None where its function does not use the package."""
    try:
        given = json.loads(spec.input or "")
    except ValueError:
        given = None
    if isinstance(given, dict) and "job" in given and "slot" in given:
        return str(given["job"])
    jobs = {job for (job, _), seen in referee.runs.items() if seen.record.schedule == spec.arn}
    return min(jobs, default=None)


def _ledger(
    stack: Stack, spec: ScheduleSpec, referee: Referee, tally: Tally, start: datetime,
    end: datetime, *, is_early: bool,
) -> Ledger:  # fmt: skip
    job = job_of(spec, referee)
    is_resumer = stack.functions[spec.function].handler == RESUMER
    ledger = Ledger(spec.name, spec.function, is_resumer, job)
    for slot in map(iso, spec.slots(start).between(start, end)):
        ledger.due += 1
        if job is None:
            done = tally.done[spec.name, slot]
            ledger.worked += done > 0
            ledger.repeated += done > 1
            if not done:
                may_come = is_early and not tally.is_lost(spec.name, slot)
                (ledger.waiting if may_come else ledger.absent).append(slot)
            continue
        seen = referee.runs.get((job, slot))
        if seen is None:
            (ledger.waiting if is_early else ledger.absent).append(slot)
        elif seen.record.state == "succeeded":
            ledger.worked += 1
        elif seen.record.state in OPEN_STATES:
            ledger.open.append(slot)
        else:
            ledger.last_error = seen.record.error or ledger.last_error
            ledger.other[seen.record.state] = ledger.other.get(seen.record.state, 0) + 1
    return ledger


def promises(
    referee: Referee, tally: Tally, found: Iterable[Ledger], *, is_early: bool
) -> list[Promise]:
    """Return the promises of the package, judged by what was seen."""
    jobs = [ledger for ledger in found if ledger.job is not None]
    counts = referee.counts
    ended = sum(count for name, count in counts.items() if name.startswith("ended "))
    due = sum(ledger.due for ledger in jobs)
    still_open = [f"{one.job} {slot}" for one in jobs for slot in one.open]
    absent = [f"{one.job} {slot}" for one in jobs for slot in one.absent]
    waiting = sum(len(one.waiting) for one in jobs)
    traced = due - len(absent) - waiting
    kills = tally.kills + tally.ends["timed_out"]
    written = counts["claims"] + counts["saves"] + ended
    saves = counts["saves past the gate"]
    judge = partial(_judged, referee.broken)
    refused, resumed = counts["refused"], counts["resumed"]
    return [
        judge(
            1, "One live holder", counts["claims"],
            f"{counted(counts['claims'], 'claim')}, {counted(counts['takeovers'], 'takeover')}; "
            "a takeover only after the lease before it had run out",
        ),
        judge(
            2, "One run per slot", ended,
            f"{counted(tally.events['delivered'], 'delivery', 'deliveries')}, "
            f"{tally.events['duplicate']} of them once more; "
            f"{counted(ended, 'run')} ended, each once",
        ),
        judge(
            3, "One run at a time past the gate", saves,
            f"{counted(saves, 'checkpoint')} of gated jobs, "
            "each saved by the run that had the gate",
        ),
        judge(
            4, "A checkpoint moves only for its holder", counts["saves"],
            f"{counted(counts['saves'], 'save')}, each by the sandbox that held the run; "
            f"{counted(refused, 'write')} refused",
        ),
        judge(
            5, "After a kill, work goes on from the checkpoint", resumed,
            f"{counted(kills, 'kill')}; "
            f"{counted(resumed, 'attempt')} began at the checkpoint saved last",
        ),
        judge(
            6, "Nothing is stuck", traced,
            f"{counted(traced, 'run')}, {len(still_open)} open at the end",
            () if is_early else still_open,
        ),
        judge(
            7, "Every slot that was due left a trace", due - waiting,
            f"{counted(due, 'slot')} due, {traced} with a trace"
            + (f", {waiting} under way" if waiting else ""), absent,
        ),
        judge(
            8, "Nothing stored is lost", written,
            f"{counted(written, 'write')} seen, none deleted or replaced an item",
        ),
    ]  # fmt: skip


def _judged(
    against: Mapping[int, list[str]],
    number: int,
    text: str,
    seen: int,
    evidence: str,
    found: Iterable[str] = (),
) -> Promise:
    broken = (*against.get(number, ()), *found)
    if broken:
        more = len(broken) - _MOST_NAMED
        named = (*broken[:_MOST_NAMED], *((f"and {more} more",) if more > 0 else ()))
        return Promise(number, text, holds=False, evidence=evidence, broken=named)
    return Promise(number, text, holds=True if seen else None, evidence=evidence)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun.

    Examples
    --------
    >>> counted(1, "slot"), counted(1200, "delivery", "deliveries")
    ('1 slot', '1,200 deliveries')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def import_failures(faults: Mapping[str, str]) -> list[str]:
    """Return, in words, what can't be imported."""
    return [f"{function} can't be imported: {error}" for function, error in faults.items()]


def failures(summary: Mapping[str, Any]) -> list[str]:
    """Return, in words, what makes a play end with exit code 1; empty if nothing does."""
    found = [
        f"promise {one['number']} does not hold: {one['text']}"
        for one in summary["promises"]
        if one["holds"] is False
    ]
    for ledger in summary["schedules"]:
        if failed := ledger["other"].get("failed"):
            found.append(
                f"{counted(failed, 'run')} of {ledger['job']} failed; "
                f"the last error: {ledger['last_error']}"
            )
        if ledger["job"] is None and ledger["absent"] and not ledger["is_resumer"]:
            last = summary["last_errors"].get(ledger["function"])
            logs = PurePath(summary["history"]["path"]).parent
            found.append(
                f"{counted(len(ledger['absent']), 'slot')} of {ledger['schedule']} "
                f"never worked on to the end by {ledger['function']}"
                + (f"; its last error: {last['error']}; log: {logs / last['log']}" if last else "")
            )
    found += import_failures(summary["faults"])
    if summary["check"] not in {None, 0}:
        found.append(f"the check ended with exit code {summary['check']}")
    return found
