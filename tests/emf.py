"""Embedded metrics as CloudWatch reads them out of a log."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Dimensions = tuple[tuple[str, str], ...]
Series = dict[tuple[str, str, Dimensions], list[float]]
"""By namespace, metric and dimensions: the values in the order of the log."""


def read(lines: Iterable[str]) -> Series:
    """Return every series of a log; a line that is no metrics record is none."""
    series: Series = defaultdict(list)
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        for directive in record.get("_aws", {}).get("CloudWatchMetrics", ()):
            _take(record, directive, series)
    return dict(series)


def _take(record: dict[str, Any], directive: dict[str, Any], series: Series) -> None:
    for names in directive["Dimensions"]:
        dimensions = tuple(sorted((name, record[name]) for name in names))
        assert all(isinstance(value, str) for _, value in dimensions)
        for metric in directive["Metrics"]:
            value = record[metric["Name"]]
            values = value if isinstance(value, list) else [value]
            series[directive["Namespace"], metric["Name"], dimensions] += values
