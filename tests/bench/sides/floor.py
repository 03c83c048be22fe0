"""The floor: bare botocore, the same conditional writes by hand, and nothing else.

No gate, no heartbeat, no early stop, no log. ``Floor`` sends what this package's writes send, value
for value; ``is_lean`` is what one would write who keeps a cursor and a lease only.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from tests.bench.endpoint import client, require

LEASE_MS = 60_000
CLAIM = (
    "SET #state = :running, #owner = :owner, #attempt = if_not_exists(#attempt, :zero) + :one, "
    "#seq = if_not_exists(#seq, :zero), #lease_until = :lease_until, #claimed_at = :now, "
    "#started_at = if_not_exists(#started_at, :now), #open = :shard, #due = :lease_until"
)
CLAIMABLE = "attribute_not_exists(#pk) OR (#state = :running AND #lease_until < :now)"
SAVE = (
    "SET #lease_until = :lease_until, #seq = :seq, #checkpoint = :checkpoint, #checkpoint_at = :now"
)
HELD = "#state = :running AND #owner = :owner AND #attempt = :attempt"
LEAN_SAVE = "SET #checkpoint = :checkpoint, #lease_until = :lease_until"
LEAN_HELD = "#owner = :owner AND #attempt = :attempt"
FINISH = "SET #state = :succeeded, #finished_at = :now REMOVE #open, #due"


def names(*attributes: str) -> dict[str, str]:
    return {f"#{attribute}": attribute for attribute in attributes}


CLAIM_NAMES = names(
    "pk", "state", "owner", "attempt", "seq", "lease_until", "claimed_at", "started_at", "open",
    "due",
)  # fmt: skip
SAVE_NAMES = names("state", "owner", "attempt", "seq", "lease_until", "checkpoint", "checkpoint_at")
LEAN_NAMES = names("owner", "attempt", "lease_until", "checkpoint")
FINISH_NAMES = names("state", "owner", "attempt", "finished_at", "open", "due")


class Floor:
    """One run after another, by hand."""

    def __init__(self, table: str, *, is_lean: bool = False) -> None:
        self.table = table
        self.client = client()
        self.is_lean = is_lean
        self.save = self._save_lean if is_lean else self._save

    def run(self, slot: str, batches: int) -> None:
        held = self.claim(slot)
        require(is_right=held is not None, found=slot)
        for cursor in range(1, batches + 1):
            self.save(slot, held, cursor)
        self.finish(slot, held)

    def claim(self, slot: str) -> dict[str, Any] | None:
        """Return what each further write needs; None if somebody else holds the run."""
        now_ms, owner = _now_ms(), {"S": uuid4().hex}
        try:
            reply = self.client.update_item(
                TableName=self.table,
                Key=key(slot),
                UpdateExpression=CLAIM,
                ConditionExpression=CLAIMABLE,
                ExpressionAttributeNames=CLAIM_NAMES,
                ExpressionAttributeValues={
                    ":running": {"S": "running"},
                    ":owner": owner,
                    ":zero": {"N": "0"},
                    ":one": {"N": "1"},
                    ":now": {"N": str(now_ms)},
                    ":lease_until": {"N": str(now_ms + LEASE_MS)},
                    ":shard": {"S": "0"},
                },
                ReturnValues="ALL_NEW",
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return None
        return {":owner": owner, ":attempt": reply["Attributes"]["attempt"]}

    def read(self, slot: str) -> dict[str, Any]:
        reply = self.client.get_item(TableName=self.table, Key=key(slot), ConsistentRead=True)
        return reply["Item"]

    def _save(self, slot: str, held: dict[str, Any], cursor: int) -> None:
        now_ms = _now_ms()
        self.client.update_item(
            TableName=self.table,
            Key=key(slot),
            UpdateExpression=SAVE,
            ConditionExpression=f"{HELD} AND #seq <= :seq",
            ExpressionAttributeNames=SAVE_NAMES,
            ExpressionAttributeValues={
                **held,
                ":running": {"S": "running"},
                ":seq": {"N": str(cursor)},
                ":lease_until": {"N": str(now_ms + LEASE_MS)},
                ":checkpoint": {"S": str(cursor)},
                ":now": {"N": str(now_ms)},
            },
            ReturnValues="ALL_NEW",
        )

    def _save_lean(self, slot: str, held: dict[str, Any], cursor: int) -> None:
        self.client.update_item(
            TableName=self.table,
            Key=key(slot),
            UpdateExpression=LEAN_SAVE,
            ConditionExpression=LEAN_HELD,
            ExpressionAttributeNames=LEAN_NAMES,
            ExpressionAttributeValues={
                **held,
                ":checkpoint": {"S": str(cursor)},
                ":lease_until": {"N": str(_now_ms() + LEASE_MS)},
            },
        )

    def finish(self, slot: str, held: dict[str, Any]) -> None:
        self.client.update_item(
            TableName=self.table,
            Key=key(slot),
            UpdateExpression=FINISH,
            ConditionExpression=HELD,
            ExpressionAttributeNames=FINISH_NAMES,
            ExpressionAttributeValues={
                **held,
                ":running": {"S": "running"},
                ":succeeded": {"S": "succeeded"},
                ":now": {"N": str(_now_ms())},
            },
        )

    def check(self, slot: str, batches: int) -> None:
        item = self.read(slot)
        stored = (item["state"]["S"], item["attempt"]["N"], item.get("checkpoint", {}).get("S"))
        wanted = ("succeeded", "1", str(batches) if batches else None)
        require(is_right=stored == wanted, found=item)


def key(slot: str) -> dict[str, Any]:
    return {"pk": {"S": "job#bench"}, "sk": {"S": f"run#{slot}"}}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
