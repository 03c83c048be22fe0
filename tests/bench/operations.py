"""The operator's commands on locked moto: calls to AWS and seconds, with many jobs and runs.

In AWS a call takes 5 to 25 ms more, ten of them at once where a job has its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from unittest.mock import patch

from anarchon_ddb.cli.main import main
from anarchon_ddb.store import Store
from tests.bench.endpoint import metering, python, require
from tests.bench.measure import Bench, Figure, number
from tests.bench.resumer_pass import locked_moto
from tests.operator import GROUP, minutes, put_runs, schedule

START = datetime(2026, 11, 1, tzinfo=UTC)
JOBS, RUNS, OPEN = 200, 3_000, 1_000
COMMANDS = (
    ("jobs",),
    ("runs", "nightly", "--limit", "50"),
    ("runs", "nightly", "--state", "failed"),
    ("runs", "nightly", "--limit", "5000"),
)


def operations(bench: Bench) -> Iterator[Figure]:
    """The operator's commands over 200 jobs, 3,000 runs of one, 1,000 open runs."""
    for arguments in (("--help",), ("runs", "--help")):
        taken = bench.interleave(
            {"command": lambda arguments=arguments: _start_ms(*arguments), "python": _python_ms}
        )
        over = [one - bare for one, bare in zip(*taken.values(), strict=True)]
        yield number(f"{' '.join(arguments)}, over bare Python", over, "ms")
    with locked_moto(), patch.dict(os.environ, ANARCHON_SCHEDULE_GROUP=GROUP):
        store = Store("anarchon")
        store.create_table()
        bench.tell("filling the table")
        _fill(store)
        for arguments in COMMANDS:
            yield from _measured(bench, *arguments)
        _fill_open(store)
        yield from _measured(bench, "open")


def _measured(bench: Bench, *arguments: str) -> Iterator[Figure]:
    named = " ".join(arguments)
    taken_s, calls, rows = [], 0, 0
    for _ in range(bench.rounds):
        bench.tell(named)
        with metering() as metered, contextlib.redirect_stdout(io.StringIO()) as out:
            begin_s = time.perf_counter()
            code = main([*arguments, "--json"])
            taken_s.append(time.perf_counter() - begin_s)
        answer = json.loads(out.getvalue())
        rows = len(next(value for value in answer.values() if isinstance(value, list)))
        calls = metered.calls.total()
        require(is_right=code in {0, 1} and rows > 0, found=(code, rows))
    yield number(f"{named}: {rows:,} rows, {calls} calls", taken_s, "s")


def _start_ms(*arguments: str) -> float:
    begin_s = time.perf_counter()
    command = python("-m", "anarchon_ddb.cli", *arguments)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - begin_s) * 1000


def _python_ms() -> float:
    begin_s = time.perf_counter()
    subprocess.run(python("-c", "pass"), check=True)
    return (time.perf_counter() - begin_s) * 1000


def _fill(store: Store) -> None:
    for index in range(JOBS):
        schedule(f"job-{index:03}", "rate(1 hour)")
    big = '"' + "x" * 1000 + '"'
    failed = {"state": "failed", "reason": "error"}
    put_runs(
        store,
        [
            ("nightly", slot, {"checkpoint": big} | (failed if index in {700, 2500} else {}))
            for index, slot in enumerate(minutes(START, RUNS, step=10))
        ],
    )


def _fill_open(store: Store) -> None:
    put_runs(
        store,
        [
            ("busy", slot, {"state": "interrupted", "open": str(index % 4), "due": 1})
            for index, slot in enumerate(minutes(START, OPEN))
        ],
    )
