"""Fill the tables that the shipped jobs read: ``anarchon-ddb local --setup tests/play/fill.py``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import boto3

from anarchon_ddb.local import planes
from tests import weather

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Create and fill the source tables; the rollup's own table stays empty."""
    dynamodb: Any = boto3.client("dynamodb")
    planes.load(dynamodb, planes.read_csv(ROOT / "tests/data/planes.csv"))
    create(dynamodb, os.environ["WEATHER_TABLE"], "origin", "time_hour")
    create(dynamodb, os.environ["ROLLUP_TABLE"], "airport", "slot")
    table = boto3.resource("dynamodb").Table(os.environ["WEATHER_TABLE"])
    with table.batch_writer() as batch:
        for row in weather.rows():
            batch.put_item(Item=row)


def create(dynamodb: Any, name: str, hash_key: str, range_key: str) -> None:
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": hash_key, "KeyType": "HASH"},
            {"AttributeName": range_key, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": hash_key, "AttributeType": "S"},
            {"AttributeName": range_key, "AttributeType": "S"},
        ],
    )


if __name__ == "__main__":
    main()
