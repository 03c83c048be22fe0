"""The figures as text, and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from tests.bench.measure import Figure

HEADINGS = ("figure", "median", "spread", "of minima", "goal", "", "medians of the sides")
PEERS = (
    "botocore",
    "aws-lambda-powertools",
    "python-dynamodb-lock",
    "aws-durable-execution-sdk-python",
    "pynamodb",
)


def shown(value: float, unit: str = "") -> str:
    is_count = unit and value == int(value)
    digits = 0 if is_count or abs(value) >= 100 else 2
    return f"{value:,.{digits}f} {unit}".rstrip()


def text(measures: Mapping[str, Sequence[Figure]]) -> str:
    lines, notes = [], []
    for name, figures in measures.items():
        lines.append((name, *[""] * (len(HEADINGS) - 1)))
        for figure in figures:
            if figure.note and figure.note not in notes:
                notes.append(figure.note)
            mark = f" [{notes.index(figure.note) + 1}]" if figure.note else ""
            lines.append(_row(figure, mark))
    widths = [max(map(len, column)) for column in zip(HEADINGS, *lines, strict=True)]
    rule = "-" * (sum(widths) + 2 * len(widths))
    shown_lines = [_padded(HEADINGS, widths), rule, *(_padded(line, widths) for line in lines)]
    shown_notes = [f"[{number}] {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*shown_lines, rule, *shown_notes]) + "\n"


def _row(figure: Figure, mark: str) -> tuple[str, ...]:
    low, high = min(figure.values), max(figure.values)
    best = figure.of_minima
    return (
        f"  {figure.what}{mark}",
        shown(figure.median, figure.unit),
        f"{shown(low)}-{shown(high)}" if low != high else "",
        "" if best is None else shown(best),
        str(figure.goal or ""),
        figure.verdict,
        _medians(figure),
    )


def _medians(figure: Figure) -> str:
    return " / ".join(
        f"{name} {shown(median(values), figure.side_unit)}" for name, values in figure.sides.items()
    )


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([first, *others]).rstrip()


def document(measures: Mapping[str, Sequence[Figure]], rounds: int) -> str:
    """Return everything that was measured, round by round, and where, as JSON."""
    content: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": {name: _version(name) for name in PEERS},
        "measures": {
            name: [_described(figure) for figure in figures] for name, figures in measures.items()
        },
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _described(figure: Figure) -> dict[str, Any]:
    return {
        "what": figure.what,
        "unit": figure.unit,
        "median": figure.median,
        "min": min(figure.values),
        "max": max(figure.values),
        "of_minima": figure.of_minima,
        "goal": str(figure.goal) if figure.goal else None,
        "holds": None if figure.goal is None else figure.goal.holds(figure.median),
        "values": figure.values,
        "sides": figure.sides,
        "side_unit": figure.side_unit,
        "note": figure.note,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
