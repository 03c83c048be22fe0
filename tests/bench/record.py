"""What was measured, kept as JSON: every round, where, when, and with which versions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.bench.measure import Figure

PACKAGES = (
    "aws-durable-execution-sdk-python",
    "aws-lambda-powertools",
    "botocore",
    "pynamodb",
    "python-dynamodb-lock",
)
Record = dict[str, Any]
"""A measure: ``at``, ``rounds``, ``where``, and ``figures``."""


def record(figures: Sequence[Figure], rounds: int) -> Record:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "where": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "versions": {name: _version(name) for name in PACKAGES},
        },
        "figures": [_described(figure) for figure in figures],
    }


def read(path: Path) -> dict[str, Record]:
    """Return the measures that were kept before; empty if there are none."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def keep(path: Path, measures: Mapping[str, Record]) -> None:
    """Write the measures beside those that were kept before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    both = read(path) | dict(measures)
    path.write_text(json.dumps(both, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _described(figure: Figure) -> Record:
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
        "sides": dict(figure.sides),
        "side_unit": figure.side_unit,
        "note": figure.note,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
