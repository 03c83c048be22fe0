"""explore_crashes finds each planted fault and says what it is; it passes jobs that are safe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from anarchon_ddb import Run, job
from anarchon_ddb.job import Job
from anarchon_ddb.store import Store
from anarchon_ddb.testing import (
    CrashFound,
    Exploration,
    SettableClock,
    create_schedule,
    drive,
    explore_crashes,
    outside,
)
from handlers import export, rollup
from tests.conftest import KEY, SLOT
from tests.integration.test_rollup import make_table

pytestmark = pytest.mark.usefixtures("anarchon_table")

ROWS = list(range(1, 9))
rows: list[int] = []
written: list[Any] = []
stored: dict[Any, Any] = {}


def reset() -> None:
    rows[:] = ROWS
    written.clear()
    stored.clear()


@pytest.fixture(autouse=True)
def anew() -> None:
    reset()


@outside
def read_after(after: int | None, limit: int = 4) -> list[int]:
    return [row for row in sorted(rows) if row > (after or 0)][:limit]


@outside
def read_from(offset: int, limit: int = 4) -> list[int]:
    return rows[offset : offset + limit]


@outside
def read_all() -> list[int]:
    return list(rows)


@outside
def append(batch: list[Any]) -> None:
    written.extend(batch)


@outside
def upsert(batch: list[Any]) -> None:
    stored.update((row, row) for row in batch)


@outside
def put_object(name: str, batch: list[Any]) -> None:
    stored[name] = batch


def upserted() -> list[int]:
    return sorted(stored)


@job("export")
def safe(run: Run) -> None:
    after = run.checkpoint
    while batch := read_after(after):
        upsert(batch)
        after = batch[-1]
        run.save(after)


@job("export")
def appends(run: Run) -> None:
    after = run.checkpoint
    while batch := read_after(after):
        append(batch)
        after = batch[-1]
        run.save(after)


@job("export")
def saves_first(run: Run) -> None:
    after = run.checkpoint
    while batch := read_after(after):
        after = batch[-1]
        run.save(after)
        upsert(batch)


@job("export")
def reads_unordered(run: Run) -> None:
    found = [row for row in read_all()[::-1] if row > (run.checkpoint or 0)]
    for start in range(0, len(found), 4):
        batch = found[start : start + 4]
        upsert(batch)
        run.save(batch[-1])


@job("export")
def pages_by_offset(run: Run) -> None:
    offset = run.checkpoint or 0
    while batch := read_from(offset):
        upsert(batch)
        offset += len(batch)
        run.save(offset)


_buffer: list[int] = []


@job("export")
def buffers(run: Run) -> None:
    after = run.checkpoint
    while batch := read_after(after):
        _buffer.extend(batch)
        after = batch[-1]
        run.save(after)
    upsert(_buffer)


@job("export")
def swallows(run: Run) -> None:
    after = run.checkpoint
    while batch := read_after(after):
        upsert(batch)
        after = batch[-1]
        with contextlib.suppress(BaseException):
            run.save(after)


@job("export")
def asks_the_clock(run: Run) -> None:
    after = run.checkpoint
    while batch := read_after(after):
        now = datetime.now(UTC)
        put_object(f"{now:%H:%M}/{batch[0]}", batch)
        after = batch[-1]
        run.save(after)


@job("export")
def sorts_by_what_is_not_unique(run: Run) -> None:
    """Rows 1-3 have the time 1, rows 4-6 the time 2 …: a batch of 4 ends within one."""
    found = [row for row in read_all() if (row - 1) // 3 + 1 > (run.checkpoint or 0)]
    for start in range(0, len(found), 4):
        batch = found[start : start + 4]
        upsert(batch)
        run.save((batch[-1] - 1) // 3 + 1)


_pages: list[int] = []


@job("export")
def counts_in_memory(run: Run) -> None:
    after = run.checkpoint
    while batch := read_after(after):
        _pages.append(1)
        put_object(f"page-{len(_pages)}", batch)
        after = batch[-1]
        run.save(after)


def delete_the_first_row() -> None:
    if 1 in rows:
        rows.remove(1)


def found_from_start_to_end() -> list[int]:
    return [row for row in upserted() if row != 1]


LOST = (
    "work was lost: a checkpoint was saved before its work, the cursor skips what it should not, "
    "or something was kept in memory only"
)
DIFFERS = "what the job does depends on when it runs, or on how often it was begun"

PLANTED: dict[str, tuple[Job, Callable[[], Any], str, tuple[str, ...]]] = {
    "append instead of upsert": (
        appends,
        lambda: list(written),
        (
            "killed in batch 1, right after append number 1: 1-4 are there twice: "
            "the batch is not safe to repeat"
        ),
        ("after append 1",),
    ),
    "checkpoint before the batch": (
        saves_first,
        upserted,
        "stopped early after each batch: 1-8 are missing: " + LOST,
        (),
    ),
    "cursor from an unordered read": (
        reads_unordered,
        upserted,
        "stopped early after each batch: 1-4 are missing: " + LOST,
        (),
    ),
    "offset paging over a changing source": (
        pages_by_offset,
        found_from_start_to_end,
        "killed right after the checkpoint of batch 1 was saved: 5 is missing: " + LOST,
        ("after save 1",),
    ),
    "module-level state": (
        buffers,
        upserted,
        "killed right after the checkpoint of batch 1 was saved: 1-4 are missing: " + LOST,
        ("after save 1",),
    ),
    "swallowed StopEarly": (
        swallows,
        upserted,
        (
            "stopped early after each batch: told to stop, it went on: the handler caught "
            "StopEarly. Let it pass: `except Exception` does not catch it, a bare `except` and "
            "`except BaseException` do"
        ),
        (),
    ),
    "clock time instead of slot time": (
        asks_the_clock,
        lambda: sorted(stored),
        (
            "killed right after the run was claimed: '12:00/1', '12:00/5' are missing; "
            f"'12:01/1', '12:01/5' are there and should not be: {DIFFERS}"
        ),
        ("after claim 1",),
    ),
    "non-unique sort cursor": (
        sorts_by_what_is_not_unique,
        upserted,
        "stopped early after each batch: 5-6 are missing: " + LOST,
        (),
    ),
    "a counter in memory": (
        counts_in_memory,
        lambda: dict(stored),
        (
            "killed right after the checkpoint of batch 1 was saved: 'page-2' is missing; "
            "'page-1' is [5, 6, 7, 8] instead of [1, 2, 3, 4]: " + DIFFERS
        ),
        ("after save 1",),
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_told(fault: str) -> None:
    handler, effects, told, kills = PLANTED[fault]
    meanwhile = delete_the_first_row if "changing" in fault else None
    with pytest.raises(CrashFound) as found:
        explore_crashes(handler, slot=SLOT, effects=effects, reset=reset, meanwhile=meanwhile)
    text, _, repeat = str(found.value).partition("\nto repeat it: ")
    assert text == told
    assert found.value.kills == kills
    how = f'kill_at="{kills[0]}"' if kills else "stop_early=True"
    assert repeat == f'drive({handler.__name__}, "{SLOT}", {how})'


def test_what_was_found_is_repeated_by_one_line() -> None:
    driven = drive(appends, SLOT, kill_at="after append 1")
    assert [attempt.ended for attempt in driven.attempts] == ["killed", "succeeded"]
    assert written == [1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8]


def test_what_was_found_without_a_kill_is_repeated_by_one_line_too() -> None:
    driven = drive(saves_first, SLOT, stop_early=True)
    assert [attempt.ended for attempt in driven.attempts] == ["interrupted"] * 2 + ["succeeded"]
    assert upserted() == []


def test_a_safe_job_passes_with_every_kill_and_pairs_of_them() -> None:
    explored = explore_crashes(safe, slot=SLOT, effects=upserted, reset=reset, pairs=4)
    assert explored.points == 2 * (1 + 1 + 3 + 2 + 2 + 1 + 1)  # claim, pass, 3 reads, … clear
    assert explored.kills == explored.points + 8


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch, anarchon_table: Store) -> Any:
    """Five aircraft and an empty bucket; returns the client of the bucket."""
    monkeypatch.setenv("SOURCE_TABLE", "planes")
    monkeypatch.setenv("EXPORT_BUCKET", "out")
    export.aws.cache_clear()
    dynamodb, s3 = boto3.client("dynamodb"), boto3.client("s3")
    dynamodb.create_table(
        TableName="planes",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "tailnum", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "tailnum", "AttributeType": "S"}],
    )
    for number in range(5):
        dynamodb.put_item(TableName="planes", Item={"tailnum": {"S": f"N{number}"}})
    s3.create_bucket(Bucket="out", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    return s3


def explore_export(s3: Any, pairs: int) -> Exploration:
    def objects() -> dict[str, bytes]:
        listed = s3.list_objects_v2(Bucket="out").get("Contents", [])
        return {
            entry["Key"]: s3.get_object(Bucket="out", Key=entry["Key"])["Body"].read()
            for entry in listed
        }

    def empty() -> None:
        for key in objects():
            s3.delete_object(Bucket="out", Key=key)

    explored = explore_crashes(export.handler, slot=SLOT, effects=objects, reset=empty, pairs=pairs)
    sys.stdout.write(
        f"export: {explored.points} points, {explored.kills} kills in {explored.seconds:.1f} s, "
        f"{explored.kills_per_second:.1f} a second\n"
    )
    return explored


def test_the_export_passes(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGE_SIZE", "3")
    assert explore_export(source, pairs=0).points == 2 * (1 + 1 + 2 * 3 + 1 + 1)


@pytest.mark.nightly
@pytest.mark.skipif("NIGHTLY" not in os.environ, reason="run by make nightly")
@pytest.mark.timeout(3_600)
def test_nightly_the_export_passes_with_pairs_of_kills(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGE_SIZE", "1")
    assert explore_export(source, pairs=300).kills > 600


def test_the_rollup_passes(monkeypatch: pytest.MonkeyPatch, anarchon_table: Store) -> None:
    monkeypatch.setenv("WEATHER_TABLE", "weather")
    monkeypatch.setenv("ROLLUP_TABLE", "rollup")
    monkeypatch.setenv("AIRPORTS", "EWR,JFK")
    rollup.table.cache_clear()
    make_table("weather", "origin", "time_hour")
    make_table("rollup", "airport", "slot")
    create_schedule("rollup", "cron(0 * * * ? *)", "America/New_York")
    for airport in ("EWR", "JFK"):
        key = {"origin": airport, "time_hour": "2026-11-29T11:00:00Z"}
        rollup.table("weather").put_item(Item=key | {"temp": 39, "precip": 1})

    def effects() -> dict[str, Any]:
        found = rollup.table("rollup").scan()["Items"]
        return {row["airport"]: row for row in found}

    def empty() -> None:
        for row in effects().values():
            key = {"airport": row["airport"], "slot": row["slot"]}
            rollup.table("rollup").delete_item(Key=key)

    explored = explore_crashes(rollup.handler, slot=SLOT, effects=effects, reset=empty)
    assert explored.points == 2 * (1 + 1 + 1 + 2 * 3 + 1 + 1)  # … and the schedule, once
    assert len(effects()) == 0


def make_planes(dynamodb: Any) -> None:
    dynamodb.create_table(
        TableName="planes",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "tailnum", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "tailnum", "AttributeType": "S"}],
    )
    for number in range(5):
        dynamodb.put_item(TableName="planes", Item={"tailnum": {"S": f"N{number}"}})


@job("export")
def cleans_up(run: Run) -> None:
    try:
        safe._handler(run)
    except BaseException:
        append(["rescued"])
        raise
    finally:
        append(["cleaned"])


@pytest.mark.parametrize("kill_at", ["before upsert 2", "before save 2", "after save 2"])
def test_a_kill_is_a_kill_no_finally_and_no_rescue_runs_after_it(
    anarchon_table: Store, kill_at: str
) -> None:
    driven = drive(cleans_up, SLOT, kill_at=kill_at)
    assert written == ["cleaned"]  # by the second attempt, at its end
    assert [attempt.ended for attempt in driven.attempts] == ["killed", "succeeded"]
    assert upserted() == ROWS


def test_neither_does_anything_of_the_package(anarchon_table: Store) -> None:
    """The worker's own handlers would have let go of the run, or recorded a failure."""
    states = []

    @outside
    def look() -> None:
        record = anarchon_table.read_run(KEY)
        assert record is not None
        states.append([(attempt.number, attempt.end) for attempt in record.attempts])

    @job("export")
    def handler(run: Run) -> None:
        run.save(run.attempt)
        look()

    driven = drive(handler, SLOT, kill_at="after save 1")
    assert states == [[(1, "lost")]]
    assert driven.run.checkpoint == 2


def test_a_job_whose_effects_stay_in_memory_is_told_so() -> None:
    @job("export")
    def handler(run: Run) -> None:
        written.append(run.attempt)

    with pytest.raises(ValueError, match=r"mark the functions .* as anarchon_ddb.testing.outside"):
        explore_crashes(handler, slot=SLOT, effects=lambda: list(written), reset=reset)


def test_a_job_that_fails_uninterrupted_is_told_with_its_error() -> None:
    @job("export", max_attempts=1)
    def handler(run: Run) -> None:
        raise KeyError("no such column")

    with pytest.raises(CrashFound, match=r"(?s)ended as failed \(error\).*no such column"):
        explore_crashes(handler, slot=SLOT, effects=upserted, reset=reset)


def test_a_job_that_makes_other_calls_each_time_is_told_so() -> None:
    tries: list[int] = []

    @outside
    def count() -> int:
        tries.append(1)
        return len(tries)

    @job("export")
    def handler(run: Run) -> None:
        if count() <= 2:  # uninterrupted, and stopped early
            upsert([1])
        upsert([1])

    with pytest.raises(CrashFound, match="it came to 'before upsert 2' when it was run before"):
        explore_crashes(handler, slot=SLOT, effects=upserted, reset=reset)


def test_a_job_that_outlives_its_timeout_uninterrupted_is_told_so(
    anarchon_clock: SettableClock,
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        anarchon_clock.advance(seconds=70)
        upsert([1])

    with pytest.raises(CrashFound, match="ended as killed at its timeout"):
        explore_crashes(
            handler,
            slot=SLOT,
            effects=upserted,
            reset=reset,
            timeout="60s",
            clock=anarchon_clock,
        )
