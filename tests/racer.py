"""A process of the race tests: run as ``python -m tests.racer``, killed by its parent at will.

Its clock is the machine's, moved ahead by an offset, so that a lease of a killed process runs out
without anybody waiting for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from anarchon_ddb import Run, job
from anarchon_ddb.clock import SystemClock, iso
from anarchon_ddb.testing import LambdaContext, resume_event, scheduler_event

BATCHES = 12


class AheadClock(SystemClock):
    """The machine's clock, so many milliseconds ahead."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


def slots(first: str, count: int) -> list[str]:
    start = datetime.fromisoformat(first).astimezone(UTC)
    return [iso(start + timedelta(seconds=number)) for number in range(count)]


def note(ledger: Path, *words: object) -> None:
    """Append one line: atomic between processes."""
    line = " ".join(map(str, words)) + "\n"
    with ledger.open("ab", buffering=0) as file:
        file.write(line.encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ledger", type=Path)
    parser.add_argument("first")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--overlap", default="allow")
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--interval", default="0s")
    parser.add_argument("--batch-ms", type=float, default=0)
    parser.add_argument("--ahead-ms", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start-gun", action="store_true")
    arguments = parser.parse_args()

    @job(
        "race",
        overlap=arguments.overlap,
        lease="5s",
        max_attempts=50,
        retry_delay="0s",
        checkpoint_interval=arguments.interval,
    )
    def handler(run: Run) -> None:
        slot = iso(run.slot)
        note(arguments.ledger, "start", slot, run.attempt, os.getpid())
        for batch in range(run.checkpoint or 0, arguments.batches):
            time.sleep(arguments.batch_ms / 1000)
            note(arguments.ledger, "batch", slot, batch, time.monotonic())
            run.save(batch + 1)
        note(arguments.ledger, "end", slot, run.attempt)

    clock = AheadClock(arguments.ahead_ms)
    event = resume_event if arguments.resume else scheduler_event
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if arguments.start_gun:
        sys.stdin.readline()
    for slot in slots(arguments.first, arguments.count):
        answer = handler(event("race", slot), LambdaContext("60s", clock=clock))
        sys.stderr.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
