"""timeline and watch: the terminal's bars, and the page as a real browser renders it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anarchon_ddb import Run, job
from anarchon_ddb.records import Attempt
from anarchon_ddb.schema import pack_attempts
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT
from tests.operator import Operator, minutes, put_run, put_runs

Contexts = Callable[..., LambdaContext]
BASE_MS = 1_795_953_600_000  # SLOT


def interrupted_twice(clock: SettableClock, context: Contexts) -> None:
    @job("export")
    def handler(run: Run) -> None:
        if run.attempt < 3:
            clock.advance(seconds=55)
        run.save(run.attempt, done=run.attempt, total=3)

    handler(scheduler_event("export", SLOT), context("60s"))
    clock.advance(seconds=5)
    handler(resume_event("export", SLOT), context("60s"))
    clock.advance(seconds=60)
    handler(resume_event("export", SLOT), context("15m"))


def test_the_terminal_draws_each_attempt_with_its_own_sign(
    ops: Operator, store: Store, clock: SettableClock, context: Contexts
) -> None:
    interrupted_twice(clock, context)
    put_run(store, "export", "2026-11-29T11:00:00Z", state="skipped", reason="overlap",
            claimed_at=BASE_MS - 3_600_000)  # fmt: skip
    answer = ops("timeline", "export", "--since", "2h")
    header, skipped, run = answer.out.splitlines()[:3]
    assert header.split()[:2] == ["SLOT", "STATE"]
    assert "skipped (overlap)" in skipped
    assert re.search(r"· +▓+ +▓+ +█", run)
    assert "2 runs: 1 skipped, 1 succeeded" in answer.out
    data = ops.json("timeline", "export", "--since", "2h")
    assert data["counts"] == {"succeeded": 1, "skipped": 1}
    (bar,) = (one for one in data["runs"] if one["slot"] == SLOT)
    assert [one["outcome"] for one in bar["attempts"]] == [
        "interrupted", "interrupted", "succeeded",
    ]  # fmt: skip


def test_runs_short_beside_the_time_between_them_are_drawn_from_when_each_was_due(
    ops: Operator, store: Store
) -> None:
    for hour in range(6):
        start = BASE_MS - (6 - hour) * 3_600_000
        history = pack_attempts([Attempt(1, start, start + 60_000, "succeeded", 1)])
        put_run(store, "export", f"2026-11-29T{6 + hour:02}:00:00Z", attempts=history)
    answer = ops("timeline", "export")
    assert "1 min after" in answer.out.splitlines()[0]
    assert answer.out.splitlines()[1].count("█") > 30


# --- the page ----------------------------------------------------------------------------------


def thousand(store: Store) -> Counter[str]:
    """1,000 runs of one job, in every state, with up to three attempts."""
    states: list[tuple[str, str | None]] = [
        ("succeeded", "done"),
        ("failed", "error"),
        ("skipped", "overlap"),
        ("missed", "undelivered"),
        ("cancelled", "cancelled"),
        ("interrupted", None),
    ]
    runs: list[tuple[str, str, dict[str, Any]]] = []
    counted: Counter[str] = Counter()
    for index, slot in enumerate(minutes(datetime(2026, 11, 26, 12, tzinfo=UTC), 1000, step=4)):
        state, reason = states[index % 40] if index % 40 < len(states) else states[0]
        counted[state] += 1
        due = round(datetime.fromisoformat(slot).timestamp() * 1000)
        ends = ["interrupted"] * (index % 3) + ["failed" if state == "failed" else "succeeded"]
        history = [
            Attempt(number + 1, due + number * 50_000 + 2_000, due + number * 50_000 + 40_000,
                    end, number, str(number * 100))  # type: ignore[arg-type]
            for number, end in enumerate(ends)
        ]  # fmt: skip
        attributes = {"state": state, "reason": reason, "attempt": len(ends),
                      "attempts": pack_attempts(history), "done": 100, "total": 300}  # fmt: skip
        if state == "failed":
            attributes["error"] = "<script>alert(1)</script> & \"quotes\" 'and' \x1b[31m"
        runs.append(("export", slot, attributes))
    put_runs(store, runs)
    return counted


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        text = "no chromium: `apt-get install chromium` to see the page rendered"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return found


def rendered(page: Path, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--disable-background-networking", "--no-first-run", f"--user-data-dir={profile}",
         "--enable-logging=stderr", "--window-size=1280,900", *arguments, page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip


def test_the_page_of_1000_runs_renders_with_the_tables_counts_and_no_error(
    ops: Operator, store: Store, tmp_path: Path
) -> None:
    counted = thousand(store)
    page = tmp_path / "export.html"
    assert ops("timeline", "export", "--since", "7d", "--html", str(page)).out == (
        f"1000 runs: {page}\n"
    )
    assert page.stat().st_size < 1_500_000
    done = rendered(page, tmp_path / "profile", "--dump-dom")
    assert "CONSOLE" not in done.stderr, done.stderr  # no error, no refused load
    shown = re.findall(r'data-state="(\w+)">([\d,]+)<', done.stdout)
    assert {state: int(count.replace(",", "")) for state, count in shown} == counted
    rows = Counter(re.findall(r'<div class="run (\w+)"', done.stdout))
    assert rows == counted
    table = ops.json("runs", "export", "--since", "7d", "--limit", "2000")["runs"]
    assert Counter(row["state"] for row in table) == rows
    attempts = sum(len(row["attempts"]) for row in table)
    assert done.stdout.count('<i class="bar ') - 5 == attempts  # five in the key
    picture = tmp_path / "page.png"
    rendered(page, tmp_path / "profile", f"--screenshot={picture}")
    assert picture.stat().st_size > 20_000


def test_the_page_asks_for_nothing_and_runs_nothing_that_the_table_holds(
    ops: Operator, store: Store, tmp_path: Path
) -> None:
    error = "</em><script>alert(1)</script><img src=http://x/y onerror=alert(1)>"
    put_run(store, "export", SLOT, state="failed", reason="error", error=error)
    page = tmp_path / "export.html"
    assert ops("timeline", "export", "--html", str(page)).code == 0
    text = page.read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    assert "url(" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text


def test_the_page_without_a_run_says_so(ops: Operator, tmp_path: Path) -> None:
    page = tmp_path / "export.html"
    assert ops("timeline", "export", "--html", str(page)).code == 0
    assert "No run in this span of time." in page.read_text()
    assert "export has no run since" in ops("timeline", "export").out


# --- watch -------------------------------------------------------------------------------------


def test_watch_shows_progress_rate_what_is_left_and_the_lease(
    ops: Operator, store: Store, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold(done: int) -> None:
        until = clock.now_ms() + 60_000
        put_run(store, "export", SLOT, state="running", open="1", due=1, done=done, total=400,
                lease_until=until)  # fmt: skip

    hold(100)
    first = ops("watch", "--once")
    assert "██░░░░░░  25 %" in first.out
    assert first.out.splitlines()[1].split()[-2:] == ["1", "min"]  # the lease
    looks: list[float] = []
    sleep = clock.sleep

    def on(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt
        sleep(seconds)
        hold(100 + 20 * len(looks))

    monkeypatch.setattr(clock, "sleep", on)
    answer = ops("watch", "export", "--json", "--interval", "2")
    assert answer.code == 0
    lines = [json.loads(line)["runs"][0] for line in answer.out.splitlines()]
    assert [line["done"] for line in lines] == [100, 120, 140]
    assert [line["rate_per_s"] for line in lines] == [None, 10.0, 10.0]
    assert (lines[-1]["eta_s"], lines[-1]["lease_left_s"]) == (26.0, 60.0)
    assert "No run is open." in ops("watch", "other").out
