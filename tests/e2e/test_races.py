"""Races between real processes, on a server whose conditional writes are atomic between them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anarchon_ddb.clock import iso
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from tests.dynalite import Dynalite
from tests.racer import BATCHES, slots

ROOT = Path(__file__).parents[2]
PROCESSES, SLOTS = 16, 200


def recent() -> str:
    return iso(datetime.now(UTC) - timedelta(hours=1))


def start(dynalite: Dynalite, store: Store, *arguments: str) -> subprocess.Popen[str]:
    environ = os.environ | dynalite.environ | {
        "ANARCHON_TABLE": store.table,
        "POWERTOOLS_LOG_LEVEL": "CRITICAL",
        "POWERTOOLS_METRICS_DISABLED": "true",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "tests.racer", *arguments],
        cwd=ROOT,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_sixteen_processes_race_for_two_hundred_slots(dynalite: Dynalite, tmp_path: Path) -> None:
    store, ledger, first = dynalite.new_table(), tmp_path / "ledger", recent()
    racers = [
        start(dynalite, store, str(ledger), first, f"--count={SLOTS}", "--start-gun")
        for _ in range(PROCESSES)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    errors = "".join(racer.communicate(timeout=200)[1] for racer in racers)
    answers = [json.loads(line) for line in errors.splitlines()]
    started = Counter(
        line.split()[1] for line in ledger.read_text().splitlines() if "start" in line
    )
    assert set(slots(first, SLOTS)) == set(started)
    assert set(started.values()) == {1}
    outcomes = Counter(answer["outcome"] for answer in answers)
    assert outcomes["succeeded"] == SLOTS
    assert set(outcomes) <= {"succeeded", "busy", "duplicate"}
    assert sum(outcomes.values()) == PROCESSES * SLOTS


@pytest.mark.parametrize("seed", range(20))
def test_a_run_killed_at_random_instants_ends_right(
    dynalite: Dynalite, tmp_path: Path, seed: int
) -> None:
    """Two slots at once, under skip and queue by turns; one process of each is killed."""
    overlap = ("skip", "queue")[seed % 2]
    chance = random.Random(seed)
    store, ledger, first = dynalite.new_table(), tmp_path / "ledger", recent()
    both = slots(first, 2)
    common = (f"--overlap={overlap}", f"--batches={BATCHES}")
    killed = [start(dynalite, store, str(ledger), slot, *common) for slot in both]
    for process in killed:
        assert process.stdout is not None
        process.stdout.readline()
    for process in chance.sample(killed, 2):
        # A random instant is what is tested: not a wait for something to have happened.
        time.sleep(chance.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    for ahead in range(1, 7):
        for slot in both:
            options = (f"--ahead-ms={ahead * 20_000}", *(["--resume"] if ahead > 1 else []))
            process = start(dynalite, store, str(ledger), slot, *common, *options)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
        states = [state(store, slot) for slot in both]
        if all(found in {"succeeded", "skipped"} for found in states):
            break
    assert states == ["succeeded", "succeeded"] if overlap == "queue" else "succeeded" in states
    lines = [line.split() for line in ledger.read_text().splitlines()]
    for slot, found in zip(both, states, strict=True):
        done = [int(line[2]) for line in lines if line[:2] == ["batch", slot]]
        assert sorted(set(done)) == (list(range(BATCHES)) if found == "succeeded" else [])
        ends = sum(line[:2] == ["end", slot] for line in lines)
        repeated = len(done) - len(set(done))
        assert repeated <= len({line[2] for line in lines if line[:2] == ["start", slot]}) - 1 or (
            repeated == 0
        )
        # The handler may have come to its end just before the kill: then it repeats no batch.
        assert ends <= 2


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_run_that_saves_in_intervals_repeats_at_most_one(
    dynalite: Dynalite, tmp_path: Path, seed: int
) -> None:
    batches, interval_s = 2_500, 1
    store, ledger, slot = dynalite.new_table(), tmp_path / "ledger", recent()
    common = (f"--batches={batches}", f"--interval={interval_s}s", "--batch-ms=1")
    killed = start(dynalite, store, str(ledger), slot, *common)
    assert killed.stdout is not None
    killed.stdout.readline()
    time.sleep(random.Random(seed).uniform(1.2, 2.4))  # a random instant is what is tested
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    at_kill = store.read_run(RunKey("race", slot))
    assert at_kill is not None
    resumed = start(dynalite, store, str(ledger), slot, *common, "--resume", "--ahead-ms=20000")
    _, errors = resumed.communicate(timeout=120)
    assert json.loads(errors)["outcome"] == "succeeded"

    notes = [line.split() for line in ledger.read_text().splitlines()]
    done = [(int(note[2]), float(note[3])) for note in notes if note[0] == "batch"]
    cursor = int(at_kill.checkpoint or 0)
    first = [time_s for batch, time_s in done[: _first_length(done)] if batch >= cursor]
    assert len(done) == batches + len(first)  # what was done behind the cursor, no more
    assert {batch for batch, _ in done} == set(range(batches))
    # Only the last of them, whose save was due, may have been under way for longer.
    assert first[-2] - first[0] < interval_s + 0.002
    record = store.read_run(RunKey("race", slot))
    assert record is not None
    assert record.seq * 5 < batches


def _first_length(done: list[tuple[int, float]]) -> int:
    """Return how many batches the killed process did: then the number goes back."""
    return next(i for i in range(1, len(done)) if done[i][0] <= done[i - 1][0])


def state(store: Store, slot: str) -> str:
    record = store.read_run(RunKey("race", slot))
    return "absent" if record is None else record.state
