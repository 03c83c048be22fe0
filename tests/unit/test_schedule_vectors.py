"""The table of `tests/data/schedule_vectors.json`: what AWS fires, and what it refuses.

The instants were worked out by the minute-by-minute scan of `tests/properties/naive_schedule.py`,
which shares no code with the package, and checked by hand against calendars and the zones' dates of
change; those of rates and `at` were written by hand. A case of the shared list is named in its id.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anarchon_ddb.errors import InvalidScheduleError
from anarchon_ddb.schedule import Schedule, parse

TABLE = json.loads(
    (Path(__file__).parents[1] / "data" / "schedule_vectors.json").read_text("utf-8")
)


def named(vector: dict) -> str:
    return f"{vector['why']}: {vector['expression']} {vector['timezone']} {vector['kind']}"


def instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def schedule_of(vector: dict) -> Schedule:
    start = instant(vector.get("start"))
    return parse(vector["expression"], vector["timezone"], vector["kind"], start=start)


@pytest.mark.parametrize("vector", TABLE["slots"], ids=named)
def test_the_slots_after_an_instant_are_those_of_aws(vector):
    schedule = schedule_of(vector)
    slot = instant(vector["after"])
    found = []
    for _ in vector["next"]:
        slot = schedule.next(slot) if slot else None
        found.append(slot)
    assert found == [instant(text) for text in vector["next"]]


@pytest.mark.parametrize("vector", TABLE["slots"], ids=named)
def test_going_back_meets_the_same_slots(vector):
    schedule = schedule_of(vector)
    slots = [instant(text) for text in vector["next"] if text]
    back = [schedule.previous(slot) for slot in slots[1:]]
    assert back == slots[:-1]


@pytest.mark.parametrize("vector", TABLE["errors"], ids=named)
def test_what_aws_refuses_is_refused_with_the_field_and_the_fix(vector):
    with pytest.raises(InvalidScheduleError) as caught:
        schedule_of(vector)
    assert vector["error"] in str(caught.value)
    assert repr(vector["expression"]) in str(caught.value)


def test_the_table_is_as_large_as_promised():
    assert len(TABLE["slots"]) + len(TABLE["errors"]) >= 150
    assert sum(len([slot for slot in v["next"] if slot]) >= 3 for v in TABLE["slots"]) >= 120
