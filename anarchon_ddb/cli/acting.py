"""``run``, ``retry``, ``cancel``, ``pause``, ``unpause``, ``release`` and ``rewind``.

Each is one conditional write, or one invocation of the job's own function. What can't be taken back
asks first.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from anarchon_ddb import by_hand, catch_up, codec, dispatch, history, operations
from anarchon_ddb.cli import shapes
from anarchon_ddb.cli.connection import Connection, connected
from anarchon_ddb.cli.options import JOB, SLOT, Json, Moment, yes_option
from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.errors import CheckpointError
from anarchon_ddb.records import Head
from anarchon_ddb.schema import RunKey
from anarchon_ddb.timeline import progress
from anarchon_ddb.wording import moment

if TYPE_CHECKING:
    from anarchon_ddb.by_hand import Caller
    from anarchon_ddb.records import RunRecord

SOON = "The resumer or the job's next tick goes on with it, within a minute or so."


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what can't be taken back.

    Raises
    ------
    click.UsageError
        If nobody is there to answer and ``--yes`` was not given.
    click.Abort
        If the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody is there to answer: in scripts, add --yes.")
    click.confirm(question, abort=True, err=True)


def _tell(on: Connection, told: str, **fields: Any) -> None:
    """Print what was done: a sentence, or JSON with the same sentence."""
    if on.screen.as_json:
        on.screen.data({"done": told, **fields})
    else:
        on.screen.line(told)


@connected(
    "run",
    examples="""
    anarchon-ddb run export --wait
    anarchon-ddb run export --slot 2026-11-29T01:00:00Z
    anarchon-ddb run report --params '{"day": "2026-11-28"}'
    """,
)
@click.argument("job", type=JOB)
@click.option("--slot", type=Moment(), help="The slot to run; now if not given.")
@click.option("--params", type=Json(only_object=True), metavar="JSON",
              help="What the handler gets; by default what the schedule gives.")  # fmt: skip
@click.option("--wait", is_flag=True, help="Wait for its end: exit code 1 if it did not succeed.")
def run_command(
    on: Connection,
    job: str,
    slot: datetime | None,
    params: dict[str, Any] | None,
    wait: bool,
) -> int | None:
    """Run a job by hand, now or for a slot that has no run.

    The job's function is invoked, and claims the slot like any other: through lease and gate.
    """
    entries = on.entries_if_known(job) or ()
    caller = by_hand.caller(on.store, job, entries)
    when = slot or from_ms(on.clock.now_ms()).replace(microsecond=0)
    if slot is not None and entries and caller.entry_of(slot) is None:
        on.screen.warn(f"{iso(slot)} is no slot of the job's schedules; it is run all the same")
    by_hand.run(caller, when, params)
    if not wait:
        told = f"Sent: {job} {iso(when)} is run by {caller.function}."
        _tell(on, told, job=job, slot=iso(when), function=caller.function)
        return None
    return _wait(on, caller, when)


def _wait(on: Connection, caller: Caller, slot: datetime) -> int:
    shown: list[str] = []

    def look(record: RunRecord | None) -> None:
        told = "waiting to be claimed" if record is None else _standing(on, record)
        if shown[-1:] != [told] and not on.screen.as_json:
            shown.append(told)
            on.screen.line(f"{caller.job} {iso(slot)}: {told}")

    record = by_hand.wait(on.store, RunKey(caller.job, iso(slot)), look)
    if on.screen.as_json:
        on.screen.data(shapes.row(record, on.clock.now_ms()))
    return 0 if record.state == "succeeded" else 1


def _standing(on: Connection, record: RunRecord) -> str:
    done = progress(record)
    error = f": {record.error}" if record.error and record.state != "succeeded" else ""
    return history.condition(record, on.clock.now_ms()) + (f", {done} done" if done else "") + error


@connected(
    "retry",
    examples="""
    anarchon-ddb retry export 2026-11-29T01:00:00Z
    anarchon-ddb retry export last --from-start
    anarchon-ddb retry export 2026-11-29T01:00:00Z --force --from-start --yes
    """,
)
@click.argument("job", type=JOB)
@click.argument("slot", type=SLOT)
@click.option("--from-start", is_flag=True, help="Forget its checkpoint.")
@click.option("--force", is_flag=True, help="Also a run that has succeeded.")
@yes_option
def retry_command(
    on: Connection,
    job: str,
    slot: datetime | str,
    from_start: bool,
    force: bool,
    yes: bool,
) -> None:
    """Let a run begin its tries anew, from its checkpoint.

    It goes through claim and gate like any other; its history stays. Refused while it is being
    worked on, and for one that succeeded unless forced.
    """
    when = on.slot(job, slot)
    if from_start or force:
        lost = "Its checkpoint is forgotten" if from_start else "Even if it succeeded"
        confirm(f"Retry {job} {iso(when)}? {lost}.", yes=yes)
    before = operations.retry(on.store, job, when, from_start=from_start, force=force)
    function = before.function or _registered_function(on, job)
    fault = dispatch.send(on.store, function, RunKey(job, iso(when)))
    sent = SOON if fault is not None else f"Sent to {function}."
    _tell(
        on,
        f"{job} {iso(when)} was {before.state} and is tried again. {sent}",
        job=job,
        slot=iso(when),
        was=before.state,
        is_sent=fault is None,
    )


def _registered_function(on: Connection, job: str) -> str:
    """Return the function of a run that was never delivered: its schedule names it."""
    entries = on.entries_if_known(job)
    return entries[0].function if entries else ""


@connected(
    "cancel",
    examples="""
    anarchon-ddb cancel export 2026-11-29T01:00:00Z
    anarchon-ddb cancel export last --yes
    """,
)
@click.argument("job", type=JOB)
@click.argument("slot", type=SLOT)
@yes_option
def cancel_command(on: Connection, job: str, slot: datetime | str, yes: bool) -> None:
    """End a run: at once if nobody holds it, else at its holder's next save."""
    when = on.slot(job, slot)
    confirm(f"Cancel {job} {iso(when)}?", yes=yes)
    found = on.store.read_heads([job])[job]
    policy = catch_up.policy_of(found if isinstance(found, Head) else Head(job))
    before = operations.cancel(on.store, job, when, retention_ms=policy.retention_ms)
    was_held = history.is_held(before, on.clock.now_ms())
    told = (
        f"{job} {iso(when)} was told to stop: it ends at its next save, or its next heartbeat."
        if was_held
        else f"{job} {iso(when)} was {before.state} and is cancelled."
    )
    _tell(on, told, job=job, slot=iso(when), was=before.state, has_ended=not was_held)


@connected(
    "pause",
    examples="""
    anarchon-ddb pause export --note "source is down, INC-4711"
    anarchon-ddb pause export --until 2h
    """,
)
@click.argument("job", type=JOB)
@click.option("--note", default="", metavar="TEXT", help="Why, for those who find it.")
@click.option("--until", type=Moment(span=True, ahead=True),
              help="When it ends by itself: a time, or 2h.")  # fmt: skip
def pause_command(on: Connection, job: str, note: str, until: datetime | None) -> None:
    """Pause a job: nothing of it runs, whatever is deployed.

    A batch in hand ends first. Slots that come meanwhile are recorded as skipped (paused).
    """
    if until is not None and until <= from_ms(on.clock.now_ms()) + timedelta(seconds=1):
        raise click.UsageError(f"--until {iso(until)} is not ahead of now")
    told_runs = operations.pause(on.store, job, note=note, until=until)
    stopping = [record.slot for record in told_runs]
    told = f"{job} is paused" + (f" until {moment(until)}." if until else ".")
    if stopping:
        told += f" Told to stop: {', '.join(stopping)}."
    _tell(on, told, job=job, until=None if until is None else iso(until), stopping=stopping)


@connected("unpause", examples="anarchon-ddb unpause export")
@click.argument("job", type=JOB)
def unpause_command(on: Connection, job: str) -> None:
    """Let a paused job run again.

    Its open runs go on; slots that were skipped meanwhile stay so: `backfill --only skipped`.
    """
    operations.unpause(on.store, job)
    _tell(on, f"{job} runs again; its open runs go on within a minute or so.", job=job)


@connected("release", examples="anarchon-ddb release export 2026-11-29T01:00:00Z")
@click.argument("job", type=JOB)
@click.argument("slot", type=SLOT)
@yes_option
def release_command(on: Connection, job: str, slot: datetime | str, yes: bool) -> None:
    """Take the lease from a holder that is known to be dead.

    Without this a run is taken over when its lease runs out, within a minute or so. The attempt is
    raised: a holder that is alive after all can't store anything any more, but may still be in the
    middle of a batch.
    """
    when = on.slot(job, slot)
    confirm(f"Release {job} {iso(when)}? Is its holder dead for certain?", yes=yes)
    before = operations.release(on.store, job, when)
    told = f"{job} {iso(when)}: attempt {before.attempt} holds it no longer. {SOON}"
    _tell(on, told, job=job, slot=iso(when), was_attempt=before.attempt)


@connected(
    "rewind",
    examples="""
    anarchon-ddb rewind export 2026-11-29T01:00:00Z --to 400
    anarchon-ddb rewind export last --to '"customer-0815"' --yes
    anarchon-ddb rewind export last --to '{"after": {"id": 12}}'
    """,
)
@click.argument("job", type=JOB)
@click.argument("slot", type=SLOT)
@click.option("--to", "to", type=Json(), required=True, metavar="JSON",
              help="The cursor, as `runs --json` shows checkpoints.")  # fmt: skip
@yes_option
def rewind_command(
    on: Connection,
    job: str,
    slot: datetime | str,
    to: str,
    yes: bool,
) -> None:
    """Set the checkpoint of a run that nobody holds.

    The run is open, or has failed; what comes after the cursor is done once more, and what comes
    before it is taken as done.
    """
    try:
        cursor = codec.loads(to)
    except CheckpointError as error:
        raise click.UsageError(f"--to is no cursor: {error}") from None
    when = on.slot(job, slot)
    confirm(f"Set the checkpoint of {job} {iso(when)} to {to}?", yes=yes)
    before = operations.rewind(on.store, job, when, cursor)
    told = f"{job} {iso(when)}: its checkpoint was {before.checkpoint or 'none'} and is {to} now."
    told += f" To run it: anarchon-ddb retry {job} {iso(when)}" if before.state == "failed" else ""
    _tell(on, told, job=job, slot=iso(when), was=before.checkpoint, state=before.state)
