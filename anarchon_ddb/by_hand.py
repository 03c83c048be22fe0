"""Running a slot by hand: the job's own function is invoked, and claims it like any other.

What the function would refuse is refused here first, with its reason: an asynchronous invocation
answers nothing. No printing; nothing is written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from anarchon_ddb import catch_up, codec, dispatch, gate, history, records
from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.errors import RefusedError, StoreError
from anarchon_ddb.events import parse_event
from anarchon_ddb.records import Damaged, Head, RunRecord
from anarchon_ddb.schema import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from anarchon_ddb.events import Cause
    from anarchon_ddb.listing import Registered
    from anarchon_ddb.reading import ReadingStore

POLL_S = 2.0
"""Between two looks at a run that is waited for."""

START_PATIENCE_MS = 120_000
"""How long an invocation that was accepted may take to claim its run."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends slots of one job to its function.

    Attributes
    ----------
    entries : tuple of Registered
        The job's schedules, empty if there are none or the registry is not known.
    """

    store: ReadingStore
    job: str
    entries: tuple[Registered, ...]
    head: Head
    function: str
    """ARN or name of the function that runs the job."""

    def entry_of(self, slot: datetime) -> Registered | None:
        """Return the schedule that has a slot."""
        for entry in self.entries:
            if entry.schedule.period is not None or entry.schedule.slot_of(slot) == slot:
                return entry
        return None

    def event(
        self, slot: datetime, cause: Cause, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the event that delivers a slot; by default with its schedule's own params.

        Raises
        ------
        InvalidEventError
            If the function would refuse it: older than the retention, or too far ahead.
        """
        entry = self.entry_of(slot) or next(iter(self.entries), None)
        event: dict[str, Any] = {"job": self.job, "slot": iso(slot), "cause": cause}
        if entry is not None and self.entry_of(slot) is not None:
            event["schedule"] = entry.arn
        given = params if params is not None else (entry.params if entry is not None else {})
        if given:
            event["params"] = dict(given)
        retention = timedelta(milliseconds=catch_up.policy_of(self.head).retention_ms)
        parse_event(event, now=from_ms(self.store.clock.now_ms()), retention=retention)
        return event

    def send(self, event: Mapping[str, Any]) -> None:
        """Invoke the function asynchronously.

        Raises
        ------
        StoreError
            If that can't be done.
        """
        fault = dispatch.invoke(self.store, self.function, event)
        if fault is not None:
            advice = (
                "Deploy the job, or its schedule, again"
                if fault.is_gone
                else "You need lambda:InvokeFunction on it"
                if fault.code == "AccessDeniedException"
                else "Nothing was sent; try again"
            )
            raise StoreError(f"{self.function} could not be invoked: {fault}. {advice}")


def caller(
    store: ReadingStore, job: str, entries: Sequence[Registered], *, even_paused: bool = False
) -> Caller:
    """Return who sends slots of a job: the function its schedule names, or its last run's.

    Parameters
    ----------
    even_paused : bool
        For one that sends nothing.

    Raises
    ------
    RefusedError
        If the job is paused, or nothing tells which function runs it.
    """
    found = store.read_heads([job])[job]
    head = found if isinstance(found, Head) else Head(job)
    if not even_paused and gate.is_paused(head, store.clock.now_ms()):
        note = f" ({head.pause_note})" if head.pause_note else ""
        raise RefusedError(
            f"{job} is paused{note}: the function would skip the slot. Unpause it first: "
            f"anarchon-ddb unpause {job}"
        )
    return Caller(store, job, tuple(entries), head, _function(store, job, entries))


def _function(store: ReadingStore, job: str, entries: Sequence[Registered]) -> str:
    if entries:
        return entries[0].function
    last = history.latest(store, job)
    if isinstance(last, RunRecord) and last.function:
        return last.function
    raise RefusedError(
        f"no function is known for {job}: it has no run yet and no schedule that was looked up. "
        "Give --stack, so that its schedule is; is the job's name right?"
    )


def run(
    caller: Caller, slot: datetime, params: Mapping[str, Any] | None = None, cause: Cause = "person"
) -> None:
    """Run a slot that has no run yet, or was missed.

    Raises
    ------
    RefusedError
        If there is a run of it: it is to be retried, or goes on by itself.
    InvalidEventError
        If the function would refuse it.
    StoreError
        If the function could not be invoked.
    """
    event = caller.event(slot, cause, params)
    _check_params(event)
    for row in caller.store.read_runs([RunKey(caller.job, iso(slot))]):
        _refuse_existing(row)
    caller.send(event)


def _check_params(event: Mapping[str, Any]) -> None:
    if event.get("params"):
        codec.dumps(event["params"], canonical=True)


def _refuse_existing(row: RunRecord | Damaged) -> None:
    name = f"{row.job} {row.slot}"
    if isinstance(row, Damaged):
        raise RefusedError(f"{row.problem}. Nothing can be run until it is mended or deleted")
    if row.state == "missed":
        return
    if records.is_open(row):
        raise RefusedError(
            f"{name} has a run already, which is {row.state}: it goes on by itself. "
            f"See: anarchon-ddb explain {name}"
        )
    raise RefusedError(
        f"{name} has run already: {row.state}. To run it again: anarchon-ddb retry {name}"
        + (" --force --from-start" if row.state == "succeeded" else "")
    )


def wait(
    store: ReadingStore,
    key: RunKey,
    look: Callable[[RunRecord | None], None],
    poll_s: float = POLL_S,
) -> RunRecord:
    """Wait until a run has ended; ``look`` is told how it stands.

    Raises
    ------
    RefusedError
        If nothing has claimed it after two minutes, its item is damaged, or the job was paused.
    """
    begun_ms = store.clock.now_ms()
    while True:
        rows = tuple(store.read_runs([key]))
        row = rows[0] if rows else None
        if isinstance(row, Damaged):
            raise RefusedError(row.problem)
        if row is not None and not records.is_open(row) and row.state != "missed":
            look(row)
            return row
        if (row is None or row.state == "missed") and (
            store.clock.now_ms() - begun_ms > START_PATIENCE_MS
        ):
            raise RefusedError(
                f"{key.job} {key.slot}: the function was invoked and has claimed nothing for 2 "
                "minutes. Look at its log: an error at its start, or its concurrency is used up"
            )
        look(row)
        if is_paused(store, key.job):
            raise RefusedError(f"{key.job} was paused meanwhile: it goes on when it is unpaused")
        store.clock.sleep(poll_s)


def is_paused(store: ReadingStore, job: str) -> bool:
    """Tell whether a job is paused now: then nothing of it that is waited for goes on."""
    head = store.read_heads([job])[job]
    return isinstance(head, Head) and gate.is_paused(head, store.clock.now_ms())
