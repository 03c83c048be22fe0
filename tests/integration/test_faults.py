"""A fault at every call in turn: nothing is told as done that was not stored, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from anarchon_ddb import Run, StoreError, job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT, read
from tests.faults import Faults, Request, error_reply

EVENT = scheduler_event("export", SLOT)
BATCHES = 3
CALLS = BATCHES + 4


class At:
    """A fault at one call, and at all its repetitions."""

    def __init__(self, faults: Faults, number: int, kind: str) -> None:
        self._number = number
        self._kind = kind
        self._seen: list[dict[str, Any]] = []
        self.is_on = True
        faults._before.append(self.before)
        faults._after.append(self.after)

    def _hits(self, request: Request) -> bool:
        if request.body not in self._seen:
            self._seen.append(request.body)
        return self.is_on and self._seen.index(request.body) == self._number

    def before(self, request: Request) -> AWSResponse | None:
        if not self._hits(request):
            return None
        if self._kind == "timed out before":
            raise ReadTimeoutError(endpoint_url="https://dynamodb.test")
        if self._kind == "unreachable":
            raise EndpointConnectionError(endpoint_url="https://dynamodb.test")
        answers = {
            "throttled": ("ThrottlingException", 400),
            "5xx": ("InternalServerError", 500),
            "denied": ("AccessDeniedException", 400),
        }
        return error_reply(*answers[self._kind]) if self._kind in answers else None

    def after(self, request: Request) -> None:
        if self._kind == "timed out after" and self._hits(request):
            raise ReadTimeoutError(endpoint_url="https://dynamodb.test")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's waits between its tries take no time."""
    fake = SimpleNamespace(sleep=lambda _seconds: None, time=time.time)
    monkeypatch.setattr("botocore.endpoint.time", fake)


KINDS = ["throttled", "5xx", "timed out before", "timed out after", "denied", "unreachable"]


@pytest.mark.parametrize("number", range(CALLS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_loses_nothing_and_claims_nothing(
    store: Store,
    clock: SettableClock,
    context: Callable[..., LambdaContext],
    faults: Faults,
    at_once: None,
    kind: str,
    number: int,
) -> None:
    done: list[int] = []

    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        for batch in range(run.checkpoint or 0, BATCHES):
            done.append(batch)
            run.save(batch + 1)

    fault = At(faults, number, kind)
    answers: list[str] = []
    try:
        answers.append(handler(EVENT, context("15m"))["outcome"])
    except StoreError as error:
        assert "'anarchon'" in str(error)  # noqa: PT017  the text is what matters
    fault.is_on = False
    faults._before.clear()
    faults._after.clear()
    record = store.read_run(handler_key())
    if "succeeded" in answers:
        assert record is not None
        assert record.state == "succeeded"
    if number == 0 and kind != "timed out after":
        assert done == []
    before = record.checkpoint if record else None
    clock.advance(minutes=2)
    if record is None:
        answers.append(handler(EVENT, context("15m"))["outcome"])
    else:
        answers.append(handler(resume_event("export", SLOT), context("15m"))["outcome"])
    final = read(store)
    assert ("succeeded", str(BATCHES)) == (final.state, final.checkpoint)
    assert list(range(BATCHES)) == sorted(set(done))
    assert len(done) <= BATCHES + 1
    assert int(before or 0) <= BATCHES
    later = scheduler_event("export", "2026-11-29T12:02:05Z")
    assert handler(later, context("15m"))["outcome"] == "succeeded"  # the gate is free


@pytest.mark.parametrize("fault", [ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError])
def test_a_table_that_is_out_of_reach_for_a_moment_is_asked_again(
    store: Store,
    context: Callable[..., LambdaContext],
    faults: Faults,
    at_once: None,
    fault: type[Exception],
) -> None:
    """Its answer is unknown, not a fault that only a person can mend."""
    left = [6]  # beyond the SDK's own three tries

    def unreachable(request: Request) -> None:
        if request.write == "save" and left[0]:
            left[0] -= 1
            raise fault(endpoint_url="https://dynamodb.test")

    @job("export")
    def handler(run: Run) -> None:
        run.save(1)

    faults._before.append(unreachable)
    assert handler(EVENT, context("15m"))["outcome"] == "succeeded"
    assert (read(store).checkpoint, left) == ("1", [0])


def handler_key() -> Any:
    from anarchon_ddb.schema import RunKey  # noqa: PLC0415

    return RunKey("export", SLOT)


def test_a_gate_that_can_not_be_left_does_not_hide_the_handlers_error(
    store: Store,
    context: Callable[..., LambdaContext],
    faults: Faults,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        faults.answer("gate", "AccessDeniedException", times=9)
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("boom") from cause

    with pytest.raises(ValueError, match="boom") as raised:
        handler(EVENT, context())
    assert read(store).state == "failed"
    assert "The gate of the job was not left either" in raised.value.__notes__[0]
    assert "Grant dynamodb:UpdateItem" in raised.value.__notes__[0]
    assert isinstance(raised.value.__cause__, KeyError)
    assert "The gate was not left: DynamoDB UpdateItem" in capsys.readouterr().out


def test_a_gate_that_can_not_be_left_is_told_where_the_handler_succeeded(
    store: Store, context: Callable[..., LambdaContext], faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        faults.answer("gate", "AccessDeniedException", times=9)

    with pytest.raises(StoreError, match="Grant dynamodb:UpdateItem"):
        handler(EVENT, context())
    assert read(store).state == "succeeded"
