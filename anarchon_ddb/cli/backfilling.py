"""``backfill``: the plan is shown first, then done with a progress bar."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from anarchon_ddb import backfill, by_hand
from anarchon_ddb.cli.acting import confirm
from anarchon_ddb.cli.connection import Connection, connected
from anarchon_ddb.cli.options import JOB, Moment, yes_option
from anarchon_ddb.cli.screen import state, text
from anarchon_ddb.clock import iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from anarchon_ddb.backfill import Item, Kind, Outcome

_SHOWN = 40
"""Slots of a plan that are shown; `--json` has all."""

_PLANNED = {
    "run": "run",
    "retry": "retry from its checkpoint",
    "restart": "run again from its start",
    "leave": "-",
}


@connected(
    "backfill",
    examples="""
    anarchon-ddb backfill export --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z --dry-run
    anarchon-ddb backfill export --from 7d --to 0s --only failed --yes
    anarchon-ddb backfill export --from 7d --to 1d --only missing --max-parallel 4
    """,
)
@click.argument("job", type=JOB)
@click.option("--from", "start", type=Moment(span=True), required=True,
              help="The first slot: a time, or 7d for seven days ago.")  # fmt: skip
@click.option("--to", "end", type=Moment(span=True), required=True,
              help="The end, not included: a time, or 0s for now.")  # fmt: skip
@click.option("--only", "only", multiple=True, type=click.Choice(backfill.KINDS),
              help="What to run; may be repeated. All three if not given.")  # fmt: skip
@click.option(
    "--force", is_flag=True, help="Also what succeeded, from its start, or was cancelled."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--max-parallel", type=click.IntRange(1, 100), default=1, show_default=True,
              metavar="N", help="Runs under way at once.")  # fmt: skip
@yes_option
def backfill_command(
    on: Connection,
    job: str,
    start: datetime,
    end: datetime,
    only: tuple[Kind, ...],
    force: bool,
    dry_run: bool,
    max_parallel: int,
    yes: bool,
) -> int | None:
    """Run the slots of a span of time that did not succeed.

    Missing slots are run, missed ones too; failed and skipped runs are retried from their
    checkpoints. Each goes through claim and gate like any other. Interrupted, it can be begun
    again: it finds what is left.
    """
    if start >= end:
        raise click.UsageError(f"--from {iso(start)} is not before --to {iso(end)}")
    entries = on.entries(job) if on.group else ()
    if not entries and (not only or "missing" in only):
        on.screen.warn("no schedule of the job is known: what is missing can't be told")
    caller = by_hand.caller(on.store, job, entries, even_paused=dry_run)
    items = backfill.plan(caller, start, end, only=only or backfill.KINDS, force=force)
    todo = [item for item in items if item.action != "leave"]
    if not on.screen.as_json:
        _show(on, items)
    if dry_run or not todo:
        if on.screen.as_json:
            on.screen.data(_as_data(job, items, ()))
        return None
    confirm(f"Send {len(todo)} {_slots(len(todo))} of {job} to {caller.function}?", yes=yes)
    outcomes = _progress(backfill.execute(caller, items, max_parallel=max_parallel), job, len(todo))
    return _finish(on, job, items, outcomes)


def _slots(count: int) -> str:
    return "slot" if count == 1 else "slots"


def _show(on: Connection, items: Sequence[Item]) -> None:
    if not items:
        on.screen.line("No slot lies between.")
        return
    todo = [item for item in items if item.action != "leave"]
    if todo:
        on.screen.table(
            ("SLOT", "NOW", "TO DO"),
            [[item.slot, state(item.why), text(_PLANNED[item.action])] for item in todo[:_SHOWN]],
        )
    if len(todo) > _SHOWN:
        on.screen.line(f"… and {len(todo) - _SHOWN} more.")
    left = Counter(item.why for item in items if item.action == "leave")
    told = ", ".join(f"{count} {why}" for why, count in left.most_common())
    on.screen.line(
        f"{len(todo)} of {len(items)} {_slots(len(items))} to run"
        + (f"; left alone: {told}." if left else ".")
    )


def _progress(outcomes: Iterable[Outcome], job: str, total: int) -> list[Outcome]:
    """Take the outcomes as they come, under a bar on stderr where that is a terminal."""
    from rich.console import Console  # noqa: PLC0415 - not needed for `--help`
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(file=sys.stderr, markup=False, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    found = []
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"backfill {job}", total=total)
        for outcome in outcomes:
            found.append(outcome)
            bar.advance(task)
            style = "" if outcome.is_good else "red"
            bar.console.print(text(f"{outcome.slot}  {outcome.text}", style))
    return found


def _finish(on: Connection, job: str, items: Sequence[Item], outcomes: Sequence[Outcome]) -> int:
    good = sum(outcome.is_good for outcome in outcomes)
    if on.screen.as_json:
        on.screen.data(_as_data(job, items, outcomes))
    else:
        on.screen.line(
            f"{good} of {len(outcomes)} succeeded."
            + ("" if good == len(outcomes) else " The others can be tried again the same way.")
        )
    return 0 if good == len(outcomes) else 1


def _as_data(job: str, items: Sequence[Item], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    ended = {outcome.slot: outcome for outcome in outcomes}
    slots = [
        {"slot": item.slot, "was": item.why, "action": item.action}
        | (
            {"outcome": ended[item.slot].text, "has_succeeded": ended[item.slot].is_good}
            if item.slot in ended
            else {}
        )
        for item in items
    ]
    return {"job": job, "slots": slots}
