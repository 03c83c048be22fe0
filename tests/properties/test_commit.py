"""Commits under kills, zombies, lost replies and delayed copies: each effect exactly once.

A batch adds one to a counter of its own, so a batch that is applied twice, or whose cursor is
stored without it, is seen. The real code runs at every store call of the explorer.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anarchon_ddb import Run, metrics, protocol
from tests.explorer import Budget, ViolationError, World, explore
from tests.scenarios import (
    BATCHES,
    SCENARIOS,
    Scenario,
    a_resume_and_the_next_slot,
    killed_four_times,
    two_deliveries_of_one,
)
from tests.twin import Twin

NIGHTLY = "NIGHTLY" in os.environ


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(metrics, "emit", lambda *_args, **_options: None)
    monkeypatch.setattr("anarchon_ddb.lease.Lease.start", lambda _self: None)
    logging.disable(logging.CRITICAL)
    save = protocol.save
    save.cache_clear()
    yield
    save.cache_clear()
    logging.disable(logging.NOTSET)


def effect(slot: str, batch: int) -> tuple[str, str]:
    return f"effect#{slot}", str(batch)


def addition(slot: str, batch: int) -> dict[str, Any]:
    key = effect(slot, batch)
    return {
        "Update": {
            "TableName": "effects",
            "Key": {"pk": {"S": key[0]}, "sk": {"S": key[1]}},
            "UpdateExpression": "SET #times = if_not_exists(#times, :zero) + :one",
            "ExpressionAttributeNames": {"#times": "times"},
            "ExpressionAttributeValues": {":zero": {"N": "0"}, ":one": {"N": "1"}},
        }
    }


class Committing(Scenario):
    """The scenario's job, but each batch is committed with its effect."""

    retries_from_start = False  # who begins anew on purpose asks for the effects once more

    def __init__(self, *args: Any, knows_tokens: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.world.twin = Twin(knows_tokens=knows_tokens)
        transact = self.store.transact

        def named(items: Any, token: str, **rest: Any) -> Any:
            self.world.current.write = "commit"
            return transact(items, token, **rest)

        self.store.transact = named  # type: ignore[method-assign]

    def _handler(self, run: Run) -> None:
        slot = f"{run.slot:%Y-%m-%dT%H:%M:%SZ}"
        self.ledger.ran.add(slot)
        for batch in range(run.checkpoint or 0, BATCHES):
            run.commit([addition(slot, batch)], batch + 1)

    def check(self) -> None:
        super().check()
        for (pk, sk), item in self.world.twin.items.items():
            if sk.startswith("run#"):
                self.check_effects(sk.removeprefix("run#"), int(item.get("checkpoint", "0")))
            assert not pk.startswith("effect#") or item["times"] == 1, f"{pk} {sk}: {item['times']}"

    def check_effects(self, slot: str, cursor: int) -> None:
        """At every instant: exactly the batches before the cursor have had their effect."""
        done = [batch for batch in range(BATCHES) if effect(slot, batch) in self.world.twin.items]
        assert done == list(range(cursor)), f"{slot}: batches {done} are done, cursor {cursor}"


def committing(
    overlap: str, script: Callable[[Scenario], None], *, knows_tokens: bool
) -> Callable[[], World]:
    return lambda: Committing(overlap, script, knows_tokens=knows_tokens).world


TRIALS = (
    (two_deliveries_of_one, Budget(deviations=2, kills=2), 250),
    (a_resume_and_the_next_slot, Budget(deviations=3, kills=2, expiries=2), 200),
    (killed_four_times, Budget(deviations=3, kills=3, expiries=2, lost_replies=2), 100),
)


@pytest.mark.parametrize("knows_tokens", [True, False])
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial[0].__name__)
def test_each_effect_happens_exactly_once_in_1100_trials(
    trial: tuple[Any, Budget, int], knows_tokens: bool
) -> None:
    script, budget, limit = trial
    build = committing("skip", script, knows_tokens=knows_tokens)
    assert sum(1 for _ in explore(build, budget, limit=limit)) == limit


def test_every_execution_with_one_deviation_keeps_it() -> None:
    build = committing("skip", two_deliveries_of_one, knows_tokens=False)
    assert sum(1 for _ in explore(build, Budget(deviations=1))) > 20


@pytest.mark.nightly
@pytest.mark.skipif(not NIGHTLY, reason="run by make nightly")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("knows_tokens", [True, False])
@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_nightly_every_execution_with_two_deviations(
    name: str, overlap: str, knows_tokens: bool
) -> None:
    build = committing(overlap, SCENARIOS[name], knows_tokens=knows_tokens)
    count = sum(1 for _ in explore(build, Budget(deviations=2), limit=5_000))
    sys.stdout.write(f"commits {name} {overlap}: {count}\n")


def break_the_seq(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(protocol, "NOT_REPEATED", protocol.NOT_OVERTAKEN)


def break_the_owner(patch: pytest.MonkeyPatch) -> None:
    """Let any earlier holder commit, too."""
    save = protocol.save

    def unfenced(shape: protocol.SaveShape) -> protocol.Write:
        write = save(shape)
        fence = ("#state = :running", "(#owner = :owner OR :attempt <= #attempt)")
        seq = () if shape.committed else (protocol.NOT_OVERTAKEN,)
        return protocol.Write(
            write.name, write.sets, (*fence, *seq), write.removes, write.constants
        )

    patch.setattr(protocol, "save", unfenced)


@pytest.mark.parametrize("break_it", [break_the_seq, break_the_owner])
def test_without_a_part_of_its_fence_an_effect_happens_twice(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_it(monkeypatch)
    build = committing("skip", two_deliveries_of_one, knows_tokens=False)
    with pytest.raises(ViolationError, match=r"effect#|are done, cursor|went from"):
        for _ in explore(build, Budget(deviations=2)):
            pass
