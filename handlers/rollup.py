"""Roll the weather observations of each hour up into one row per airport.

A row's key is the airport and the slot, so a row that is written again overwrites itself, and a
slot that is late or caught up works on its own hour, whenever it runs. Under ``queue`` the hours
come one at a time, oldest first, and under ``catch_up: all`` none is left out.
"""

from __future__ import annotations

import os
from datetime import UTC
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3

from anarchon_ddb import Run, job

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

STEP = "%Y-%m-%dT%H:%M:%SZ"


@cache
def table(name: str) -> Any:
    """Return a table, its resource made on first use and kept while the sandbox is warm."""
    return boto3.resource("dynamodb").Table(name)


@job("rollup", overlap="queue", timeout="30m", catch_up="all")
def handler(run: Run) -> None:
    """Write the rows of the hour that ends with the slot."""
    airports = os.environ["AIRPORTS"].split(",")

    def following(done: str | None) -> tuple[str, str | None] | None:
        left = [airport for airport in airports if done is None or airport > done]
        return (left[0], left[0]) if left else None

    for airport in run.batches(following):
        row = summary(observations(airport, *run.window))
        table(os.environ["ROLLUP_TABLE"]).put_item(
            Item={
                "airport": airport,
                "slot": f"{run.slot:{STEP}}",
                "local_time": run.scheduled_at.isoformat(),
                **row,
            }
        )


def observations(airport: str, start: datetime, end: datetime) -> Iterable[dict[str, Any]]:
    """Yield an airport's observations from ``start`` to before ``end``."""
    query: dict[str, Any] = {
        "KeyConditionExpression": "origin = :airport AND time_hour BETWEEN :first AND :last",
        "FilterExpression": "time_hour < :last",
        "ExpressionAttributeValues": {
            ":airport": airport,
            ":first": f"{start.astimezone(UTC):{STEP}}",
            ":last": f"{end.astimezone(UTC):{STEP}}",
        },
    }
    while True:
        page = table(os.environ["WEATHER_TABLE"]).query(**query)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        query["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def summary(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return what a row tells of its observations; a value that is unknown counts for nothing."""
    rows = list(found)
    temperatures = [row["temp"] for row in rows if "temp" in row]
    rain = sum((row["precip"] for row in rows if "precip" in row), Decimal(0))
    known = {"temp_min": min(temperatures), "temp_max": max(temperatures)} if temperatures else {}
    return {"observations": len(rows), "precip": rain, **known}
