"""What is printed: tables and sentences for people, JSON for scripts.

Every text from the table is cleaned. Results go to stdout, everything else to stderr. A table is
as wide as the terminal; into a pipe nothing is cut.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from anarchon_ddb.cli.clean import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table

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

    @property
    def width(self) -> int:
        """Columns that a picture may have."""
        return shutil.get_terminal_size((100, 24)).columns

    def data(self, value: Any) -> None:
        """Print a result as JSON; all beyond ASCII is escaped."""
        click.echo(json.dumps(value, indent=2))

    def line(self, text: str = "") -> None:
        """Print a sentence."""
        click.echo(clean(text))

    def warn(self, text: str) -> None:
        """Print what is beside the result."""
        click.echo(f"Note: {clean(text)}", err=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | RenderableType]]) -> None:
        """Print a table; a column's name with ``>`` is aligned to the right.

        The last column gives way when the terminal is narrow; the others are never cut.
        """
        self.console.print(make_table(columns, rows), soft_wrap=False)


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str | RenderableType]]) -> Table:
    """Return a table without lines around it."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        is_last = index == len(columns) - 1
        table.add_column(
            column.lstrip(">"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis" if is_last else "fold",
            min_width=None if is_last else len(column.lstrip(">")),
        )
    for row in rows:
        table.add_row(*(cell if not isinstance(cell, str) else text(cell) for cell in row))
    return table


def text(value: str, style: str = "") -> RenderableType:
    """Return a text, cleaned, in a colour."""
    from rich.text import Text  # noqa: PLC0415

    return Text(clean(value), style=style)


def state(told: str) -> RenderableType:
    """Return a state in its colour."""
    return text(told, style_of(told))
