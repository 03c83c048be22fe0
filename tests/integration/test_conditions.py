"""Every condition of every write, one by one: a write that breaks only that condition is refused.

And the proof that each refusal is the condition's: with it dropped, the same write is granted. The
same runs on moto, on the explorer's twin, and, where Node is there, on dynalite.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from anarchon_ddb import gate, interventions, protocol
from anarchon_ddb.protocol import Write
from anarchon_ddb.schema import HeadKey, RunKey
from anarchon_ddb.store import Store
from tests.dynalite import Dynalite
from tests.twin import Twin, encode

NOW = 1_795_953_605_000
KEY = RunKey("export", "2026-11-29T12:00:00Z")
HEAD = HeadKey("export")

RUNNING: dict[str, Any] = {"state": "running", "owner": "me", "attempt": 2, "seq": 5,
                           "strikes": 1, "lease_until": NOW + 60_000, "open": "1", "due": NOW,
                           "claimed_at": NOW, "started_at": NOW}  # fmt: skip
INTERRUPTED = RUNNING | {"state": "interrupted", "lease_until": 0}
MINE: dict[str, Any] = {"active_slot": KEY.slot, "active_attempt": 1, "rev": 4}

CLAIMING: dict[str, Any] = {"owner": "new", "lease_until": NOW + 60_000, "now": NOW, "due": NOW,
                            "expired_before": NOW - protocol.CLOCK_SKEW_MS, "request_id": "r",
                            "function": "f", "shard": "1"}  # fmt: skip
HOLDING: dict[str, Any] = {"owner": "me", "attempt": 2}
WRITING = HOLDING | {"seq": 6, "lease_until": NOW + 70_000}
PACE = {"longest_batch_ms": 1, "longest_save_ms": 1}
LETTING_GO = HOLDING | {"state": "interrupted", "lease_until": 0, "due": NOW, "attempts": "[]"}
ENDING = HOLDING | {"state": "succeeded", "reason": "done", "attempts": "[]", "now": NOW,
                    "expires_at": 9}  # fmt: skip
AS_READ = {"read_state": "interrupted", "read_attempt": 2, "read_lease_until": 0}
PASSING = {"slot": KEY.slot, "attempt": 2, "now": NOW}

PLAIN_SAVE = protocol.save(protocol.SaveShape(*[False] * 6))


@dataclass(frozen=True)
class Case:
    """A write that is granted on ``item``, and what breaks each of its conditions."""

    write: Write
    item: dict[str, Any]
    values: dict[str, Any]
    breaks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By the condition that is dropped: what of the item is changed. None removes."""

    @property
    def key(self) -> RunKey | HeadKey:
        in_head = "active_slot" in self.item or "rev" in self.item or not self.item.get("state")
        return HEAD if in_head and self.write.name not in {"claim", "trace"} else KEY


HELD_BREAKS: dict[str, dict[str, Any]] = {
    "#state = :running": {"state": "interrupted"},
    "#owner = :owner": {"owner": "other"},
    "#attempt = :attempt": {"attempt": 3},
}
READ_BREAKS: dict[str, dict[str, Any]] = {
    "#state = :read_state": {"state": "pending"},
    "#attempt = :read_attempt": {"attempt": 3},
    "#lease_until = :read_lease_until": {"lease_until": 1},
}
EXPIRED_ITEM = RUNNING | {"lease_until": NOW - protocol.CLOCK_SKEW_MS - 1}

CASES = {
    "claim-absent": Case(
        protocol.claim_first(with_params=False),
        {},
        CLAIMING | {"cause": "schedule"},
        {"attribute_not_exists(#params)": {"state": "missed", "attempt": 0, "params": "{}"}},
    ),
    "claim-first-with-params": Case(
        protocol.claim_first(with_params=True),
        INTERRUPTED | {"params": "{}"},
        CLAIMING | {"cause": "schedule", "params": "{}"},
        {"#params = :params": {"params": "other"}},
    ),
    "claim-expired": Case(
        protocol.CLAIM_RESUME,
        EXPIRED_ITEM,
        CLAIMING,
        {
            " AND #lease_until < :expired_before": {
                "lease_until": NOW - protocol.CLOCK_SKEW_MS
            },
            "#state = :running AND ": {"state": "succeeded"},
        },
    ),
    "claim-let-go": Case(
        protocol.CLAIM_RESUME,
        INTERRUPTED,
        CLAIMING,
        {
            " AND #lease_until <= :now": {"lease_until": NOW + 1},
            "#state IN (:pending, :interrupted, :retrying) AND ": {"state": "cancelled"},
        },
    ),
    "save": Case(
        PLAIN_SAVE,
        RUNNING,
        WRITING | PACE | {"checkpoint": "1", "now": NOW},
        HELD_BREAKS | {"#seq <= :seq": {"seq": 7}},
    ),
    "commit": Case(
        protocol.save(protocol.SaveShape(*[False] * 6, committed=True)),
        RUNNING,
        WRITING | PACE | {"checkpoint": "1", "now": NOW},
        HELD_BREAKS | {"#seq < :seq": {"seq": 6}},
    ),
    "renew": Case(protocol.RENEW, RUNNING, WRITING, HELD_BREAKS | {"#seq <= :seq": {"seq": 7}}),
    "let-go": Case(
        protocol.let_go(clock_stops=False, recount=False, explained=False),
        RUNNING,
        LETTING_GO,
        HELD_BREAKS,
    ),
    "finish": Case(protocol.finish(explained=False), RUNNING, ENDING, HELD_BREAKS),
    "dispatch": Case(
        protocol.DISPATCH,
        INTERRUPTED | {"dispatched_at": NOW - 60_000},
        {"attempt": 2, "now": NOW, "dispatched_before": NOW - 50_000},
        {
            "attribute_exists(#open)": {"open": None, "due": None},
            "#attempt = :attempt": {"attempt": 3},
            " OR #dispatched_at < :dispatched_before": {"dispatched_at": NOW},
        },
    ),
    "stop": Case(
        interventions.STOP,
        RUNNING,
        {"stop": "cancel", "read_state": "running", "read_attempt": 2},
        {
            "#state = :read_state": {"state": "succeeded"},
            "#attempt = :read_attempt": {"attempt": 3},
        },
    ),
    "cancel": Case(
        interventions.CANCEL,
        INTERRUPTED,
        AS_READ | {"reason": "cancelled", "now": NOW, "expires_at": 9},
        READ_BREAKS,
    ),
    "retry": Case(
        interventions.retry(from_start=False),
        INTERRUPTED,
        AS_READ | {"shard": "1", "now": NOW},
        READ_BREAKS,
    ),
    "release": Case(
        interventions.RELEASE,
        RUNNING,
        {"read_state": "running", "read_attempt": 2, "read_lease_until": NOW + 60_000,
         "read_owner": "me", "next_attempt": 3, "now": NOW, "attempts": "[]"},
        {
            "#state = :read_state": {"state": "interrupted"},
            "#attempt = :read_attempt": {"attempt": 4},
            "#lease_until = :read_lease_until": {"lease_until": 1},
            "#owner = :read_owner": {"owner": "other"},
        },
    ),
    "rewind": Case(
        interventions.REWIND,
        INTERRUPTED,
        AS_READ | {"checkpoint": "7", "now": NOW},
        READ_BREAKS,
    ),
    "rest": Case(
        interventions.REST,
        INTERRUPTED,
        AS_READ | {"used_ms": 5},
        READ_BREAKS | {"attribute_exists(#started_at)": {"started_at": None}},
    ),
    "pass-free": Case(
        gate.passing(with_policy=False),
        {"rev": 3},
        PASSING,
        {
            "attribute_not_exists(#active_slot) AND ": {"active_slot": "other",
                                                        "active_attempt": 1},
            " AND attribute_not_exists(#waiting)": {"waiting": frozenset({"w"})},
            "(attribute_not_exists(#paused_until) OR #paused_until <= :now) AND ": {
                "paused_until": NOW + 1
            },
        },
    ),
    "pass-mine": Case(
        gate.passing(with_policy=False),
        MINE,
        PASSING,
        {
            "#active_slot = :slot AND ": {"active_slot": "other"},
            " AND #active_attempt <= :attempt": {"active_attempt": 3},
        },
    ),
    "hand": Case(
        gate.hand(some_wait=False),
        {"rev": 4, "waiting": frozenset({"w"})},
        PASSING | {"rev": 4},
        {
            "#rev = :rev AND ": {"rev": 5},
            " AND (attribute_not_exists(#paused_until) OR #paused_until <= :now)": {
                "paused_until": NOW + 1
            },
        },
    ),
    "wait": Case(
        gate.WAIT,
        MINE,
        {"waiting": frozenset({"w"}), "rev": 4},
        {"#rev = :rev": {"rev": 5}},
    ),
    "clear": Case(
        gate.CLEAR,
        MINE,
        {"slot": KEY.slot, "attempt": 2, "rev": 4},
        {
            "#active_slot = :slot AND ": {"active_slot": "other"},
            " AND #active_attempt <= :attempt": {"active_attempt": 3},
            " AND #rev = :rev": {"rev": 5},
        },
    ),
    "hand-over": Case(
        gate.hand_over(some_wait=False),
        MINE | {"waiting": frozenset({"w"})},
        {"slot": KEY.slot, "attempt": 2, "rev": 4, "next": "w"},
        {
            "#active_slot = :slot AND ": {"active_slot": "other"},
            " AND #active_attempt <= :attempt": {"active_attempt": 3},
            " AND #rev = :rev": {"rev": 5},
        },
    ),
    "pause": Case(
        gate.pause(fresh=False),
        MINE,
        {"until": NOW, "note": "", "rev": 4, "now": NOW},
        {"#rev = :rev": {"rev": 5}},
    ),
    "pause-fresh": Case(
        gate.pause(fresh=True),
        {},
        {"until": NOW, "note": "", "now": NOW},
        {"attribute_not_exists(#rev)": {"rev": 1}},
    ),
    "unpause": Case(
        gate.UNPAUSE,
        MINE | {"paused_until": NOW + 1},
        {"rev": 4, "now": NOW},
        {"#rev = :rev": {"rev": 5}},
    ),
    "policy": Case(
        gate.POLICY,
        {"rev": 1, "policy": "old"},
        {"policy": "new", "read_policy": "old"},
        {" OR #policy = :read_policy": {"policy": "other"}},
    ),
    "rule": Case(
        gate.RULE,
        {"rev": 1, "rule": "old"},
        {"rule": "new", "read_rule": "old", "function": "f", "now": NOW},
        {" OR #rule = :read_rule": {"rule": "other"}},
    ),
    "checked": Case(
        gate.CHECKED,
        {"rev": 1, "checked_until": 5},
        {"checked_until": 6},
        {" OR #checked_until < :checked_until": {"checked_until": 6}},
    ),
    "trace": Case(
        protocol.TRACE,
        {},
        {"state": "missed", "reason": "undelivered", "cause": "catch_up", "now": NOW,
         "expires_at": 9},
        {"attribute_not_exists(#pk)": {"state": "running", "attempt": 1}},
    ),
}  # fmt: skip
BROKEN = [(name, clause) for name, case in CASES.items() for clause in case.breaks]


class TwinStore(Store):
    """The store on the explorer's twin."""

    def __init__(self) -> None:
        super().__init__("twin")
        self.twin = Twin()
        self._connection = self.twin  # type: ignore[assignment]

    def put(self, item: dict[str, Any]) -> None:
        self.twin.items[item["pk"], item["sk"]] = item


@pytest.fixture(scope="module")
def on_dynalite(dynalite: Dynalite) -> Store:
    return dynalite.new_table()


@pytest.fixture(params=["moto", "twin", "dynalite"])
def table(request: pytest.FixtureRequest) -> Store:
    if request.param == "twin":
        return TwinStore()
    if request.param == "moto":
        moto: Store = request.getfixturevalue("store")
        return moto
    store: Store = request.getfixturevalue("on_dynalite")
    for key in (KEY, HEAD):
        store.client.delete_item(TableName=store.table, Key=key.wire)
    return store


def put(store: Store, key: RunKey | HeadKey, attributes: dict[str, Any]) -> None:
    wire = key.wire | {
        name: encode(value) for name, value in attributes.items() if value is not None
    }
    if isinstance(store, TwinStore):
        plain = {name: value for name, value in attributes.items() if value is not None}
        store.put({"pk": wire["pk"]["S"], "sk": wire["sk"]["S"], **plain})
    else:
        store.client.put_item(TableName=store.table, Item=wire)


def send(store: Store, case: Case, write: Write) -> bool:
    """Send a write with just the values that its expressions use."""
    used = f"{write.update} {write.condition}"
    every = {**case.write.constants, **case.values}
    values = {name: every[name] for name in every if f":{name}" in _placeholders(used)}
    plain = dataclasses.replace(write, constants={})
    return store.write(case.key, plain, values) is not None


def _placeholders(text: str) -> set[str]:
    return set(re.findall(r":\w+", text))


@pytest.mark.parametrize("name", CASES)
def test_a_write_whose_conditions_hold_is_granted(table: Store, name: str) -> None:
    case = CASES[name]
    if case.item:
        put(table, case.key, case.item)
    assert send(table, case, case.write)


@pytest.mark.parametrize(("name", "clause"), BROKEN, ids=[f"{n}: {c}" for n, c in BROKEN])
def test_a_write_that_breaks_one_condition_is_refused(table: Store, name: str, clause: str) -> None:
    case = CASES[name]
    put(table, case.key, case.item | case.breaks[clause])
    assert not send(table, case, case.write)


@pytest.mark.parametrize(("name", "clause"), BROKEN, ids=[f"{n}: {c}" for n, c in BROKEN])
def test_without_that_condition_it_would_be_granted(name: str, clause: str) -> None:
    """The mutation: else the refusal above might be another condition's."""
    case, twin = CASES[name], TwinStore()
    put(twin, case.key, case.item | case.breaks[clause])
    condition = case.write.condition
    assert clause in condition
    mutant = condition.replace(clause, "", 1).strip()
    mutant = mutant.removeprefix("AND ").removesuffix(" AND").replace("AND  AND", "AND")
    if clause == "#params = :params":
        mutant = condition.replace(clause, "attribute_exists(#pk)")
    if clause.startswith(" OR "):  # a part of an alternative: it becomes always true
        mutant = condition.replace(clause, " OR attribute_exists(#pk)")
    write = dataclasses.replace(
        case.write, requires=(mutant or "attribute_exists(#pk)",), constants={}
    )
    assert send(twin, case, write)


def test_no_condition_is_left_out() -> None:
    """Each write of the protocol is a case here, with each of its conditions broken once."""
    told = {case.write.name for case in CASES.values()}
    assert told == {
        "claim", "save", "renew", "let_go", "finish", "dispatch", "stop", "cancel", "retry",
        "release", "rewind", "rest", "pass", "hand", "wait", "clear", "hand_over", "pause",
        "unpause", "policy", "checked", "trace", "rule",
    }  # fmt: skip
    for name, case in CASES.items():
        if not name.startswith(
            ("claim", "pass", "dispatch", "policy", "checked", "rule")
        ):  # their parts are alternatives
            text = " ".join(case.breaks)
            for required in case.write.requires:
                for part in required.strip("()").split(" AND "):
                    assert part.strip("()") in text, f"{name}: nothing breaks {part}"
