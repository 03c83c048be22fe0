"""What a person may do to a run or a job: each one conditional write, keyed on what was read.

Nothing here bypasses the protocol: a retried run goes through claim and gate like any other, and a
released holder stays fenced. Two people who do the same at once: one does it, the other is told.
No printing; the command line is built on top.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from anarchon_ddb import codec, gate, interventions, protocol, records
from anarchon_ddb.clock import iso, to_ms
from anarchon_ddb.errors import RefusedError
from anarchon_ddb.records import Attempt, Head, RunRecord, Value, open_shard
from anarchon_ddb.schema import HeadKey, RunKey, pack_attempts

if TYPE_CHECKING:
    from datetime import datetime

    from anarchon_ddb.protocol import Write
    from anarchon_ddb.store import Store

DEFAULT_RETENTION_MS = 30 * 86_400_000


def retry(
    store: Store, job: str, slot: datetime, *, from_start: bool = False, force: bool = False
) -> RunRecord:
    """Make a run claimable again, its tries beginning anew; its checkpoint and history stay.

    Parameters
    ----------
    store : Store
        The table.
    job : str
        The job, or an instance of it.
    slot : datetime
        Aware.
    from_start : bool
        Forget the checkpoint.
    force : bool
        Also a run that has succeeded.

    Returns
    -------
    RunRecord
        The run as it was before.

    Raises
    ------
    RefusedError
        If there is no such run, if it is being worked on, if it succeeded and ``force`` is not
        given, or if it changed meanwhile.
    """
    record = _read(store, job, slot)
    if _is_held(store, record):
        raise RefusedError(
            f"{_name(record)} is being worked on (attempt {record.attempt}): cancel it, or "
            "release it if its holder is known to be dead"
        )
    if record.state == "succeeded" and not force:
        raise RefusedError(f"{_name(record)} has succeeded; to run it once more, force it")
    values: dict[str, Value] = {
        "shard": open_shard(record.job, record.slot),
        "now": store.clock.now_ms(),
    }
    _write(store, record, interventions.retry(from_start=from_start), values)
    return record


def cancel(
    store: Store, job: str, slot: datetime, *, retention_ms: int = DEFAULT_RETENTION_MS
) -> RunRecord:
    """End a run: at once if nobody holds it, else at its holder's next save or renewal.

    Raises
    ------
    RefusedError
        If there is no such run, if it has ended, or if it changed meanwhile.
    """
    record = _read(store, job, slot)
    if not records.is_open(record):
        raise RefusedError(f"{_name(record)} has ended already: {record.state} ({record.reason})")
    if _is_held(store, record):
        _ask_to_stop(store, record, "cancel")
        return record
    now_ms = store.clock.now_ms()
    values: dict[str, Value] = {
        "reason": "cancelled",
        "now": now_ms,
        "expires_at": (now_ms + retention_ms) // 1000,
    }
    _write(store, record, interventions.CANCEL, values)
    _leave_gate(store, record)
    return record


def release(store: Store, job: str, slot: datetime) -> RunRecord:
    """Take the lease from a holder that is known to be dead, before it runs out.

    The attempt is raised, so a holder that is not dead after all can't write any more.

    Raises
    ------
    RefusedError
        If there is no such run, if nobody holds it, or if it changed meanwhile.
    """
    record = _read(store, job, slot)
    if record.state != "running":
        raise RefusedError(f"{_name(record)} is {record.state}: nobody holds it")
    now_ms = store.clock.now_ms()
    place = records.place(record.checkpoint, record.done)
    taken = Attempt(record.attempt, record.claimed_at, now_ms, "lost", record.seq, place)
    freed = Attempt(record.attempt + 1, now_ms, now_ms, "released", record.seq, place)
    past = records.with_attempt(records.with_attempt(records.history(record), taken), freed)
    values: dict[str, Value] = {
        "next_attempt": record.attempt + 1,
        "now": now_ms,
        "attempts": pack_attempts(past),
        "read_owner": record.owner,
    }
    _write(store, record, interventions.RELEASE, values)
    return record


def rewind(store: Store, job: str, slot: datetime, to: object) -> RunRecord:
    """Set the cursor of a run that nobody holds; it goes on from there.

    Parameters
    ----------
    to : object
        A cursor as the handler saves it.

    Raises
    ------
    CheckpointError
        If the handler could not get it back as it is. The stored one stays.
    RefusedError
        If there is no such run, if it is neither open nor failed, if it is or was held (a holder
        that is not dead after all would move the cursor on again), or if it changed meanwhile.
    """
    if to is None:
        raise RefusedError("null is no cursor: to begin anew, retry the run from its start")
    text = codec.dumps(to)
    record = _read(store, job, slot)
    if record.state == "running":
        raise RefusedError(
            f"{_name(record)} is running (attempt {record.attempt}): cancel it, or release it if "
            "its holder is known to be dead, and rewind it then"
        )
    if not records.is_open(record) and record.state != "failed":
        raise RefusedError(
            f"{_name(record)} has ended as {record.state}: retry it first, then rewind it"
        )
    values: dict[str, Value] = {"checkpoint": text, "now": store.clock.now_ms()}
    _write(store, record, interventions.REWIND, values)
    return record


def pause(
    store: Store, job: str, *, note: str = "", until: datetime | None = None
) -> list[RunRecord]:
    """Pause a job: no new slot, takeover or resume is run; a batch in hand ends first.

    The pause is in the gate's own condition, so a deploy does not undo it.

    Parameters
    ----------
    note : str
        Why, for those who find it; at most 200 characters are kept.
    until : datetime, optional
        Aware; without it the pause ends with ``unpause``.

    Returns
    -------
    list of RunRecord
        The open runs that were told to stop.

    Raises
    ------
    RefusedError
        If the gate changed meanwhile: read it again and decide anew.
    """
    head = store.read_head(job)
    values: dict[str, Value] = {
        "until": gate.FOREVER_MS if until is None else to_ms(until),
        "now": store.clock.now_ms(),
        "note": note[:200],
    }
    _write_head(store, head, gate.pause(fresh=head.rev == 0), values)
    return [record for record in _open_runs(store, job) if _rest(store, record)]


def unpause(store: Store, job: str) -> None:
    """Let a job run again: open runs go on, slots that were skipped stay so.

    Raises
    ------
    RefusedError
        If the job is not paused, or the gate changed meanwhile.
    """
    head = store.read_head(job)
    if not head.paused_until:
        raise RefusedError(f"{job} is not paused")
    _write_head(store, head, gate.UNPAUSE, {"now": store.clock.now_ms()})


def _read(store: Store, job: str, slot: datetime) -> RunRecord:
    record = store.read_run(RunKey(job, iso(slot)))
    if record is None:
        raise RefusedError(f"there is no run of {job} for {iso(slot)}")
    return record


def _is_held(store: Store, record: RunRecord) -> bool:
    return record.state == "running" and not protocol.is_claimable(record, store.clock.now_ms())


def _name(record: RunRecord) -> str:
    return f"{record.job} {record.slot}"


def _write(store: Store, record: RunRecord, write: Write, values: dict[str, Value]) -> None:
    as_read: dict[str, Value] = {
        "read_state": record.state,
        "read_attempt": record.attempt,
        "read_lease_until": record.lease_until,
    }
    wanted = {name: as_read[name] for name in as_read if f":{name}" in write.condition}
    if not _is_stored(store, RunKey(record.job, record.slot), write, {**values, **wanted}):
        raise RefusedError(f"{_name(record)} changed meanwhile, nothing was done: look at it again")


def _write_head(store: Store, head: Head, write: Write, values: dict[str, Value]) -> None:
    as_read: dict[str, Value] = {"rev": head.rev} if ":rev" in write.condition else {}
    if not _is_stored(store, HeadKey(head.job), write, {**values, **as_read}):
        raise RefusedError(f"the gate of {head.job} changed meanwhile, nothing was done")


def _is_stored(store: Store, key: RunKey | HeadKey, write: Write, values: dict[str, Value]) -> bool:
    """Send a person's write; tell whether it is stored, also if only its reply was lost.

    The SDK sends it again then, and the copy is refused by what the first one changed. Each write
    has a mark of its own, so that it is not taken for the same wish of somebody else.
    """
    mark = uuid4().hex[:16]
    marked = replace(write, sets=(*write.sets, "#mark = :mark"))
    granted = store.write(key, marked, {**values, "mark": mark})
    return granted is not None or store.read_mark(key) == mark


def _ask_to_stop(store: Store, record: RunRecord, how: str) -> None:
    _write(store, record, interventions.STOP, {"stop": how})


def _open_runs(store: Store, job: str) -> list[RunRecord]:
    """Read the open runs of a job, each consistently; the index only names candidates."""
    keys = (key for key in store.open_runs(gate.FOREVER_MS) if key.job == job)
    found = (store.read_run(key) for key in keys)
    return [record for record in found if record is not None and records.is_open(record)]


def _rest(store: Store, record: RunRecord) -> bool:
    """Tell a live holder to stop, or stop the clock of a run that nobody holds."""
    try:
        if record.state == "running":
            _ask_to_stop(store, record, "pause")
            return True
        if record.started_at:
            used = protocol.used_ms(record, store.clock.now_ms())
            _write(store, record, interventions.REST, {"used_ms": used})
    except RefusedError:
        pass  # it moved on meanwhile: the gate stops it at its next step
    return False


def _leave_gate(store: Store, record: RunRecord) -> None:
    """Take a run that was ended here out of the gate; whoever comes next would do it, too."""
    head = store.read_head(record.job)
    if record.slot in head.waiting:
        write, values = gate.waiting_without(head, record.slot)
        store.write_head(record.job, write, values)
    elif head.active_slot == record.slot:
        write, values, _ = gate.leaving(head, record.slot, head.active_attempt)
        store.write_head(record.job, write, values)
