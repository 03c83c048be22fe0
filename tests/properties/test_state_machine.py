"""Anything in any order: deliveries, duplicates, late slots, kills, faults, clocks that differ, an
operator. After every step the promises hold, and at the end everything can still come to its end.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from anarchon_ddb import StoreError, metrics
from anarchon_ddb.errors import RefusedError
from anarchon_ddb.lease import Lease
from anarchon_ddb.protocol import CLOCK_SKEW_MS
from tests.explorer import Killed
from tests.scenarios import A, B, C, Scenario

NIGHTLY = "NIGHTLY" in os.environ
SLOTS = st.sampled_from([A, B, C])
CALLS = st.integers(0, 9)
FAULTS = st.sampled_from(["kill", "throttle", "lost reply", "unknown"])
SKEWS = st.integers(-CLOCK_SKEW_MS // 2 + 1, CLOCK_SKEW_MS // 2 - 1)


class Fault:
    """What happens at one of the calls of an invocation."""

    def __init__(self, scenario: Scenario, kind: str, at: int) -> None:
        self._dispatch = scenario.world.twin.dispatch
        self._kind = kind
        self._left = at
        self._is_dead = False

    def dispatch(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        if self._is_dead:
            raise Killed
        self._left -= 1
        if self._left != -1:
            return self._dispatch(operation, request)
        if self._kind == "kill":
            self._is_dead = True
            raise Killed
        if self._kind == "throttle":
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, operation)
        applied = self._dispatch(operation, request)
        if self._kind == "lost reply":  # the SDK sends it again
            return self._dispatch(operation, request) if applied is not None else applied
        raise ClientError({"Error": {"Code": "InternalServerError"}}, operation)


class Machine(RuleBasedStateMachine):
    """The real code against a plain account of the promises: ``Scenario.check``."""

    @initialize(
        overlap=st.sampled_from(["skip", "queue", "allow"]), interval=st.sampled_from(["0s", "10s"])
    )
    def begin(self, overlap: str, interval: str) -> None:
        self.scenario = Scenario(
            overlap, lambda _scenario: None, max_attempts=3, checkpoint_interval=interval
        )

    def _invoke(self, script: Any, skew_ms: int, fault: tuple[str, int] | None) -> None:
        scenario = self.scenario
        world = scenario.world
        if fault is not None:
            scenario.store._connection = Fault(scenario, *fault)  # type: ignore[assignment]
        world.clock._now_ms += skew_ms
        try:
            script()
        except (Killed, StoreError):
            pass
        finally:
            world.clock._now_ms -= skew_ms
            scenario.store._connection = world  # type: ignore[assignment]
            scenario.ledger.bodies.clear()

    @rule(slot=SLOTS, skew_ms=SKEWS, fault=st.none() | st.tuples(FAULTS, CALLS))
    def deliver(self, slot: str, skew_ms: int, fault: tuple[str, int] | None) -> None:
        self._invoke(self.scenario.deliver(slot), skew_ms, fault)

    @rule(slot=SLOTS, skew_ms=SKEWS, fault=st.none() | st.tuples(FAULTS, CALLS))
    def resume(self, slot: str, skew_ms: int, fault: tuple[str, int] | None) -> None:
        self._invoke(self.scenario.resume(slot), skew_ms, fault)

    @rule(seconds=st.sampled_from([1, 30, 61, 70, 1_000]))
    def wait(self, seconds: int) -> None:
        self.scenario.world.clock.advance(seconds=seconds)

    @rule(
        step=st.sampled_from(["pause", "unpause"]),
        fault=st.none() | st.tuples(st.just("lost reply"), CALLS),
    )
    def operate_on_the_job(self, step: str, fault: tuple[str, int] | None) -> None:
        self._operate(step, None, fault)

    @rule(
        step=st.sampled_from(["cancel", "retry", "release"]),
        slot=SLOTS,
        fault=st.none() | st.tuples(st.just("lost reply"), CALLS),
    )
    def operate_on_a_run(self, step: str, slot: str, fault: tuple[str, int] | None) -> None:
        self._operate(step, slot, fault)

    def _operate(self, step: str, slot: str | None, fault: tuple[str, int] | None) -> None:
        def script() -> None:
            try:
                self.scenario._operate(step, slot)
            except RefusedError:
                pass

        self._invoke(script, 0, fault)

    @invariant()
    def the_promises_hold(self) -> None:
        if hasattr(self, "scenario"):
            self.scenario.check()

    def teardown(self) -> None:
        if hasattr(self, "scenario"):
            self.scenario.ledger.answers.clear()  # told before a retry, perhaps trimmed since
            self.scenario.end()


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "emit", lambda *_args, **_options: None)
        patch.setattr(Lease, "start", lambda _self: None)
        patch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        logging.disable(logging.CRITICAL)
        yield
        logging.disable(logging.NOTSET)


TestMachine = Machine.TestCase
TestMachine.pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3_600)]
TestMachine.settings = settings(
    max_examples=10_000 if NIGHTLY else 300,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
