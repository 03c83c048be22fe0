"""The demo's data: a table of aircraft, and the proof that its export is equal to it."""

from __future__ import annotations

import csv
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

TABLE = "planes"
KEY = "tailnum"

_NUMBERS = frozenset({"year", "engines", "seats", "speed"})
_BATCH = 25  # DynamoDB's limit of BatchWriteItem

Item = dict[str, dict[str, str]]
"""A row in DynamoDB JSON: ``{"tailnum": {"S": "N10156"}, "seats": {"N": "55"}}``."""


def read_csv(path: Path) -> list[Item]:
    """Return the rows of the file. ``NA`` means unknown: the attribute is left out."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {
                name: {"N" if name in _NUMBERS else "S": value}
                for name, value in row.items()
                if value != "NA"
            }
            for row in csv.DictReader(file)
        ]


def load(dynamodb: Any, items: Sequence[Item]) -> None:
    """Create the table and write the items, the ones that DynamoDB left unprocessed included."""
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": KEY, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": KEY, "AttributeType": "S"}],
    )
    for start in range(0, len(items), _BATCH):
        puts = [{"PutRequest": {"Item": item}} for item in items[start : start + _BATCH]]
        pending = {TABLE: puts}
        while pending:
            pending = dynamodb.batch_write_item(RequestItems=pending)["UnprocessedItems"]


def scan(dynamodb: Any) -> list[Item]:
    """Return all items of the table."""
    pages = dynamodb.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
    return [item for page in pages for item in page["Items"]]


def read_export(s3: Any, bucket: str, prefix: str) -> tuple[list[Item], int]:
    """Return the items of an export's objects, and how many objects there are."""
    items: list[Item] = []
    objects = 0
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for entry in page.get("Contents", ()):
            objects += 1
            items += read_object(s3, bucket, entry["Key"])
    return items, objects


def read_object(s3: Any, bucket: str, key: str) -> list[Item]:
    """Return the items of one object, a line each."""
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return [json.loads(line)["Item"] for line in body.splitlines()]


@dataclass(frozen=True, slots=True)
class Proof:
    """The export compared with its source, item by item."""

    source_rows: int
    exported_rows: int
    missing: tuple[str, ...]
    """Keys of the source that the export lacks."""
    extra: tuple[str, ...]
    """Keys that the source lacks, and keys that the export has more than once."""
    differing: tuple[str, ...]
    """Keys whose item is not the same."""

    @property
    def holds(self) -> bool:
        """True if the export is equal to the source, and there is something to be equal to."""
        return bool(self.source_rows) and not (self.missing or self.extra or self.differing)


def compare(source: Iterable[Item], exported: Iterable[Item]) -> Proof:
    """Compare an export with its source.

    Examples
    --------
    >>> row = {"tailnum": {"S": "N10156"}}
    >>> compare([row], [row]).holds
    True
    >>> compare([row], []).missing
    ('N10156',)
    """
    exported = list(exported)
    wanted = {item[KEY]["S"]: item for item in source}
    found = {item[KEY]["S"]: item for item in exported}
    copies = Counter(item[KEY]["S"] for item in exported)
    return Proof(
        source_rows=len(wanted),
        exported_rows=len(exported),
        missing=tuple(sorted(wanted.keys() - found.keys())),
        extra=tuple(sorted(key for key in found if key not in wanted or copies[key] > 1)),
        differing=tuple(sorted(key for key in wanted.keys() & found if wanted[key] != found[key])),
    )
