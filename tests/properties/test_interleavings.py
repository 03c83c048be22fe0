"""The real code, interleaved at every store call: the promises hold after every step.

`make test` runs a part of what `make nightly` runs whole; each finding names the choices that
repeat it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anarchon_ddb import ending, metrics, passage
from tests import scenarios
from tests.explorer import LEASE_AND_SKEW_S, Budget, ViolationError, execute, explore, play
from tests.scenarios import SCENARIOS, Mutant, Scenario, building

NIGHTLY = "NIGHTLY" in os.environ
POLICIES = ("skip", "queue", "allow")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(metrics, "emit", lambda *_args, **_options: None)
    monkeypatch.setattr("anarchon_ddb.lease.Lease.start", lambda _self: None)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("overlap", POLICIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_execution_with_one_deviation_keeps_the_promises(name: str, overlap: str) -> None:
    build = building(overlap, SCENARIOS[name])
    assert sum(1 for _ in explore(build, Budget(deviations=1))) > 20


@pytest.mark.parametrize("overlap", POLICIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_sample_with_three_deviations_keeps_the_promises(name: str, overlap: str) -> None:
    build = building(overlap, SCENARIOS[name])
    assert sum(1 for _ in explore(build, Budget(deviations=3, kills=2), limit=60)) == 60


@pytest.mark.nightly
@pytest.mark.skipif(not NIGHTLY, reason="run by make nightly")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("overlap", POLICIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nightly_every_execution_with_two_deviations(
    name: str, overlap: str, record_property: Callable[[str, object], None]
) -> None:
    count = sum(1 for _ in explore(building(overlap, SCENARIOS[name]), Budget(deviations=2)))
    record_property("interleavings", count)  # told by `make nightly ARGS=--junitxml=FILE`
    assert count > 1_000


# --- what goes wrong without a detail of the protocol: each must be found -----------------------

TRAPS = {
    "save-without-seq": Mutant("save", "#seq <= :seq"),
    "claim-without-lease": Mutant("claim", "#lease_until < :expired_before", "#pk = #pk"),
    "claim-of-what-has-ended": Mutant(
        "claim", "attribute_not_exists(#pk)", "attribute_not_exists(#pk) OR #pk = #pk"
    ),
    "gate-without-who-is-active": Mutant("pass", "attribute_not_exists(#active_slot)", "#pk = #pk"),
    "gate-without-who-waits": Mutant("pass", "attribute_not_exists(#waiting)", "#pk = #pk"),
    "wait-not-as-read": Mutant("wait", "#rev = :rev"),
    "pause-not-in-the-gate": Mutant("pass", "#paused_until <= :now", "#pk = #pk"),
}


QUIET = {"expiries": 0, "lost_replies": 0, "copies": 0, "kills": 0}
BUDGETS = (
    Budget(deviations=1),
    Budget(deviations=2, **QUIET),
    Budget(deviations=2, **QUIET | {"expiries": 1}),
)


def search(mutant: Mutant) -> str:
    """Return the first finding of a mutant; empty if none."""
    for budget in BUDGETS:
        for overlap in ("queue", "skip"):
            for script in SCENARIOS.values():
                try:
                    for _ in explore(building(overlap, script, mutant), budget, limit=500):
                        pass
                except ViolationError as violation:
                    return str(violation)
    return ""


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_found_when_its_detail_is_removed(trap: str) -> None:
    assert search(TRAPS[trap])


def test_a_finding_can_be_repeated_from_its_choices() -> None:
    mutant = TRAPS["save-without-seq"]
    build = building("queue", scenarios.two_slots, mutant)
    with pytest.raises(ViolationError) as first:
        for _ in explore(build, Budget(deviations=1)):
            pass
    choices = [
        int(part) for part in str(first.value).split("choices [")[1].split("]")[0].split(",")
    ]
    with pytest.raises(ViolationError, match="back to"):
        execute(build, choices, Budget(deviations=1))


LATE_CLEAR = [
    ("w1", "clear"),  # A has succeeded, its first attempt has not left the gate yet
    ("op", "end"),  # a person retries A
    ("w2", "save"),  # A's second attempt is past the gate
    ("w1", "end"),  # the late clear
    ("w3", "save"),  # does B pass beside A?
]
NO_ATTEMPT = " AND #active_attempt <= :attempt"


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_late_clear_does_not_open_the_gate_beside_the_second_attempt(overlap: str) -> None:
    play(building(overlap, scenarios.a_forced_retry)(), LATE_CLEAR)


def test_the_trap_of_a_gate_without_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "anarchon_ddb.gate.is_left_by", lambda head, slot, _: head.active_slot == slot
    )
    mutant = Mutant("clear", NO_ATTEMPT)
    with pytest.raises(AssertionError, match="two live runs past the gate"):
        play(building("queue", scenarios.a_forced_retry, mutant)(), LATE_CLEAR)


WITH_OLD_COPY = [*LATE_CLEAR[:3], ("copy", "w1 pass"), *LATE_CLEAR[3:]]


def test_a_delayed_copy_of_an_old_gate_write_takes_nothing_back() -> None:
    play(building("queue", scenarios.a_forced_retry)(), WITH_OLD_COPY)


def test_the_trap_of_a_gate_that_an_older_attempt_may_take_back() -> None:
    mutant = Mutant("pass", NO_ATTEMPT)
    with pytest.raises(AssertionError, match="two live runs past the gate"):
        play(building("queue", scenarios.a_forced_retry, mutant)(), WITH_OLD_COPY)


def kill_again_and_again(mutant: Mutant | None) -> str:
    """Kill each attempt in its batch, four times; return the run's state afterwards."""
    scenario = Scenario("skip", scenarios.killed_four_times, max_attempts=2)
    scenario.mutant = mutant
    scenario.world.end = lambda: None
    for name in ("w1", "w2", "w3", "w4"):
        _play_on(scenario, name)
        scenario.world.clock.advance(seconds=LEASE_AND_SKEW_S)
    return str(scenario.item(scenarios.A).get("state"))


def _play_on(scenario: Scenario, name: str) -> None:
    worker = next(one for one in scenario.world.workers if one.name == name)
    worker.start()
    while not worker.is_done and worker.next_call != "save":
        worker.step()
    if not worker.is_done:
        worker.kill()


def test_a_crash_is_counted_although_it_can_count_nothing() -> None:
    assert kill_again_and_again(None) == "failed"


def test_the_trap_of_a_strike_that_is_not_written_at_the_start() -> None:
    counted = "#strikes = if_not_exists(#strikes, :zero) + :one"
    assert kill_again_and_again(Mutant("claim", counted, "#strikes = :zero")) == "running"


def wait_again_and_again(mutant: Mutant | None) -> str:
    """Send B on its way five times while A works; return how B is told at last."""
    scenario = Scenario("queue", scenarios.waits_five_times, max_attempts=2)
    scenario.mutant = mutant
    play(
        scenario.world,
        [("w1", "save"), *((f"w{number}", "end") for number in range(2, 7)), ("w1", "end")],
    )
    return str(scenario.item(scenarios.B)["state"])


def test_a_slot_that_waits_uses_up_no_attempt() -> None:
    assert wait_again_and_again(None) == "succeeded"


def test_the_trap_of_a_strike_that_is_counted_while_waiting() -> None:
    with pytest.raises(AssertionError, match="failed and never ran"):
        wait_again_and_again(Mutant("let_go", "#strikes = :strikes", "#reason = :state"))


def take_over_a_closed_run() -> str:
    """A was killed and has no attempt left; B comes. Return B's end."""
    scenario = Scenario("skip", scenarios.two_slots, max_attempts=1)
    scenario.world.workers[0].start()
    _kill_in_batch(scenario)
    scenario.world.clock.advance(seconds=LEASE_AND_SKEW_S)
    scenario.world.workers[1].start()
    while not scenario.world.workers[1].is_done:
        scenario.world.workers[1].step()
        scenario.check()
    assert scenario.item(scenarios.A)["state"] == "failed"
    return str(scenario.item(scenarios.B)["state"])


def _kill_in_batch(scenario: Scenario) -> None:
    worker = scenario.world.workers[0]
    while worker.next_call != "save":
        worker.step()
    worker.kill()


def test_a_slot_runs_if_the_abandoned_run_ends_at_its_claim() -> None:
    assert take_over_a_closed_run() == "succeeded"


def test_the_trap_of_skipping_before_the_older_run_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = passage._take_over

    def skip_first(held: Any, claim: Any, slot: str) -> Any:
        ending.skip(held, "overlap")
        return original(held, claim, slot) or ending.overtaken(held, "it was skipped")

    monkeypatch.setattr(passage, "_take_over", skip_first)
    assert take_over_a_closed_run() == "skipped"  # and A has ended: nothing runs
