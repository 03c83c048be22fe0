"""The operator's shell, against the embedded DynamoDB and a Lambda that runs real handlers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anarchon_ddb.store import Store
from anarchon_ddb.testing import SettableClock
from tests.operator import GROUP, Lambda, Operator, serving


@pytest.fixture
def ops(
    store: Store,
    clock: SettableClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Operator:
    monkeypatch.setenv("ANARCHON_SCHEDULE_GROUP", GROUP)
    monkeypatch.setenv("COLUMNS", "120")
    return Operator(clock, capsys)


@pytest.fixture
def lambdas(
    ops: Operator, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lambda]:
    """Functions by name: give them handlers."""
    played = Lambda(clock)
    ops.settle = played.settle
    sleep = clock.sleep

    def settled_sleep(seconds: float) -> None:
        played.settle()
        sleep(seconds)

    monkeypatch.setattr(clock, "sleep", settled_sleep)
    with serving(played) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        yield played
