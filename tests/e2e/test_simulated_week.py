"""Both shipped jobs on a simulated clock, with everything going wrong: nothing due is lost.

`make test` plays three hours through the change of clocks of 10 March 2013, `make nightly` a week.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHAOS = "kill=0.2,duplicate=0.1,late=0.1,throttle=0.05,lost-reply=0.02"
HOURS = ("2013-03-10T00:30:00Z", "2013-03-10T03:30:00Z")
WEEK = ("2013-03-08T00:00:00Z", "2013-03-15T00:00:00Z")


def play(directory, span, seed, *more):
    """Play the shipped template; return the exit code, the summary and the history's lines."""
    start, end = span
    ended = subprocess.run(
        [
            sys.executable, "-m", "anarchon_ddb.cli", "local", "--json", "--logs", directory,
            "--from", start, "--to", end, "--setup", "tests/play/fill.py",
            "--check", "tests/play/compare.py", "--chaos", CHAOS, "--seed", str(seed),
            "--latency", "s3:PutObject=150s", *more,
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout, ended.stderr
    summary = json.loads(ended.stdout)
    lines = Path(summary["history"]["path"]).read_text().splitlines()
    return ended.returncode, summary, [json.loads(line) for line in lines]


def assert_all_is_well(code, summary, *, exports, rollups):
    assert summary["failures"] == []
    assert code == 0
    ledgers = {ledger["schedule"]: ledger for ledger in summary["schedules"]}
    for name, due in (("export", exports), ("rollup", rollups)):
        ledger = ledgers[name]
        assert (ledger["due"], ledger["absent"], ledger["open"]) == (due, [], [])
        assert ledger["worked"] == due
    assert summary["check"] == 0  # every export and rollup equals its source
    assert [promise["holds"] for promise in summary["promises"]] == [True] * 8


def without_path(summary):
    varies = ("seconds", "slots_per_s", "memory_mb")
    kept = {name: value for name, value in summary.items() if name not in varies}
    held = {name: queue["messages"] for name, queue in summary["queues"].items()}
    return kept | {"history": summary["history"]["digest"], "queues": held}


@pytest.fixture(scope="module")
def three_hours(tmp_path_factory):
    return play(tmp_path_factory.mktemp("play"), HOURS, 7)


def test_whatever_goes_wrong_each_slot_is_worked_on_and_equals_its_source(three_hours):
    code, summary, lines = three_hours

    assert_all_is_well(code, summary, exports=1, rollups=3)
    told = Counter(line["event"] for line in lines)
    assert summary["kills"] > 5
    assert min(told["throttled"], told["reply lost"], told["undelivered"]) > 5
    assert summary["duplicates"] > 5
    assert summary["late"] > 1
    queue = summary["queues"]["local-Undelivered"]
    messages = [json.loads(line) for line in Path(queue["file"]).read_text().splitlines()]
    assert len(messages) == queue["messages"] == told["undelivered"]
    assert messages[0]["attributes"]["EXHAUSTED_RETRY_CONDITION"] == "MaximumEventAgeInSeconds"
    export = [line.get("outcome") for line in lines if line.get("job") == "export"]
    assert "interrupted" in export, "it stopped early, since its objects took 150 s each"
    assert export[-1] in {"succeeded", "duplicate"}


def test_the_same_seed_gives_the_same_history(three_hours, tmp_path):
    _, summary, lines = three_hours

    _, again, same_lines = play(tmp_path, HOURS, 7)

    assert same_lines == lines
    assert without_path(again) == without_path(summary)


@pytest.mark.nightly
@pytest.mark.skipif("NIGHTLY" not in os.environ, reason="run by make nightly")
def test_another_seed_gives_another_history(three_hours, tmp_path):
    _, summary, _ = three_hours

    code, other, _ = play(tmp_path, HOURS, 8)

    assert_all_is_well(code, other, exports=1, rollups=3)
    assert other["history"]["digest"] != summary["history"]["digest"]


@pytest.mark.nightly
@pytest.mark.skipif("NIGHTLY" not in os.environ, reason="run by make nightly")
@pytest.mark.timeout(3600)
def test_a_week_of_both_jobs_twice_with_the_same_history(tmp_path):
    code, summary, lines = play(tmp_path / "first", WEEK, 7)

    assert_all_is_well(code, summary, exports=7, rollups=167)  # an hour of 10 March does not exist
    _, again, same_lines = play(tmp_path / "second", WEEK, 7)
    assert same_lines == lines
    assert without_path(again) == without_path(summary)
