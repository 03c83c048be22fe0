"""What happened to a run, told from outside: its attempts, in order, from invocations and table."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from anarchon_ddb import codec, schema
from anarchon_ddb.local.functions import Ended, Started

if TYPE_CHECKING:
    from anarchon_ddb.records import RunRecord
    from anarchon_ddb.schema import RunKey

How = Literal["succeeded", "stopped early", "killed", "timed out", "failed"]


@dataclass(frozen=True, slots=True)
class AttemptStory:
    """One attempt, as a person would tell it."""

    number: int
    resumed_from: str | None
    """The key of the last row that was done before, None for the beginning."""
    rows_before: int
    rows: int
    """Rows that it did and saved."""
    how: How
    detail: str
    cold: bool
    duration_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return the attempt for the JSON summary."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Story:
    """The attempts of one run. ``listen`` is given to the cloud."""

    def __init__(self, dynamodb: Any, table: str, key: RunKey, function: str) -> None:
        self.attempts: list[AttemptStory] = []
        self.refused = 0
        """Deliveries that found the run held or closed: normal, and nothing was done twice."""
        self._dynamodb = dynamodb
        self._table = table
        self._key = key
        self._function = function
        self._before: dict[str, RunRecord | None] = {}
        self._lock = threading.Lock()

    @property
    def attempt(self) -> int:
        """The number of the attempt that works now, or that is to come next."""
        return len(self.attempts) + 1

    def read(self) -> RunRecord | None:
        """Return the run as the table has it now."""
        reply = self._dynamodb.get_item(
            TableName=self._table, Key=self._key.wire, ConsistentRead=True
        )
        return schema.to_record(reply["Item"]) if "Item" in reply else None

    def listen(self, event: Started | Ended) -> AttemptStory | None:
        """Take an invocation into account; return the attempt that ended with it, if one did."""
        if event.function != self._function:
            return None
        with self._lock:
            if isinstance(event, Started):
                self._before[event.request_id] = self.read()
                return None
            return self._ended(event, self._before.pop(event.request_id, None))

    def _ended(self, ended: Ended, before: RunRecord | None) -> AttemptStory | None:
        after = self.read()
        number = before.attempt + 1 if before else 1
        if after is None or after.attempt < number or after.request_id != ended.request_id:
            self.refused += 1
            return None
        rows_before = (before.done or 0) if before else 0
        how, detail = _how(ended)
        told = AttemptStory(
            number=number,
            resumed_from=_position(before),
            rows_before=rows_before,
            rows=(after.done or 0) - rows_before,
            how=how,
            detail=detail,
            cold=ended.cold,
            duration_s=round(ended.duration_s, 2),
        )
        self.attempts.append(told)
        return told


def _how(ended: Ended) -> tuple[How, str]:
    if ended.end == "returned":
        outcome = ended.payload["outcome"]
        if outcome == "interrupted":
            return "stopped early", str(ended.payload["reason"])
        return ("succeeded", "") if outcome == "succeeded" else ("failed", str(outcome))
    text = str(ended.payload["errorMessage"])
    if ended.end == "raised":
        return "failed", text
    return ("killed" if ended.end == "exited" else "timed out"), text


def _position(record: RunRecord | None) -> str | None:
    """Return the key that a scan's checkpoint names."""
    if record is None or record.checkpoint is None:
        return None
    key: dict[str, Any] = codec.loads(record.checkpoint).get("ExclusiveStartKey", {})
    values = [content for value in key.values() for content in value.values()]
    return ", ".join(map(str, values)) or "the end"
