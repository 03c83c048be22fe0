"""python-dynamodb-lock around the job, with a checkpoint written by hand.

The lock keeps two invocations apart and remembers nothing: what is done and how far it came is a
second item, read at the start and written after each batch and at the end. One lock client over the
warm invocations, as its threads are started with it.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import boto3
from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

from tests.bench.endpoint import make_table, require

LOCKS = "DynamoDBLockTable"
BY_HAND = "LockedJobs"


class LockLibrary:
    """Runs one slot after another in a warm process."""

    def __init__(self, *, is_bare: bool = False) -> None:
        logging.getLogger("python_dynamodb_lock").setLevel(logging.WARNING)
        resource = boto3.resource("dynamodb")
        self.is_bare = is_bare
        self.client = resource.meta.client
        # Its own way to make its table asks for a TTL, which dynalite does not have.
        make_table(self.client, LOCKS, "lock_key", "sort_key")
        make_table(self.client, BY_HAND, "slot")
        self.progress = resource.Table(BY_HAND)
        # No heartbeat falls into what is measured, which is to its advantage.
        self.locks = DynamoDBLockClient(resource, heartbeat_period=timedelta(hours=1))

    def run(self, slot: str, batches: int) -> None:
        lock = self.locks.acquire_lock("bench", retry_timeout=timedelta(milliseconds=1))
        try:
            if not self.is_bare:
                self._work(slot, batches)
        finally:
            lock.release()

    def _work(self, slot: str, batches: int) -> None:
        stored = self.progress.get_item(Key={"slot": slot}, ConsistentRead=True).get("Item", {})
        if stored.get("state") == "succeeded":
            return
        for cursor in range(int(stored.get("cursor", 0)) + 1, batches + 1):
            self._note(slot, "running", cursor)
        self._note(slot, "succeeded", batches)

    def _note(self, slot: str, state: str, cursor: int) -> None:
        self.progress.update_item(
            Key={"slot": slot},
            UpdateExpression="SET #state = :state, #cursor = :cursor",
            ExpressionAttributeNames={"#state": "state", "#cursor": "cursor"},
            ExpressionAttributeValues={":state": state, ":cursor": cursor},
        )

    def check(self, slot: str, batches: int) -> None:
        locks = self.client.scan(TableName=LOCKS, ConsistentRead=True)["Items"]
        require(is_right=locks == [], found=locks)
        if not self.is_bare:
            item: dict[str, Any] = self.progress.get_item(Key={"slot": slot})["Item"]
            stored = (item["state"], int(item["cursor"]))
            require(is_right=stored == ("succeeded", batches), found=item)
