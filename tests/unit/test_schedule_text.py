"""`describe` says in English what a schedule does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anarchon_ddb.schedule import parse

DATA = Path(__file__).parents[1] / "data" / "schedule_vectors.json"
TABLE = json.loads(DATA.read_text("utf-8"))["english"]
BOUNDS = {"start": datetime(2026, 1, 1, tzinfo=UTC), "end": datetime(2027, 1, 1, tzinfo=UTC)}
IN_WORDS = "from 2026-01-01 00:00:00 UTC, until 2027-01-01 00:00:00 UTC"


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["expression"])
def test_describe_says_it_in_english(row):
    assert parse(row["expression"], row["timezone"]).describe() == row["english"]


def test_describe_tells_the_bounds_of_a_cron():
    text = parse("cron(0 0 * * ? *)", **BOUNDS).describe()
    assert text == f"at 00:00, every day, UTC time, {IN_WORDS}"


def test_describe_tells_where_a_rate_counts_from():
    assert parse("rate(1 hour)", **BOUNDS).describe() == f"every hour, counted {IN_WORDS}"


def test_spellings_of_one_schedule_read_the_same():
    texts = {parse(f"cron({m} * * * ? *)").describe() for m in ("0/15", "*/15", "0,15,30,45")}
    assert texts == {"every 15 minutes, every day, UTC time"}
