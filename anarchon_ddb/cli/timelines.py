"""``timeline``: in the terminal, and as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anarchon_ddb.cli import page, shapes
from anarchon_ddb.cli.connection import Connection, connected
from anarchon_ddb.cli.options import JOB, Moment
from anarchon_ddb.cli.screen import STYLES, state
from anarchon_ddb.clock import from_ms
from anarchon_ddb.timeline import axis_of, timeline
from anarchon_ddb.wording import moment, span

if TYPE_CHECKING:
    from datetime import datetime

    from rich.text import Text

    from anarchon_ddb.timeline import Axis, Bar, Timeline

_SIGNS = {"succeeded": "█", "interrupted": "▓", "running": "▒", "failed": "✗", "lost": "✗",
          "expired": "✗"}  # fmt: skip
"""How an attempt is drawn, so that its end can be told without colours, too."""


@connected(
    "timeline",
    examples="""
    anarchon-ddb timeline export --since 24h
    anarchon-ddb timeline export --since 30d --html export.html
    """,
)
@click.argument("job", type=JOB)
@click.option("--since", type=Moment(span=True), default="24h", show_default=True,
              help="Slots from then on: a time, or 24h, 7d.")  # fmt: skip
@click.option("--html", "html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write one self-contained page.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), default=40, show_default=True,
              help="Rows in the terminal, the newest; the page has all.")  # fmt: skip
def timeline_command(
    on: Connection, job: str, since: datetime, html: Path | None, limit: int
) -> None:
    """Draw runs and attempts as bars over time."""
    found = timeline(on.store, job, since)
    if html is not None:
        html.write_text(page.render(found), encoding="utf-8")
    if on.screen.as_json:
        on.screen.data(shapes.timeline(found))
        return
    if html is not None:
        on.screen.line(f"{len(found.bars)} runs: {html}")
        return
    _draw(on, found, limit)


def _draw(on: Connection, found: Timeline, limit: int) -> None:
    if not found.bars:
        on.screen.line(f"{found.job} has no run since {moment(found.since_ms)}.")
        return
    bars = found.bars[-limit:]
    taken = len(bars[0].slot) + max(len("STATE"), *(len(bar.told) for bar in bars)) + 2 * _GAP
    width = max(20, min(_WIDEST, on.screen.console.width) - taken)
    axis = axis_of(bars)
    on.screen.table(
        ("SLOT", "STATE", _header(axis, width)),
        [[bar.slot, state(bar.told), _drawn(bar, axis, width)] for bar in bars],
    )
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    left_out = len(found.bars) - len(bars)
    more = f"; {left_out} older ones are not shown (--limit, --html)" if left_out else ""
    on.screen.line(f"{len(found.bars)} runs: {counts}{more}")
    on.screen.line("· due  █ succeeded  ▓ stopped early  ▒ running  ✗ failed or lost  ░ not run")


_GAP = 2
_WIDEST = 160


def _header(axis: Axis, width: int) -> str:
    if axis.start_ms is None:
        first, last = "due", f"{span(axis.length_ms)} after"
    else:
        ends = (axis.start_ms, axis.start_ms + axis.length_ms)
        first, last = (f"{from_ms(at_ms):%m-%d %H:%M}" for at_ms in ends)
    return first + last.rjust(width - len(first))


def _drawn(bar: Bar, axis: Axis, width: int) -> Text:
    """Draw the attempts of a run; a short one is one sign wide."""
    from rich.text import Text  # noqa: PLC0415 - with the console only

    def column(at_ms: int) -> int:
        return min(width - 1, int(axis.share(bar, at_ms) * width))

    cells = [" "] * width
    styles = [""] * width
    cells[column(bar.slot_ms)] = "·"
    for segment in bar.segments:
        first, last = column(segment.start_ms), column(segment.end_ms)
        for index in range(first, max(first + 1, last)):
            cells[index] = _SIGNS.get(segment.outcome, "░")
            styles[index] = STYLES.get(segment.outcome, "")
    drawn = Text()
    for cell, style in zip(cells, styles, strict=True):
        drawn.append(cell, style)
    return drawn
