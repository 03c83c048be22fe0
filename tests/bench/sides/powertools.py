"""Powertools idempotency: one record for the slot, and one for each batch.

A record for the slot alone makes a job safe to deliver twice, and not resumable: after a kill it
begins anew. Its users make it resumable with a record for each batch: a repeated delivery skips
what is done.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import boto3
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent,
    idempotent_function,
)

from anarchon_ddb.testing import LambdaContext
from tests.bench.endpoint import make_table, require


class Powertools:
    """Runs one slot after another in a warm process."""

    def __init__(self, table: str, *, by_batch: bool) -> None:
        self.table = table
        self.client = boto3.client("dynamodb")
        self.done = 0
        make_table(self.client, table, "id")
        self._config = IdempotencyConfig(event_key_jmespath="slot")
        self._by_batch = IdempotencyConfig(event_key_jmespath="[slot, number]")
        once = idempotent(persistence_store=self._layer(), config=self._config)
        by_number = idempotent_function(
            data_keyword_argument="batch", persistence_store=self._layer(), config=self._by_batch
        )
        work = self._batches if by_batch else self._at_once
        # It decorates plain functions only.
        self._batch = by_number(lambda *, batch: self._work(batch=batch))
        self.handler = once(lambda event, context: work(event, context))  # noqa: PLW0108
        self._is_by_batch = by_batch
        self._records = 0

    def _layer(self) -> DynamoDBPersistenceLayer:
        """Make one for each use: a layer keeps the key of its first caller."""
        return DynamoDBPersistenceLayer(table_name=self.table, boto3_client=self.client)

    def _work(self, *, batch: dict[str, Any]) -> int:
        self.done += 1
        return batch["number"]

    def _batches(self, event: dict[str, Any], context: LambdaContext) -> int:
        self._by_batch.register_lambda_context(context)
        for number in range(event["batches"]):
            self._batch(batch={"slot": event["slot"], "number": number})
        return event["batches"]

    def _at_once(self, event: dict[str, Any], _context: LambdaContext) -> int:
        for number in range(event["batches"]):
            self._work(batch={"slot": event["slot"], "number": number})
        return event["batches"]

    def run(self, slot: str, batches: int) -> None:
        self.done = 0
        self._records += batches + 1 if self._is_by_batch else 1
        context = LambdaContext("15m")
        answer = self.handler({"slot": slot, "batches": batches}, context)
        require(is_right=(answer, self.done) == (batches, batches), found=(answer, self.done))

    def check(self, _slot: str, _batches: int) -> None:
        """As many records as all runs together had to make, and each says COMPLETED."""
        states = Counter(item["status"]["S"] for item in self._items())
        require(is_right=states == Counter(COMPLETED=self._records), found=states)

    def _items(self) -> Any:
        pages = self.client.get_paginator("scan").paginate(TableName=self.table)
        return chain.from_iterable(page["Items"] for page in pages)
