"""What the command line costs: calls and time against the embedded DynamoDB, and its start.

Run it alone: ``python tests/bench/bench_operations.py``. In AWS a call takes 5 to 25 ms more,
ten of them at once where a job has its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import botocore.client
from moto import mock_aws

sys.path.insert(0, str(Path(__file__).parents[2]))

from anarchon_ddb.cli.main import main
from anarchon_ddb.store import Store
from tests.operator import GROUP, minutes, put_runs, schedule

START = datetime(2026, 11, 1, tzinfo=UTC)


@contextlib.contextmanager
def counting() -> Iterator[Counter[str]]:
    made: Counter[str] = Counter()
    original = botocore.client.BaseClient._make_api_call

    def counted(self: object, operation: str, arguments: object) -> object:
        made[operation] += 1
        return original(self, operation, arguments)

    botocore.client.BaseClient._make_api_call = counted
    try:
        yield made
    finally:
        botocore.client.BaseClient._make_api_call = original


def measure(*arguments: str) -> None:
    with counting() as calls, contextlib.redirect_stdout(io.StringIO()) as out:
        begun = time.perf_counter()
        code = main([*arguments, "--json"])
        took_s = time.perf_counter() - begun
    rows = next(value for value in json.loads(out.getvalue()).values() if isinstance(value, list))
    made = ", ".join(f"{count} {name}" for name, count in calls.most_common())
    print(f"{' '.join(arguments):34} {took_s:5.2f} s  exit {code}  {len(rows):4} rows  {made}")


def best_ms(*arguments: str) -> float:
    def once() -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begun

    return 1000 * min(once() for _ in range(10))


def fill(store: Store) -> None:
    for index in range(200):
        schedule(f"job-{index:03}", "rate(1 hour)")
    big = '"' + "x" * 1000 + '"'
    failed = {"state": "failed", "reason": "error"}
    put_runs(
        store,
        [
            ("nightly", slot, {"checkpoint": big} | (failed if index in {700, 2500} else {}))
            for index, slot in enumerate(minutes(START, 3000, step=10))
        ],
    )


def fill_open(store: Store) -> None:
    put_runs(
        store,
        [
            ("busy", slot, {"state": "interrupted", "open": str(index % 4), "due": 1})
            for index, slot in enumerate(minutes(START, 1000))
        ],
    )


def start() -> None:
    bare = best_ms("-c", "pass")
    for arguments in (["--help"], ["runs", "--help"]):
        over = best_ms("-m", "anarchon_ddb.cli", *arguments) - bare
        print(f"{' '.join(arguments):34} {over:5.0f} ms over bare Python's {bare:.0f} ms")


def run(make: Callable[[], None]) -> None:
    os.environ |= {
        "AWS_DEFAULT_REGION": "eu-west-1",
        "ANARCHON_TABLE": "anarchon",
        "ANARCHON_SCHEDULE_GROUP": GROUP,
    }
    with mock_aws():
        make()


def all_figures() -> None:
    store = Store("anarchon")
    store.create_table()
    fill(store)
    measure("jobs")
    measure("runs", "nightly", "--limit", "50")
    measure("runs", "nightly", "--state", "failed")
    measure("runs", "nightly", "--limit", "5000")
    fill_open(store)
    measure("open")


if __name__ == "__main__":
    start()
    run(all_figures)
