"""The figures as a table: for a terminal, or as Markdown for ``docs/performance.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tests.bench.record import Record

HEADINGS = ("figure", "median", "spread", "of minima", "goal", "", "medians of the sides")
VERDICTS = {None: "", True: "holds", False: "DOES NOT HOLD"}


def shown(value: float, unit: str = "") -> str:
    is_count = unit and value == int(value)
    digits = 0 if is_count or abs(value) >= 100 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def text(measures: Mapping[str, Record]) -> str:
    lines: list[Sequence[str]] = []
    notes: list[str] = []
    for name, measure in measures.items():
        lines.append((name, *[""] * (len(HEADINGS) - 1)))
        lines.extend(("  " + first, *rest) for first, *rest in _rows(measure, notes))
    widths = [max(map(len, column)) for column in zip(HEADINGS, *lines, strict=True)]
    rule = "-" * (sum(widths) + 2 * len(widths))
    shown_lines = [_padded(HEADINGS, widths), rule, *(_padded(line, widths) for line in lines)]
    return "\n".join([*shown_lines, rule, *_numbered(notes)]) + "\n"


def markdown(measures: Mapping[str, Record]) -> str:
    notes: list[str] = []
    lines = [
        "| measure | figure | median | spread | goal | |",
        "|---|---|---|---|---|---|",
    ]
    for name, measure in measures.items():
        for figure, middle, spread, _, goal, verdict, sides in _rows(measure, notes):
            last = verdict.lower() or sides
            lines.append(f"| `{name}` | {figure} | {middle} | {spread} | {goal} | {last} |")
    return "\n".join([*lines, "", *(f"{note}\n" for note in _numbered(notes))])


def _rows(measure: Record, notes: list[str]) -> list[tuple[str, ...]]:
    """Return a row for each figure; a note that is new is added to the notes."""
    rows = []
    for figure in measure["figures"]:
        note = figure["note"]
        if note and note not in notes:
            notes.append(note)
        mark = f" [{notes.index(note) + 1}]" if note else ""
        rows.append((figure["what"] + mark, *_cells(figure)))
    return rows


def _cells(figure: Mapping[str, Any]) -> tuple[str, ...]:
    low, high, best = figure["min"], figure["max"], figure["of_minima"]
    return (
        shown(figure["median"], figure["unit"]),
        f"{shown(low)}-{shown(high)}" if low != high else "",
        "" if best is None else shown(best),
        figure["goal"] or "",
        VERDICTS[figure["holds"]],
        " / ".join(
            f"{name} {shown(median(values), figure['side_unit'])}"
            for name, values in figure["sides"].items()
        ),
    )


def _numbered(notes: Sequence[str]) -> list[str]:
    return [f"[{number}] {note}" for number, note in enumerate(notes, 1)]


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
