"""The table as it is stored: keys, index, attributes, and an item as a ``RunRecord``.

The same table as ``infra/table.yaml``; a test compares the two.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pynamodb.attributes import NumberAttribute, UnicodeAttribute, UnicodeSetAttribute
from pynamodb.models import Model

from anarchon_ddb.records import Attempt, Head, RunRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anarchon_ddb.records import Value

OPEN_RUNS_INDEX = "open-runs"
TTL_ATTRIBUTE = "expires_at"


def table_description(table: str) -> dict[str, Any]:
    """Return the table as ``CreateTable`` takes it."""
    return {
        "TableName": table,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _keys("pk", "sk"),
        "AttributeDefinitions": [
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
            {"AttributeName": "open", "AttributeType": "S"},
            {"AttributeName": "due", "AttributeType": "N"},
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": OPEN_RUNS_INDEX,
                "KeySchema": _keys("open", "due"),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    }


def _keys(hash_name: str, range_name: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": hash_name, "KeyType": "HASH"},
        {"AttributeName": range_name, "KeyType": "RANGE"},
    ]


@dataclass(frozen=True, slots=True)
class RunKey:
    """Where a run is stored."""

    job: str
    """The job, or an instance of it."""
    slot: str
    """As ``2026-11-29T12:00:00Z``."""

    @property
    def wire(self) -> dict[str, Any]:
        """The primary key as DynamoDB takes it."""
        return {"pk": {"S": f"job#{self.job}"}, "sk": {"S": f"run#{self.slot}"}}

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> RunKey:
        """Return the key of an item as DynamoDB gave it."""
        job, slot = item["pk"]["S"], item["sk"]["S"]
        return cls(job.removeprefix("job#"), slot.removeprefix("run#"))


@dataclass(frozen=True, slots=True)
class HeadKey:
    """Where the gate of a job is stored."""

    job: str

    @property
    def wire(self) -> dict[str, Any]:
        """The primary key as DynamoDB takes it."""
        return {"pk": {"S": f"job#{self.job}"}, "sk": {"S": "head"}}


class HeadItem(Model):
    """The attributes of a gate."""

    pk = UnicodeAttribute(hash_key=True)
    sk = UnicodeAttribute(range_key=True)
    active_slot = UnicodeAttribute(null=True)
    active_attempt = NumberAttribute(default=0)
    waiting = UnicodeSetAttribute(null=True)
    rev = NumberAttribute(default=0)
    paused_until = NumberAttribute(default=0)
    paused_from = NumberAttribute(default=0)
    unpaused_at = NumberAttribute(default=0)
    checked_until = NumberAttribute(default=0)
    policy = UnicodeAttribute(default="")
    rule = UnicodeAttribute(default="")
    rule_since = NumberAttribute(default=0)
    function = UnicodeAttribute(default="")
    pause_note = UnicodeAttribute(default="")


class RunItem(Model):
    """The attributes of a run. Its table's name belongs to the ``Store``, not to this class."""

    pk = UnicodeAttribute(hash_key=True)
    sk = UnicodeAttribute(range_key=True)
    state = UnicodeAttribute()
    attempt = NumberAttribute()
    owner = UnicodeAttribute(default="")
    lease_until = NumberAttribute(default=0)
    strikes = NumberAttribute(default=0)
    seq = NumberAttribute(default=0)
    cause = UnicodeAttribute(default="schedule")
    claimed_at = NumberAttribute(default=0)
    previous_claimed_at = NumberAttribute(default=0)
    started_at = NumberAttribute(default=0)
    used_ms = NumberAttribute(default=0)
    finished_at = NumberAttribute(null=True)
    reason = UnicodeAttribute(null=True)
    error = UnicodeAttribute(null=True)
    checkpoint = UnicodeAttribute(null=True)
    checkpoint_at = NumberAttribute(null=True)
    done = NumberAttribute(null=True)
    total = NumberAttribute(null=True)
    longest_batch_ms = NumberAttribute(default=0)
    longest_save_ms = NumberAttribute(default=0)
    params = UnicodeAttribute(null=True)
    schedule = UnicodeAttribute(null=True)
    function = UnicodeAttribute(default="")
    request_id = UnicodeAttribute(default="")
    dispatched_at = NumberAttribute(null=True)
    expires_at = NumberAttribute(null=True)
    stop_requested = UnicodeAttribute(null=True)
    version = UnicodeAttribute(default="")
    former_state = UnicodeAttribute(default="absent")
    attempts = UnicodeAttribute(null=True)
    open = UnicodeAttribute(null=True)
    due = NumberAttribute(null=True)


_RECORD_FIELDS = tuple(
    name for name in RunRecord.__dataclass_fields__ if name not in {"job", "slot", "attempts"}
)


def to_record(item: dict[str, Any]) -> RunRecord:
    """Return an item, as DynamoDB gave it, as a record.

    Raises
    ------
    ValueError
        If the item is damaged: an attribute has another type, or the history is no list.
    """
    key = RunKey.of(item)
    try:
        run = RunItem.from_raw_data(item)
        known = {name: getattr(run, name) for name in _RECORD_FIELDS}
        attempts = tuple(Attempt(*entry) for entry in json.loads(run.attempts or "[]"))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the item of {key.job} {key.slot} is damaged: {error}") from error
    return RunRecord(job=key.job, slot=key.slot, attempts=attempts, **known)


def to_head(job: str, item: dict[str, Any]) -> Head:
    """Return a gate, as DynamoDB gave it, as a value.

    Raises
    ------
    ValueError
        If the item is damaged.
    """
    try:
        head = HeadItem.from_raw_data(item)
        return Head(
            job=job,
            active_slot=head.active_slot,
            active_attempt=int(head.active_attempt),
            waiting=frozenset(head.waiting or ()),
            rev=int(head.rev),
            paused_until=int(head.paused_until),
            paused_from=int(head.paused_from),
            unpaused_at=int(head.unpaused_at),
            pause_note=head.pause_note,
            checked_until=int(head.checked_until),
            policy=head.policy,
            rule=head.rule,
            rule_since=int(head.rule_since),
            function=head.function,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the head of {job} is damaged: {error}") from error


def pack_attempts(attempts: Sequence[Attempt]) -> str:
    """Return a history as it is stored: compact, since every write pays for the whole item."""
    return json.dumps(
        [[a.number, a.claimed_at_ms, a.ended_at_ms, a.end, a.seq] for a in attempts],
        separators=(",", ":"),
    )


def to_wire(value: Value) -> dict[str, Any]:
    """Return a value as DynamoDB takes it. A set must not be empty: remove the attribute."""
    if isinstance(value, str):
        return {"S": value}
    return {"SS": sorted(value)} if isinstance(value, frozenset) else {"N": str(value)}
