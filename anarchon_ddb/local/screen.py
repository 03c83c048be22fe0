"""The demo's screen: a line for each attempt, a live bar below them, the proof at the end.

Where the output is no terminal the bar is left out, and the lines are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from types import TracebackType

    from anarchon_ddb.local.planes import Proof
    from anarchon_ddb.local.story import AttemptStory

_STYLES = {"succeeded": "green", "stopped early": "yellow", "killed": "bold red"}


class Screen:
    """What the demo shows; use it as a context manager.

    Parameters
    ----------
    total : int
        Rows to export.
    to_stderr : bool
        Leave stdout to the JSON summary.
    """

    def __init__(self, total: int, *, to_stderr: bool = False) -> None:
        self.console = Console(stderr=to_stderr, highlight=False, soft_wrap=True)
        self._progress = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.completed:>5,.0f} of {task.total:,.0f} rows"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=False,
        )
        self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line, above the bar."""
        self.console.print(Text(text, style=style))

    def progress(self, rows: int, status: str) -> None:
        """Move the bar, and say beside it what is going on."""
        self._progress.update(self._task, completed=rows, description=status)

    def attempt(self, story: AttemptStory, note: str) -> None:
        """Print the line of an attempt; ``note`` says how it ended."""
        start = "the beginning"
        if story.resumed_from is not None:
            start = f"row {story.rows_before:,} (after {story.resumed_from})"
        text = Text(f"attempt {story.number}  from {start:<26}{story.rows:>6,} rows  ")
        text.append(note.strip(), style=_STYLES.get(story.how, "red"))
        self.console.print(text)

    def proof(self, proof: Proof, *, objects: int, repeated: int) -> None:
        """Print the comparison of source and export."""
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(justify="left")
        table.add_column(justify="right")
        table.add_column(style="dim")
        for name, count, note in (
            ("rows in the source", proof.source_rows, "DynamoDB table, scanned anew"),
            ("rows in S3", proof.exported_rows, f"JSON lines in {objects} objects"),
            ("missing", len(proof.missing), _few(proof.missing)),
            ("extra", len(proof.extra), _few(proof.extra)),
            ("differing", len(proof.differing), _few(proof.differing)),
            ("batches repeated", repeated, "in flight at the kill; it overwrote itself"),
        ):
            table.add_row(name, f"{count:,}", note)
        self.console.print(table)
        if proof.holds:
            self.line("S3 is equal to the source: every row, and each of them once.", "green")
        else:
            self.line("S3 is NOT equal to the source.", "bold red")


def _few(keys: tuple[str, ...]) -> str:
    return ", ".join(keys[:5]) + (" …" if len(keys) > 5 else "")
