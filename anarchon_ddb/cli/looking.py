"""``jobs``, ``next``, ``runs``, ``open`` and ``explain``: they read, and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from anarchon_ddb import explain, gate, history, overview
from anarchon_ddb.cli import shapes
from anarchon_ddb.cli.connection import Connection, connected
from anarchon_ddb.cli.options import JOB, SLOT, Moment
from anarchon_ddb.cli.screen import state, style_of, text
from anarchon_ddb.clock import from_ms, iso, to_ms
from anarchon_ddb.errors import RefusedError, StoreError
from anarchon_ddb.records import OPEN_STATES, TERMINAL_STATES, Damaged, RunRecord
from anarchon_ddb.timeline import progress
from anarchon_ddb.wording import moment, relative, span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from anarchon_ddb.cli.screen import Cell
    from anarchon_ddb.history import Row
    from anarchon_ddb.listing import Registered
    from anarchon_ddb.overview import JobRow, Upcoming

STATES = sorted(OPEN_STATES | TERMINAL_STATES)


@connected(
    "jobs",
    examples="""
    anarchon-ddb jobs --stack prod
    anarchon-ddb jobs --json | jq -r '.jobs[] | select(.pause) | .job'
    """,
)
def jobs_command(on: Connection) -> None:
    """List the jobs: schedule, next slot, last run, open runs, pause.

    The jobs are those that the stack's schedules name; a job that has open runs and no schedule any
    more is listed, too.
    """
    listing = on.listing()
    rows = overview.jobs(on.store, listing)
    now_ms = on.clock.now_ms()
    _warn_of_replicas(on)
    for fault in listing.faults:
        on.screen.warn(fault)
    if on.screen.as_json:
        found = [shapes.job_row(row, now_ms) for row in rows]
        on.screen.data({"jobs": found, "faults": list(listing.faults)})
        return
    if not rows:
        on.screen.line(f"The group {on.group} has no schedule whose Input names a job.")
        return
    on.screen.table(
        ("JOB", "LAST RUN", "?OPEN", "NEXT SLOT", "?POLICY", "SCHEDULE"),
        [_job_cells(row, now_ms) for row in rows],
    )
    for row in rows:
        if row.is_paused(now_ms):
            on.screen.line(_pause_line(row, now_ms))


def _warn_of_replicas(on: Connection) -> None:
    try:
        replicas = on.store.replicas()
    except StoreError:
        return  # not permitted, perhaps: it is beside the question
    if replicas:
        on.screen.warn(
            f"table {on.store.table} is replicated to {', '.join(replicas)}: two regions can both "
            "grant a claim. Write it in one region only"
        )


def _job_cells(row: JobRow, now_ms: int) -> list[Cell]:
    last: Cell = "-"
    if row.last is not None:
        last = state(history.condition(row.last, now_ms))
    following = "-" if row.next_slot is None else relative(to_ms(row.next_slot), now_ms)
    if row.is_paused(now_ms):
        following = "paused"
    return [row.job, last, str(len(row.open) or "-"), following, _policy(row), _in_words(row)]


def _policy(row: JobRow) -> str:
    if row.policy is None:
        return "-"
    return row.policy.overlap


def _in_words(row: JobRow) -> str:
    if not row.entries:
        return "no schedule"
    return "; ".join(
        entry.schedule.describe() + ("" if entry.is_enabled else " (disabled)")
        for entry in row.entries
    )


def _pause_line(row: JobRow, now_ms: int) -> str:
    head = row.head
    if isinstance(head, Damaged):
        return f"{row.job}: {head.problem}"
    since = f" since {moment(head.paused_from)}" if head.paused_from else ""
    until = (
        ""
        if head.paused_until >= gate.FOREVER_MS
        else f", until {moment(head.paused_until)} ({relative(head.paused_until, now_ms)})"
    )
    note = f": {head.pause_note}" if head.pause_note else ""
    return f"{row.job} is paused{since}{until}{note}"


@connected(
    "next",
    examples="""
    anarchon-ddb next export
    anarchon-ddb next export -n 30 --json
    """,
)
@click.argument("job", type=JOB)
@click.option("-n", "count", type=click.IntRange(1, 1000), default=10, show_default=True,
              help="How many slots.")  # fmt: skip
def next_command(on: Connection, job: str, count: int) -> None:
    """List a job's coming slots, on its own clock and in UTC.

    Local times that do not exist when the clock is set forward, and those that occur twice when it
    is set back, are marked.
    """
    entries = on.entries(job)
    if not entries:
        raise RefusedError(f"no schedule of group {on.group} names the job {job}: see `jobs`")
    last = history.latest(on.store, job) if _has_rate(entries) else None
    found = overview.upcoming(entries, from_ms(on.clock.now_ms()), count, last)
    if on.screen.as_json:
        on.screen.data({"job": job, "slots": [shapes.upcoming(one) for one in found]})
        return
    for entry in entries:
        off = "" if entry.is_enabled else "; DISABLED: it does not fire"
        on.screen.line(f"{entry.name}: {entry.schedule.describe()}{off}")
    if not found:
        on.screen.line("No slot will come.")
        return
    zones = sorted({one.zone for one in found})
    several = len(entries) > 1
    columns = ["LOCAL" if len(zones) > 1 else zones[0], "UTC", "IN"]
    on.screen.line()
    on.screen.table(
        [*columns, *(["SCHEDULE"] if several else []), "NOTE"],
        [_next_cells(one, on.clock.now_ms(), several=several) for one in found],
    )


def _has_rate(entries: Sequence[Registered]) -> bool:
    return any(entry.schedule.period is not None for entry in entries)


def _next_cells(one: Upcoming, now_ms: int, *, several: bool) -> list[Cell]:
    local = f"{one.local:%a %Y-%m-%d %H:%M:%S}"
    schedule = [one.schedule] if several else []
    if one.slot is None:
        style = "yellow"
        return [text(local, style), text("-", style), "-", *schedule, text(one.note, style)]
    offset = f"{one.local:%z}"
    local += f" {offset[:3]}:{offset[3:]}"
    within = relative(to_ms(one.slot), now_ms).removeprefix("in ")
    return [local, iso(one.slot), within, *schedule, text(one.note, "yellow")]


@connected(
    "runs",
    examples="""
    anarchon-ddb runs export
    anarchon-ddb runs export --state failed --state skipped --since 7d
    anarchon-ddb runs export:tenant-a --limit 500 --json
    """,
)
@click.argument("job", type=JOB)
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), metavar="STATE",
              help=f"Only runs in this state; may be repeated: {', '.join(STATES)}.")  # fmt: skip
@click.option("--since", type=Moment(span=True), help="Slots from then on: a time, or 24h, 7d.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True,
              help="Rows that match, however many are looked at.")  # fmt: skip
def runs_command(
    on: Connection, job: str, states: tuple[str, ...], since: datetime | None, limit: int
) -> None:
    """List a job's runs, newest first."""
    page = history.runs(on.store, job, states=states, since=since, limit=limit)
    now_ms = on.clock.now_ms()
    if on.screen.as_json:
        found = [shapes.row(row, now_ms) for row in page.rows]
        on.screen.data({"job": job, "runs": found, "has_more": page.has_more})
        return
    if not page.rows:
        wanted = f" that is {' or '.join(states)}" if states else ""
        after = f" since {iso(since)}" if since else ""
        on.screen.line(f"{job} has no run{wanted}{after}.")
        return
    on.screen.table(
        ("SLOT", "STATE", ">ATT", "?>TOOK", "?>DONE", "NOTE"),
        [run_cells(row, now_ms) for row in page.rows],
    )
    if page.has_more:
        on.screen.line(f"There are more: these are the newest {limit}. Use --limit or --since.")


def run_cells(row: Row, now_ms: int) -> list[Cell]:
    """Return a run as a line of a table."""
    told = state(history.condition(row, now_ms))
    if isinstance(row, Damaged):
        return [row.slot, told, "", "", "", text(row.problem)]
    first = history.first_claimed_at(row)
    end_ms = row.finished_at or now_ms
    took = span(end_ms - first) if first is not None and row.attempt else ""
    return [row.slot, told, str(row.attempt or ""), took, progress(row), text(note_of(row))]


def note_of(row: RunRecord) -> str:
    """Return what deserves a word beside a run: an error, or who asked for it."""
    if row.error and row.state != "succeeded":
        return row.error
    by = {"person": "by hand", "backfill": "backfill", "catch_up": "caught up", "retry": "retried"}
    return by.get(row.cause, "") if row.attempt else ""


@connected(
    "open",
    examples="""
    anarchon-ddb open
    anarchon-ddb open --json | jq -r '.runs[] | select(.is_held | not) | .job + " " + .slot'
    """,
)
def open_command(on: Connection) -> None:
    """List the open runs of all jobs, the oldest slot first."""
    rows = history.open_runs(on.store)
    now_ms = on.clock.now_ms()
    if on.screen.as_json:
        on.screen.data({"runs": [shapes.row(row, now_ms) for row in rows]})
        return
    if not rows:
        on.screen.line("No run is open.")
        return
    on.screen.table(
        ("JOB", "SLOT", "STATE", "?>ATT", "LEASE", "?>DONE", "NOTE"),
        [_open_cells(row, now_ms) for row in rows],
    )


def _open_cells(row: Row, now_ms: int) -> list[Cell]:
    slot, told, attempt, _, done, note = run_cells(row, now_ms)
    return [row.job, slot, told, attempt, _lease(row, now_ms), done, note]


def _lease(row: Row, now_ms: int) -> str:
    if isinstance(row, Damaged) or row.state not in {"running", "retrying"}:
        return "-"
    left = relative(row.lease_until, now_ms)
    return left if row.state == "running" else f"again {left}"


@connected(
    "explain",
    examples="""
    anarchon-ddb explain export 2026-11-29T01:00:00Z
    anarchon-ddb explain export last
    """,
)
@click.argument("job", type=JOB)
@click.argument("slot", type=SLOT)
def explain_command(on: Connection, job: str, slot: datetime | str) -> None:
    """Tell the story of one slot: what happened, why, what comes next.

    SLOT is a time such as 2026-11-29T01:00:00Z, or `last`. A slot that left no run has a story,
    too.
    """
    when = on.slot(job, slot)
    story = explain.explain(on.store, on.entries_if_known(job), job, when)
    if on.screen.as_json:
        on.screen.data(shapes.story(story, on.clock.now_ms()))
        return
    console = on.screen.console
    console.print(text(f"{story.job} {story.slot}", "bold"), end="  ")
    console.print(text(story.headline, _headline_style(story.row, story.headline)))
    for title, sentences in (
        ("What happened", story.told),
        ("What comes next", story.comes_next),
    ):
        if sentences:
            console.print()
            console.print(text(title, "bold"))
            _bullets(on, sentences)
    if story.commands:
        console.print()
        console.print(text("What you can do", "bold"))
        for command in story.commands:
            on.screen.line(f"  {command}")  # never wrapped: it is copied


def _headline_style(row: Row | None, headline: str) -> str:
    return "yellow" if row is None else style_of(headline.partition(":")[0])


def _bullets(on: Connection, sentences: Sequence[str]) -> None:
    from rich.padding import Padding  # noqa: PLC0415 - with the console only

    for sentence in sentences:
        on.screen.console.print(Padding(text(sentence), (0, 0, 0, 2), expand=False))
