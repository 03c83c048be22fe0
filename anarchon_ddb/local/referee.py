"""Watches each write to the table of runs, and counts what speaks for the promises and against.

It knows the promises, not the code that keeps them: it reads the item that a write left, compares
it with the one before, and asks who wrote and when.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anarchon_ddb import schema
from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.records import OPEN_STATES, TERMINAL_STATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.local.aws import Call
    from anarchon_ddb.records import RunRecord

Key = tuple[str, str]
"""A job and a slot."""


@dataclass(slots=True)
class Seen:
    """What was seen of one run."""

    record: RunRecord
    holder: str = ""
    """The sandbox that made the last claim."""
    ends: int = 0


@dataclass(slots=True)
class Referee:
    """What all writes so far showed.

    Attributes
    ----------
    counts : Counter
        ``claims``, ``takeovers``, ``saves``, ``ends``, ``resumed`` and the like.
    broken : dict
        By the number of a promise: what broke it, in words.
    """

    dynamodb: Any
    tables: frozenset[str]
    clock: Clock
    counts: Counter[str] = field(default_factory=Counter)
    broken: dict[int, list[str]] = field(default_factory=dict)
    runs: dict[Key, Seen] = field(default_factory=dict)
    _heads: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _gated: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, call: Call) -> None:
        """Look at a call that was served: the embedded AWS calls this before it answers."""
        if not call.is_write or not call.body:
            return
        if call.status != 200:
            self.counts["refused"] += call.status == 400
            return
        for table, key, kind in _written(call.operation, json.loads(call.body)):
            if table in self.tables and key.get("pk", {}).get("S", "").startswith("job#"):
                with self._lock:
                    self._look(table, key, kind, call.signer)

    def _look(self, table: str, key: dict[str, Any], kind: str, signer: str) -> None:
        job, part = key["pk"]["S"].removeprefix("job#"), key["sk"]["S"]
        if kind != "Update" and "@" in signer:
            self._break(8, f"{signer} made a {kind} of {job} {part}: items are only updated")
        reply = self.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)
        item = reply.get("Item")
        if item is None:
            return
        if part == "head":
            self._heads[job] = item
            if "active_slot" in item:
                self._gated.add(job)
        elif "state" in item:
            self._run_written(schema.to_record(item), signer)

    def _run_written(self, after: RunRecord, signer: str) -> None:
        key = (after.job, after.slot)
        seen = self.runs.get(key)
        before = seen.record if seen is not None else None
        if seen is None:
            seen = self.runs[key] = Seen(after)
        # A person's release raises the attempt, too, and nobody holds the run behind it.
        is_next = after.attempt > (before.attempt if before is not None else 0)
        if is_next and after.state == "running":
            self._claimed(before, after)
            seen.holder = signer
        elif before is not None and after.checkpoint != before.checkpoint:
            self._saved(seen, before, after, signer)
        if before is None or before.state not in TERMINAL_STATES or before.state == "missed":
            if after.state in TERMINAL_STATES:
                self._ended(seen, before, after)
        elif after.state in OPEN_STATES and before.attempt == after.attempt:
            seen.ends = 0  # a person let it begin anew
        seen.record = after

    def _claimed(self, before: RunRecord | None, after: RunRecord) -> None:
        self.counts["claims"] += 1
        if before is None:
            return
        name = f"{after.job} {after.slot}: attempt {after.attempt}"
        if before.state == "running":
            self.counts["takeovers"] += 1
            if before.lease_until > self.clock.now_ms():
                until = iso(from_ms(before.lease_until))
                self._break(1, f"{name} was claimed while attempt {before.attempt} held a lease "
                            f"until {until}")  # fmt: skip
        if before.state in TERMINAL_STATES - {"missed"}:
            self._break(2, f"{name} was claimed although the run was {before.state}")
        if before.checkpoint is not None:
            self.counts["resumed"] += 1
            if after.checkpoint != before.checkpoint:
                self._break(5, f"{name} did not begin at the checkpoint that was saved")

    def _saved(self, seen: Seen, before: RunRecord, after: RunRecord, signer: str) -> None:
        name = f"{after.job} {after.slot}: attempt {after.attempt}"
        if "@" not in signer:  # a person moved it
            return
        self.counts["saves"] += 1
        if before.state != "running" or before.owner != after.owner or signer != seen.holder:
            self._break(4, f"{name}: {signer} moved the checkpoint, and {seen.holder} holds it")
        if after.checkpoint is None and after.state in {"failed", "cancelled"}:
            self._break(4, f"{name}: its end as {after.state} cleared the checkpoint")
        active = self._heads.get(after.job, {}).get("active_slot", {}).get("S")
        if after.job in self._gated and after.state == "running":
            self.counts["saves past the gate"] += 1
            if active != after.slot:
                self._break(3, f"{name} worked while the gate was {active or 'free'}")

    def _ended(self, seen: Seen, before: RunRecord | None, after: RunRecord) -> None:
        if before is not None and before.state == "missed":
            return
        self.counts[f"ended {after.state}"] += 1
        seen.ends += 1
        if seen.ends > 1 and (before is None or before.state != "missed"):
            self._break(2, f"{after.job} {after.slot} ended {seen.ends} times")

    def _break(self, promise: int, how: str) -> None:
        self.broken.setdefault(promise, []).append(f"{iso(from_ms(self.clock.now_ms()))} {how}")


def _written(operation: str, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the table, the key and the kind of each write of a request."""
    single = {"UpdateItem": "Update", "DeleteItem": "Delete", "PutItem": "Put"}
    actions: list[dict[str, Any]] = request.get("TransactItems", [])
    if operation in single:
        actions = [{single[operation]: request}]
    for action in actions:
        for kind, inner in action.items():
            if kind in {"Update", "Delete"}:
                yield inner["TableName"], inner["Key"], kind
            elif kind == "Put":
                key = {name: inner["Item"].get(name, {}) for name in ("pk", "sk")}
                yield inner["TableName"], key, kind
