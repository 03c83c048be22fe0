"""The floor: bare botocore, the same conditional writes by hand, and nothing else.

No gate, no heartbeat, no early stop, no log. ``Floor`` sends the very claim, save and finish that
this package sends; ``LeanFloor`` what one might write who keeps a cursor and a lease only.
"""

from __future__ import annotations

import re
import time
from typing import Any
from uuid import uuid4

from tests.bench.endpoint import client, require

LEASE_MS, SKEW_MS = 60_000, 5_000
RETENTION_S = 30 * 86_400
Held = dict[str, Any]
CLAIM = (
    "SET #state = :running, #owner = :owner, #attempt = if_not_exists(#attempt, :zero) + :one, "
    "#strikes = if_not_exists(#strikes, :zero) + :one, #seq = if_not_exists(#seq, :zero), "
    "#lease_until = :lease_until, #previous_claimed_at = if_not_exists(#claimed_at, :now), "
    "#former_state = if_not_exists(#state, :absent), #claimed_at = :now, "
    "#started_at = if_not_exists(#started_at, :now), #open = :shard, #due = :due, "
    "#request_id = :request_id, #function = :function, #cause = if_not_exists(#cause, :cause) "
    "REMOVE #reason, #expires_at, #finished_at"
)
CLAIMABLE = (
    "(attribute_not_exists(#pk) OR #state = :missed OR "
    "#state = :running AND #lease_until < :expired_before OR "
    "#state IN (:pending, :interrupted, :retrying) AND #lease_until <= :now) AND "
    "attribute_not_exists(#params)"
)
SAVE = (
    "SET #lease_until = :lease_until, #seq = :seq, #checkpoint = :checkpoint, #checkpoint_at = :now"
)
HELD = "#state = :running AND #owner = :owner AND #attempt = :attempt"
FINISH = (
    "SET #state = :state, #reason = :reason, #attempts = :attempts, #finished_at = :now, "
    "#expires_at = :expires_at REMOVE #open, #due, #stop_requested, #error"
)
LEAN_CLAIM = (
    "SET #state = :running, #owner = :owner, #attempt = if_not_exists(#attempt, :zero) + :one, "
    "#lease_until = :lease_until"
)
LEAN_CLAIMABLE = "attribute_not_exists(#pk) OR (#state = :running AND #lease_until < :now)"
LEAN_SAVE = "SET #checkpoint = :checkpoint, #lease_until = :lease_until"
LEAN_HELD = "#owner = :owner AND #attempt = :attempt"
LEAN_FINISH = "SET #state = :state"

# The same on every claim: what is no more than a constant of the statement.
CLAIM_CONSTANTS = {
    ":running": {"S": "running"},
    ":pending": {"S": "pending"},
    ":interrupted": {"S": "interrupted"},
    ":retrying": {"S": "retrying"},
    ":missed": {"S": "missed"},
    ":absent": {"S": "absent"},
    ":cause": {"S": "schedule"},
    ":zero": {"N": "0"},
    ":one": {"N": "1"},
    ":shard": {"S": "0"},
    ":request_id": {"S": "5f0c3c0e-6a0f-4d53-9a43-0d2a7f3a2c11"},
    ":function": {"S": "arn:aws:lambda:eu-west-1:123456789012:function:test-function"},
}


def names(*attributes: str) -> dict[str, str]:
    return {f"#{attribute}": attribute for attribute in attributes}


def names_in(*expressions: str) -> dict[str, str]:
    return names(*sorted(set(re.findall(r"#(\w+)", " ".join(expressions)))))


CLAIM_NAMES = names_in(CLAIM, CLAIMABLE)
SAVE_NAMES = names_in(SAVE, HELD)
FINISH_NAMES = names_in(FINISH, HELD)
LEAN_CLAIM_NAMES = names_in(LEAN_CLAIM, LEAN_CLAIMABLE)
LEAN_SAVE_NAMES = names_in(LEAN_SAVE, LEAN_HELD)
LEAN_FINISH_NAMES = names_in(LEAN_FINISH, LEAN_HELD)


class Floor:
    """One run after another, by hand."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.client = client()

    def run(self, slot: str, batches: int) -> None:
        held = self.claim(slot)
        require(is_right=held is not None, found=slot)
        for cursor in range(1, batches + 1):
            self.save(slot, held, cursor)
        self.finish(slot, held)

    def claim(self, slot: str) -> Held | None:
        """Return what each further write needs; None if somebody else holds the run."""
        now_ms = _now_ms()
        values = {
            **CLAIM_CONSTANTS,
            ":owner": {"S": uuid4().hex},
            ":now": {"N": str(now_ms)},
            ":expired_before": {"N": str(now_ms - SKEW_MS)},
            ":lease_until": {"N": str(now_ms + LEASE_MS)},
            ":due": {"N": str(now_ms + LEASE_MS + SKEW_MS)},
        }
        return self._claim(slot, CLAIM, CLAIMABLE, CLAIM_NAMES, values)

    def _claim(
        self, slot: str, update: str, condition: str, named: dict[str, str], values: Held
    ) -> Held | None:
        try:
            reply = self._update(slot, update, condition, named, values, returning="ALL_NEW")
        except self.client.exceptions.ConditionalCheckFailedException:
            return None
        return {":owner": values[":owner"], ":attempt": reply["Attributes"]["attempt"]}

    def _update(
        self,
        slot: str,
        update: str,
        condition: str,
        named: dict[str, str],
        values: Held,
        returning: str = "NONE",
    ) -> dict[str, Any]:
        return self.client.update_item(
            TableName=self.table,
            Key=key(slot),
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeNames=named,
            ExpressionAttributeValues=values,
            ReturnValues=returning,
        )

    def read(self, slot: str) -> dict[str, Any]:
        reply = self.client.get_item(TableName=self.table, Key=key(slot), ConsistentRead=True)
        return reply["Item"]

    def save(self, slot: str, held: Held, cursor: int) -> None:
        now_ms = _now_ms()
        values = {
            **held,
            ":running": {"S": "running"},
            ":seq": {"N": str(cursor)},
            ":lease_until": {"N": str(now_ms + LEASE_MS)},
            ":checkpoint": {"S": str(cursor)},
            ":now": {"N": str(now_ms)},
        }
        condition = f"{HELD} AND #seq <= :seq"
        self._update(slot, SAVE, condition, SAVE_NAMES, values, returning="ALL_NEW")

    def finish(self, slot: str, held: Held) -> None:
        now_ms = _now_ms()
        values = {
            **held,
            ":running": {"S": "running"},
            ":state": {"S": "succeeded"},
            ":reason": {"S": "done"},
            ":attempts": {"S": f'[[1,{now_ms},{now_ms},"succeeded"]]'},
            ":expires_at": {"N": str(now_ms // 1000 + RETENTION_S)},
            ":now": {"N": str(now_ms)},
        }
        self._update(slot, FINISH, HELD, FINISH_NAMES, values, returning="ALL_OLD")

    def check(self, slot: str, batches: int) -> None:
        item = self.read(slot)
        stored = (item["state"]["S"], item["attempt"]["N"], item.get("checkpoint", {}).get("S"))
        wanted = ("succeeded", "1", str(batches) if batches else None)
        require(is_right=stored == wanted, found=item)


class LeanFloor(Floor):
    """A cursor and a lease, no fence against a delayed copy, no history, no answer."""

    def claim(self, slot: str) -> Held | None:
        now_ms = _now_ms()
        values = {
            ":owner": {"S": uuid4().hex},
            ":running": {"S": "running"},
            ":zero": {"N": "0"},
            ":one": {"N": "1"},
            ":now": {"N": str(now_ms)},
            ":lease_until": {"N": str(now_ms + LEASE_MS)},
        }
        return self._claim(slot, LEAN_CLAIM, LEAN_CLAIMABLE, LEAN_CLAIM_NAMES, values)

    def save(self, slot: str, held: Held, cursor: int) -> None:
        values = {
            **held,
            ":checkpoint": {"S": str(cursor)},
            ":lease_until": {"N": str(_now_ms() + LEASE_MS)},
        }
        self._update(slot, LEAN_SAVE, LEAN_HELD, LEAN_SAVE_NAMES, values)

    def finish(self, slot: str, held: Held) -> None:
        values = {**held, ":state": {"S": "succeeded"}}
        self._update(slot, LEAN_FINISH, LEAN_HELD, LEAN_FINISH_NAMES, values)


def key(slot: str) -> dict[str, Any]:
    return {"pk": {"S": "job#bench"}, "sk": {"S": f"run#{slot}"}}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
