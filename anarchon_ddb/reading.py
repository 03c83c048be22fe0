"""The table as people read it: lists over many items, where a damaged one is shown.

Only the command line reads so. Every read of the base table is consistent, every page is followed,
and nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anarchon_ddb.errors import StoreError
from anarchon_ddb.records import (
    OPEN_STATES,
    TERMINAL_STATES,
    Damaged,
    Head,
    RunRecord,
    check_sound,
)
from anarchon_ddb.schema import HeadKey, RunKey, to_head, to_record, to_wire
from anarchon_ddb.store import PAUSES_S, Store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_BATCH = 100
"""Keys in one BatchGetItem: DynamoDB takes no more."""


class ReadingStore(Store):
    """The table, with what a person asks of it."""

    def query_runs(
        self, job: str, *, first: str, last: str, states: Collection[str] = (), page: int = 0
    ) -> Iterator[RunRecord | Damaged]:
        """Read the runs of a job, newest first, consistently, page after page.

        Parameters
        ----------
        first, last : str
            Slots, as they are stored; both are included.
        states : collection of str
            Only runs in these, and items whose state is none at all.
        page : int
            Items to look at in one call; 0 for as many as DynamoDB gives.
        """
        request = self._range(job, first, last) | {"ScanIndexForward": False}
        if states:
            _add_state_filter(request, states)
        if page:
            request["Limit"] = page
        yield from map(_record_or_damage, self._items(request))

    def read_runs(self, keys: Sequence[RunKey]) -> Iterator[RunRecord | Damaged]:
        """Read runs, consistently, a hundred in a call; those that don't exist are left out."""
        yield from map(_record_or_damage, self._read_many(keys))

    def read_heads(self, jobs: Sequence[str]) -> dict[str, Head | Damaged]:
        """Read the gates of jobs, consistently, a hundred in a call."""
        found: dict[str, Head | Damaged] = {job: Head(job) for job in jobs}
        for item in self._read_many([HeadKey(job) for job in jobs]):
            job = item["pk"]["S"].removeprefix("job#")
            try:
                found[job] = to_head(job, item)
            except ValueError as error:
                found[job] = Damaged(job, "", str(error))
        return found

    def replicas(self) -> list[str]:
        """Return the other regions that the table is written in: a claim is granted in each."""
        reply = self._call("DescribeTable", {"TableName": self.table}) or {}
        return [one["RegionName"] for one in reply["Table"].get("Replicas") or ()]

    def _read_many(self, keys: Sequence[RunKey | HeadKey]) -> Iterator[dict[str, Any]]:
        for start in range(0, len(keys), _BATCH):
            wanted = [key.wire for key in keys[start : start + _BATCH]]
            for pause_s in (*PAUSES_S, 0):
                asked = {self.table: {"Keys": wanted, "ConsistentRead": True}}
                reply = self._patiently("BatchGetItem", {"RequestItems": asked}, 0) or {}
                yield from reply.get("Responses", {}).get(self.table, ())
                wanted = reply.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", ())
                if not wanted:
                    break
                self.clock.sleep(pause_s)
            else:
                raise StoreError(
                    f"table {self.table!r}: {len(wanted)} items were not read: DynamoDB throttles",
                    retryable=True,
                )


def _add_state_filter(request: dict[str, Any], states: Collection[str]) -> None:
    """Let DynamoDB leave out what is not asked for, but not what has no state of ours."""
    every = sorted(OPEN_STATES | TERMINAL_STATES)
    names = {state: f":{state}" for state in every}
    wanted = ", ".join(names[state] for state in sorted(states))
    known = ", ".join(names.values())
    request["FilterExpression"] = f"#state IN ({wanted}) OR NOT #state IN ({known})"
    request["ExpressionAttributeNames"]["#state"] = "state"
    request["ExpressionAttributeValues"] |= {name: to_wire(state) for state, name in names.items()}


def _record_or_damage(item: dict[str, Any]) -> RunRecord | Damaged:
    key = RunKey.of(item)
    try:
        record = to_record(item)
        check_sound(record)
    except ValueError as error:
        return Damaged(key.job, key.slot, str(error))
    return record
