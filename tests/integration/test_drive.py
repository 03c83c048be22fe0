"""drive: every attempt of a run and its end, in this process and in child processes."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from anarchon_ddb import InvalidEventError, LeaseLost, Run, job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import Attempt, SettableClock, drive, outside
from tests.conftest import SLOT

seen: list[Any] = []


@pytest.fixture(autouse=True)
def anew() -> None:
    seen.clear()


@outside
def note(value: Any) -> None:
    seen.append(value)


@job("export")
def handler(run: Run) -> None:
    for batch in range(run.checkpoint or 0, 3):
        note(batch)
        run.save(batch + 1)


def ended(driven: Any) -> list[tuple[Any, Any, str]]:
    return [(attempt.from_cursor, attempt.to_cursor, attempt.ended) for attempt in driven.attempts]


def test_each_attempt_is_told_with_its_cursors(
    anarchon_table: Store, anarchon_clock: SettableClock
) -> None:
    @job("export", stop_margin="10s")
    def slow(run: Run) -> None:
        for batch in range(run.checkpoint or 0, 3):
            anarchon_clock.advance(seconds=25)
            run.save(batch + 1)

    driven = drive(slow, SLOT, timeout="60s", clock=anarchon_clock)
    assert driven.attempts == (
        Attempt(1, None, 1, "interrupted"),
        Attempt(2, 1, 2, "interrupted"),
        Attempt(3, 2, 3, "interrupted"),
        Attempt(4, 3, 3, "succeeded"),
    )
    assert (driven.run.state, driven.run.attempt, driven.run.checkpoint) == ("succeeded", 4, 3)


def test_without_kills_it_runs_in_this_process(anarchon_table: Store) -> None:
    pids: list[int] = []

    @job("export")
    def here(run: Run) -> None:
        pids.append(os.getpid())

    assert drive(here, SLOT).run.state == "succeeded"
    assert pids == [os.getpid()]
    drive(handler, "2026-11-29T12:01:00Z", kill_at=[])
    assert seen == [0, 1, 2]


def test_kills_fall_where_they_are_told(anarchon_table: Store) -> None:
    driven = drive(handler, SLOT, kill_at=["before claim", "before save 2", "after finish"])
    assert ended(driven) == [
        (None, None, "killed"),
        (None, 1, "killed"),
        (1, 3, "killed"),
    ]
    assert [attempt.number for attempt in driven.attempts] == [None, 1, 2]
    assert seen == [0, 1, 1, 2]
    assert driven.run.state == "succeeded"


def test_a_sandbox_stays_warm_between_two_invocations_and_is_new_after_a_kill(
    anarchon_table: Store,
) -> None:
    warm: list[int] = []

    @job("export")
    def remembers(run: Run) -> None:
        for batch in range(run.checkpoint or 0, 4):
            warm.append(batch)
            note(list(warm))
            run.save(batch + 1)

    drive(remembers, SLOT, kill_at="after save 2", stop_early=True)
    assert seen == [[0], [0, 1], [2], [2, 3]]
    assert warm == []


def test_a_function_that_outlives_its_timeout_is_killed_there(
    anarchon_table: Store, anarchon_clock: SettableClock
) -> None:
    @job("export")
    def long(run: Run) -> None:
        if run.attempt == 1:
            anarchon_clock.advance(seconds=61)
        note(run.attempt)

    driven = drive(long, SLOT, timeout="60s", kill_at=[], clock=anarchon_clock)
    assert [attempt.ended for attempt in driven.attempts] == ["killed at its timeout", "succeeded"]
    assert seen == [2]
    with pytest.raises(AssertionError, match=r"1.0 s beyond the function's timeout of 60 s"):
        drive(long, "2026-11-29T12:00:01Z", timeout="60s", clock=anarchon_clock)


def test_a_handler_that_fails_is_tried_again_and_ends_as_failed(anarchon_table: Store) -> None:
    @job("export", max_attempts=2, retry_delay="30s")
    def fails(run: Run) -> None:
        raise KeyError("boom")

    for kills in (None, []):
        driven = drive(fails, SLOT if kills is None else "2026-11-29T12:01:00Z", kill_at=kills)
        assert [attempt.ended for attempt in driven.attempts] == ["failed", "failed"]
        assert [attempt.error for attempt in driven.attempts] == ["KeyError: 'boom'"] * 2
        assert (driven.run.state, driven.run.reason) == ("failed", "error")


def test_an_error_from_outside_is_raised_in_the_job(anarchon_table: Store) -> None:
    @outside
    def refuse() -> None:
        raise PermissionError("not you")

    @job("export", max_attempts=1)
    def asks(run: Run) -> None:
        refuse()

    assert drive(asks, SLOT, kill_at=[]).attempts[0].error == "PermissionError: not you"


def test_what_can_not_cross_the_pipe_is_told(anarchon_table: Store) -> None:
    @outside
    def give() -> Any:
        return lambda: None

    @job("export", max_attempts=1)
    def takes(run: Run) -> None:
        give()

    @job("export", max_attempts=1)
    def gives(run: Run) -> None:
        note(lambda: None)

    told = drive(takes, SLOT, kill_at=[]).attempts[0].error or ""
    assert "can't cross the pipe to the sandbox" in told
    told = drive(gives, "2026-11-29T12:01:00Z", kill_at=[]).attempts[0].error or ""
    assert "pickle" in told


def test_a_job_that_hangs_or_ends_its_process_is_told(
    anarchon_table: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @job("export", max_attempts=1)
    def exits(run: Run) -> None:
        os._exit(3)

    @job("export")
    def hangs(run: Run) -> None:
        time.sleep(30)

    attempt = drive(exits, SLOT, kill_at=[]).attempts[0]
    assert (attempt.ended, attempt.error) == ("killed", "the process of the job ended by itself")
    monkeypatch.setattr("anarchon_ddb.testing.sandbox.HANG_S", 0.3)
    with pytest.raises(TimeoutError, match="it hangs"):
        drive(hangs, "2026-11-29T12:01:00Z", kill_at=[])


def test_instances_and_params_reach_the_job(anarchon_table: Store) -> None:
    @job("export")
    def tells(run: Run) -> None:
        note((run.job, run.params["tenant"]))

    for kills in (None, []):
        instance = f"export:t{kills}".replace("[]", "2").replace("None", "1")
        drive(tells, SLOT, kill_at=kills, instance=instance, params={"tenant": "a"})
    assert seen == [("export:t1", "a"), ("export:t2", "a")]


def test_what_can_not_be_driven_is_told(anarchon_table: Store) -> None:
    with pytest.raises(TypeError, match="decorate the handler with @job"):
        drive(lambda _run: None, SLOT)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kill_at is 'save 3', expected"):
        drive(handler, SLOT, kill_at="save 3")
    with pytest.raises(InvalidEventError):
        drive(handler, SLOT, instance="other")
    with pytest.raises(AssertionError, match="can't be run: InvalidEventError"):
        drive(handler, SLOT, instance="other", kill_at=[])
    with pytest.raises(AssertionError, match=r"did not come to 'before save 9'.*after save 3"):
        drive(handler, SLOT, kill_at="before save 9")
    with pytest.raises(AssertionError, match="has not ended after 1 invocations"):
        drive(handler, "2026-11-29T12:01:00Z", kill_at="before save 2", max_invocations=1)


def test_the_wall_clock_of_a_sandbox_is_the_tests(anarchon_table: Store) -> None:
    @job("export")
    def looks(run: Run) -> None:
        moment = datetime(2026, 1, 2, tzinfo=UTC)
        assert type(moment) is type(datetime.fromisoformat("2026-01-02"))
        assert isinstance(moment, datetime)
        assert isinstance(moment - timedelta(days=1), dt.datetime)
        today = date.today()  # noqa: DTZ011  what a job should not do
        run.save((datetime.now(UTC), today, moment))
        note([datetime.now(UTC).isoformat(), dt.datetime.now(UTC).minute, today.day])
        hour = datetime.utcnow().hour  # noqa: DTZ003
        note([hour, int(time.time()) % 60, time.time_ns() % 10**9])

    drive(looks, SLOT, kill_at=[], clock=SettableClock("2026-11-29T12:34:56Z"))
    assert seen == [["2026-11-29T12:34:56+00:00", 34, 29], [12, 56, 0]]
    assert datetime.__module__ == "datetime"
    assert type(datetime.now(UTC)) is datetime


def test_a_stop_that_is_raised_reaches_nobody_else(anarchon_table: Store) -> None:
    """A job that is overtaken while it is stalled stops; here it is only told of."""

    @job("export")
    def loses(run: Run) -> None:
        raise LeaseLost("somebody else")

    with pytest.raises(AssertionError, match="has not ended"):
        drive(loses, SLOT, max_invocations=2, kill_at=[])


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A table on a server of its own: what a test against a real endpoint has."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("ANARCHON_TABLE", "anarchon")
    store = Store.from_environment()
    store.create_table()
    yield store
    server.stop()


def test_a_job_is_killed_against_a_real_endpoint_too(served: Store) -> None:
    driven = drive(handler, SLOT, kill_at="after save 1")
    assert ended(driven) == [(None, 1, "killed"), (1, 3, "succeeded")]
    assert seen == [0, 1, 2]
