"""What is printed: tables and sentences for people, JSON for scripts.

Every text from the table is cleaned. Results go to stdout, everything else to stderr. A table is
as wide as the terminal; into a pipe nothing is cut.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from anarchon_ddb.cli.clean import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    Cell = str | Text

_GAP = 2
_LAST_AT_LEAST = 14
_PIPE_WIDTH = 400

STYLES = {
    "succeeded": "green",
    "failed": "red",
    "expired": "red",
    "lost": "red",
    "damaged": "bold red",
    "skipped": "yellow",
    "retrying": "yellow",
    "missed": "magenta",
    "cancelled": "magenta",
    "running": "cyan",
    "interrupted": "blue",
    "pending": "blue",
    "waited": "dim",
    "released": "dim",
}
"""The colour of a state, or of an attempt's end. Its word always stands beside it."""


def style_of(told: str) -> str:
    """Return the colour of a state in words, such as ``running, lease expired``."""
    if "expired" in told:
        return STYLES["expired"]
    return STYLES.get(told.split(" ", maxsplit=1)[0].rstrip(","), "")


@dataclass(slots=True)
class Screen:
    """Where a command prints."""

    as_json: bool
    _console: Console | None = None

    @property
    def console(self) -> Console:
        """The terminal. Its markup is off: a text from the table is no instruction."""
        from rich.console import Console  # noqa: PLC0415 - `--json` and `--help` do without

        if self._console is None:
            width = None if sys.stdout.isatty() else _PIPE_WIDTH
            self._console = Console(
                file=sys.stdout, width=width, markup=False, highlight=False, emoji=False
            )
        return self._console

    def data(self, value: Any) -> None:
        """Print a result as JSON; all beyond ASCII is escaped."""
        click.echo(json.dumps(value, indent=2))

    def line(self, text: str = "") -> None:
        """Print a sentence."""
        click.echo(clean(text))

    def warn(self, text: str) -> None:
        """Print what is beside the result."""
        click.echo(f"Note: {clean(text)}", err=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table, see ``make_table``."""
        self.console.print(make_table(columns, rows, self.console.width))


def make_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    """Return a table without lines, no wider than the terminal.

    Parameters
    ----------
    columns : sequence of str
        Names. ``>`` aligns to the right. ``?`` may be left out, the rightmost first, where the
        terminal is too narrow. The last column is wrapped; the others are never cut.
    rows : sequence
        Cells as text, cleaned here, or as ``text`` and ``state`` make them. A column without any
        content is left out.
    """
    from rich.table import Table  # noqa: PLC0415

    cells = [[text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    shown = _fitting(columns, cells, width)
    for index in shown:
        is_last = index == shown[-1]
        table.add_column(
            columns[index].lstrip("?>"),
            justify="right" if ">" in columns[index] else "left",
            no_wrap=not is_last,
            overflow="fold",
            min_width=None if is_last else _width(columns, cells, index),
        )
    for row in cells:
        table.add_row(*(row[index] for index in shown))
    return table


def _fitting(columns: Sequence[str], cells: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Choose the columns that are shown."""
    last = len(columns) - 1
    shown = [
        index
        for index in range(len(columns))
        if not cells or index == 0 or any(row[index].plain for row in cells)
    ]
    widths = {index: _width(columns, cells, index) for index in shown}
    if last in widths:
        widths[last] = min(widths[last], _LAST_AT_LEAST)
    for index in reversed([index for index in shown if columns[index].startswith("?")]):
        if sum(widths[kept] + _GAP for kept in shown) - _GAP <= width:
            break
        shown.remove(index)
    return shown


def _width(columns: Sequence[str], cells: Sequence[Sequence[Text]], index: int) -> int:
    return max([len(columns[index].lstrip("?>")), *(row[index].cell_len for row in cells)])


def text(value: str, style: str = "") -> Text:
    """Return a text, cleaned, in a colour."""
    from rich.text import Text  # noqa: PLC0415

    return Text(clean(value), style=style)


def state(told: str) -> Text:
    """Return a state in its colour."""
    return text(told, style_of(told))
