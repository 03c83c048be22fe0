"""``watch``: a live table of the open runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from anarchon_ddb import history
from anarchon_ddb.cli import shapes
from anarchon_ddb.cli.connection import Connection, connected
from anarchon_ddb.cli.options import JOB
from anarchon_ddb.cli.screen import make_table, state, text
from anarchon_ddb.records import Damaged
from anarchon_ddb.timeline import progress
from anarchon_ddb.watching import Watch
from anarchon_ddb.wording import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table
    from rich.text import Text

    from anarchon_ddb.cli.screen import Cell
    from anarchon_ddb.watching import Look

_BAR = 8


@connected(
    "watch",
    examples="""
    anarchon-ddb watch
    anarchon-ddb watch export --interval 5
    anarchon-ddb watch --json | jq -c '.runs[] | [.job, .done, .eta_s]'
    """,
)
@click.argument("job", type=JOB, required=False)
@click.option("--interval", type=click.FloatRange(0.5, 3600), default=2.0, show_default=True,
              metavar="SECONDS", help="Between two looks.")  # fmt: skip
@click.option("--once", is_flag=True, help="Look once, and end.")
def watch_command(on: Connection, job: str | None, interval: float, once: bool) -> None:
    """Watch the open runs go on.

    How much is done, of how much, how fast, how long it takes still, how long the lease is good.
    Ctrl-C ends it. With --json each look is one line.
    """
    watch = Watch(on.store, job)
    try:
        if on.screen.as_json:
            _print_lines(on, watch, interval, once=once)
        elif once or not sys.stdout.isatty():
            on.screen.console.print(_table(watch.look(), on.screen.console.width))
        else:
            _live(on, watch, interval)
    except KeyboardInterrupt:
        return  # that is how it ends


def _print_lines(on: Connection, watch: Watch, interval: float, *, once: bool) -> None:
    while True:
        looks = [shapes.look(look) for look in watch.look()]
        click.echo(json.dumps({"at": shapes.instant(on.clock.now_ms()), "runs": looks}))
        if once:
            return
        on.clock.sleep(interval)


def _live(on: Connection, watch: Watch, interval: float) -> None:
    from rich.live import Live  # noqa: PLC0415 - for a terminal only

    with Live(console=on.screen.console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_table(watch.look(), live.console.width), refresh=True)
            on.clock.sleep(interval)


def _table(looks: Sequence[Look], width: int) -> Table | Text:
    if not looks:
        return text("No run is open.")
    return make_table(
        ("JOB", "SLOT", "STATE", "PROGRESS", ">ETA", "?>RATE", "?>DONE", ">LEASE"),
        [_cells(look) for look in looks],
        width,
    )


def _cells(look: Look) -> list[Cell]:
    row = look.row
    told = state(history.condition(row, look.now_ms))
    if isinstance(row, Damaged):
        return [row.job, row.slot, told, text(row.problem), "", "", "", ""]
    left = look.lease_left_ms
    lease = "-" if left is None else span(left) if left > 0 else text("expired", "red")
    return [
        row.job,
        row.slot,
        told,
        _bar(look.share),
        "-" if look.eta_ms is None else span(look.eta_ms),
        "-" if look.rate_per_s is None else _rate(look.rate_per_s),
        progress(row) or "-",
        lease,
    ]


def _rate(per_s: float) -> str:
    if per_s < 1:
        return f"{per_s * 60:.1f}/min"
    return f"{per_s:.1f}/s" if per_s < 10 else f"{per_s:,.0f}/s"


def _bar(share: float | None) -> Text:
    if share is None:
        return text("-")
    full = round(share * _BAR)
    return text("█" * full + "░" * (_BAR - full) + f" {100 * share:3.0f} %", "cyan")
