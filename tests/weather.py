"""The weather of March 2013, read from the file, and what a plain computation makes of it."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "data" / "weather_2013-03.csv"
AIRPORTS = ("EWR", "JFK", "LGA")


def rows() -> list[dict[str, Any]]:
    """Return the observations as items: NA means unknown, so the attribute is left out."""
    with FILE.open(newline="") as file:
        return [
            {"origin": row["origin"], "time_hour": row["time_hour"]}
            | {name: Decimal(row[name]) for name in ("temp", "precip") if row[name] != "NA"}
            for row in csv.DictReader(file)
        ]


def expected(slots: list[datetime]) -> dict[tuple[str, str], int]:
    """Count the observations of each airport and hour, the plain way."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows():
        moment = datetime.fromisoformat(row["time_hour"])
        slot = moment + timedelta(hours=1)  # the hour that ends with the slot
        if slot in slots:
            counts[row["origin"], f"{slot:%Y-%m-%dT%H:%M:%SZ}"] += 1
    return counts
