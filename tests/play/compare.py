"""Compare what the shipped jobs made with their sources: ``--check tests/play/compare.py``."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import Any

import boto3

from anarchon_ddb.clock import iso
from anarchon_ddb.local import planes
from anarchon_ddb.schedule import parse
from tests import weather

START = datetime.fromisoformat(os.environ["ANARCHON_LOCAL_FROM"])
END = datetime.fromisoformat(os.environ["ANARCHON_LOCAL_TO"])


def main() -> int:
    """Return how many slots are not as they should be."""
    faults = [*exports(), *rollups()]
    for fault in faults:
        print(fault, file=sys.stderr)
    return min(len(faults), 100)


def exports() -> list[str]:
    """Compare the objects of each night with the table."""
    source = planes.scan(boto3.client("dynamodb"))
    faults, slots = [], list(parse("cron(0 2 * * ? *)", "Europe/Berlin").between(START, END))
    for slot in slots:
        prefix = f"export/{slot:%Y-%m-%dT%H%M%SZ}/"
        found, _ = planes.read_export(boto3.client("s3"), os.environ["EXPORT_BUCKET"], prefix)
        proof = planes.compare(source, found)
        if not proof.holds:
            faults.append(f"export of {iso(slot)}: {proof}")
    print(f"{len(slots)} exports compared with {len(source):,} rows each", file=sys.stderr)
    return faults


def rollups() -> list[str]:
    """Compare the rows of each hour with the observations, counted in a plain way."""
    slots = list(parse("cron(0 * * * ? *)", "America/New_York").between(START, END))
    wanted = weather.expected(slots)
    rows: list[dict[str, Any]] = []
    for page in (
        boto3.client("dynamodb")
        .get_paginator("scan")
        .paginate(TableName=os.environ["ROLLUP_TABLE"])
    ):
        rows += page["Items"]
    found = {(row["airport"]["S"], row["slot"]["S"]): int(row["observations"]["N"]) for row in rows}
    faults = []
    for slot in map(iso, slots):
        for airport in weather.AIRPORTS:
            key = (airport, slot)
            if found.get(key) != wanted.get(key, 0):
                faults.append(f"rollup {key}: {found.get(key)} for {wanted.get(key, 0)}")
    print(f"{len(slots) * 3} rollups compared", file=sys.stderr)
    return faults


if __name__ == "__main__":
    sys.exit(main())
