"""The referee of a play notices: a condition is taken from a copy of the product, and a promise
that rests on it is told as broken; with all conditions in place, none is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HALF_AN_HOUR = ("--from", "2026-03-01T00:00:00Z", "--to", "2026-03-01T00:30:00Z")

# Batches of 80 s in sandboxes of 150 s: most attempts are killed at their deadline, and a lease
# of theirs is still held when the next delivery comes.
JOB = """
import time

from anarchon_ddb import Run, job


@job("report", overlap="queue")
def handler(run: Run) -> None:
    for number in range(run.checkpoint or 0, 8):
        time.sleep(80)
        run.save(number + 1)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stack with one job that works longer than its function may."""
    directory = tmp_path_factory.mktemp("project")
    subprocess.run(
        [sys.executable, "-m", "anarchon_ddb.cli", "init", ".", "--job", "report",
         "--schedule", "cron(0/10 * * * ? *)", "--apply", "--yes"],
        cwd=directory, check=True, capture_output=True,
    )  # fmt: skip
    template = directory / "template.yaml"
    template.write_text(template.read_text().replace("Timeout: 900", "Timeout: 150"))
    (directory / "handlers/report.py").write_text(JOB)
    return directory


def promises(project: Path, code: Path) -> dict[int, Any]:
    """Play with the product in a directory; return what is told of each promise."""
    done = subprocess.run(
        [sys.executable, "-m", "anarchon_ddb.cli", "local", "--json", *HALF_AN_HOUR,
         "--chaos", "kill=0.2,duplicate=1", "--seed", "7", "--logs", str(code / "logs")],
        cwd=project, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(code)},
    )  # fmt: skip
    assert done.stdout, done.stderr
    return {one["number"]: one for one in json.loads(done.stdout)["promises"]}


def changed(directory: Path, file: str, before: str, after: str) -> Path:
    shutil.copytree(
        ROOT / "anarchon_ddb", directory / "anarchon_ddb", ignore=shutil.ignore_patterns("__pyc*")
    )
    path = directory / "anarchon_ddb" / file
    text = path.read_text()
    assert before in text, "the product has changed: change this test with it"
    path.write_text(text.replace(before, after))
    return directory


def test_with_every_condition_in_place_no_promise_is_broken(project: Path, tmp_path: Path) -> None:
    found = promises(project, changed(tmp_path, "protocol.py", "", ""))

    assert [one["holds"] for one in found.values()] == [True] * 8


@pytest.mark.parametrize(
    ("number", "file", "before", "after"),
    [
        (1, "protocol.py", 'AND #lease_until < :expired_before"', 'AND :expired_before > :zero"'),
        (3, "gate.py", 'f"({FREE} OR {MINE})"', '"#pk = #pk"'),
    ],
    ids=["a claim does not ask for the lease", "a gate lets all pass"],
)
def test_a_condition_that_is_gone_is_noticed(
    project: Path, tmp_path: Path, number: int, file: str, before: str, after: str
) -> None:
    found = promises(project, changed(tmp_path, file, before, after))

    assert found[number]["holds"] is False, found[number]
    assert found[number]["broken"]
