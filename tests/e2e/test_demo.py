"""`make demo`, run as a person runs it: its proof, its exit code, what a signal leaves behind."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import children_of, is_alive, wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_the_demo_and_all_it_started(tmp_path, name, code):
    demo = subprocess.Popen(
        [sys.executable, "-m", "anarchon_ddb.local.demo", "--logs", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children = wait_until(lambda: children_of(demo.pid))

    demo.send_signal(getattr(signal, name))
    started_s = time.monotonic()
    _, errors = demo.communicate(timeout=10)

    assert demo.returncode == code
    assert time.monotonic() - started_s < 2
    assert "Traceback" not in errors
    assert not any(map(is_alive, children))


def test_the_demo_stops_early_is_killed_resumes_and_proves_the_export_equal(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "anarchon_ddb.local.demo", "--json", "--logs", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert summary["equal"]
    assert summary["state"] == "succeeded"
    assert summary["source_rows"] == summary["exported_rows"] == 3322
    assert (summary["missing"], summary["extra"], summary["differing"]) == ([], [], [])
    assert summary["stopped_early"] >= 1
    assert summary["killed"] == 1
    assert summary["batches_repeated"] == 1
    assert [told["number"] for told in summary["attempts"]] == list(
        range(1, len(summary["attempts"]) + 1)
    )
    assert summary["attempts"][0]["resumed_from"] is None
    assert sum(told["rows"] for told in summary["attempts"]) == 3322
    assert "S3 is equal to the source" in ended.stderr
