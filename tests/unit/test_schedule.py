"""What a schedule promises besides the table of `test_schedule_vectors.py`."""

from __future__ import annotations

import doctest
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from pkgutil import get_data

import pytest

from anarchon_ddb import schedule as schedule_module
from anarchon_ddb import zones
from anarchon_ddb.cron import Cron
from anarchon_ddb.errors import InvalidScheduleError
from anarchon_ddb.schedule import parse
from anarchon_ddb.slots import RateSlots

NEW_YORK = "America/New_York"
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
WHOLE_CALENDAR = 230 * 12  # the months of all years that cron knows


def utc(*numbers: int) -> datetime:
    return datetime(*numbers, tzinfo=UTC)


# Cases of the shared list that are about more than one `next`.


def test_case_c01_a_rate_made_for_any_number_is_one_that_rules_take():
    for number in (1, 2, 60):
        rate = f"rate({number} minute{'' if number == 1 else 's'})"
        assert parse(rate, kind="rule").period == timedelta(minutes=number)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("cron(55 7-23 * * * *)", "exactly one of day-of-month and day-of-week must be ?"),
        ("cron(* * * * *)", "AWS cron has 6 fields, got 5: add ? and the year"),
        ("cron(* ? * * * *)", "? not allowed in hours"),
        ("cron(*/60 * * * ? *)", "minutes step must be 1-59"),
    ],
)
def test_case_c02_both_services_refuse_a_cron_that_would_fail_the_deploy(expression, error):
    for kind in ("rule", "scheduler"):
        with pytest.raises(InvalidScheduleError) as caught:
            parse(expression, kind=kind)
        assert error in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    ["cron(0 0 30 2 ? *)", "cron(0 0 31 4,6 ? *)", "cron(0 0 29 2 ? 2026-2027)"],
)
def test_case_c04_a_cron_that_never_fires_is_refused_within_a_walk_of_the_calendar(
    expression, months_looked_at
):
    with pytest.raises(InvalidScheduleError, match="never fires"):
        parse(expression)
    assert 0 < months_looked_at[0] <= 2 * WHOLE_CALENDAR


def test_case_c04_a_schedule_of_the_past_lists_nothing_from_today_on():
    past = parse("cron(0 0 1 1 ? 2020)")
    assert past.next(JANUARY) is None
    assert list(past.between(JANUARY, utc(2027, 1, 1))) == []
    assert past.previous(JANUARY) == utc(2020, 1, 1)


def test_case_c05_backfill_counts_what_the_live_schedule_counts():
    schedule = parse("cron(30 2 * * ? *)", NEW_YORK)
    slots = list(schedule.between(utc(2026, 3, 7), utc(2026, 3, 10)))
    assert slots == [utc(2026, 3, 7, 7, 30), utc(2026, 3, 9, 6, 30)]


def test_case_c05_both_readings_of_a_repeated_time_name_one_slot():
    schedule = parse("cron(30 1 * * ? *)", NEW_YORK)
    first = utc(2026, 11, 1, 5, 30)
    assert list(schedule.between(utc(2026, 10, 31, 12), utc(2026, 11, 2))) == [first]
    assert schedule.slot_of(first) == first
    assert schedule.slot_of(first + timedelta(hours=1)) == first


def test_case_c05_hourly_slots_in_cairo_lose_nothing_but_the_hour_that_is_not():
    schedule = parse("cron(0 * * * ? *)", "Africa/Cairo")
    day = list(schedule.between(utc(2025, 4, 24, 22), utc(2025, 4, 25, 21)))
    assert day == [utc(2025, 4, 24, 22) + timedelta(hours=n) for n in range(23)]


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("cron(0 0 ? * SAT-SUN *)", [3, 4, 10, 11]),
        ("cron(0 0 ? * FRI-MON *)", [2, 3, 4, 5, 9, 10, 11, 12]),
    ],
)
def test_case_c07_a_wrapped_range_is_the_same_in_every_direction(expression, days):
    schedule = parse(expression)
    slots = [utc(2026, 1, day) for day in days]
    assert list(schedule.between(utc(2026, 1, 2), utc(2026, 1, 13))) == slots
    assert schedule.next(utc(2026, 1, 1)) == slots[0]
    assert schedule.previous(utc(2026, 1, 13)) == slots[-1]


def test_case_c07_a_wrapped_range_of_hours_is_five_hours():
    slots = parse("cron(0 22-2 * * ? *)").between(utc(2026, 1, 1), utc(2026, 1, 2))
    assert [slot.hour for slot in slots] == [0, 1, 2, 22, 23]


def test_case_c09_the_hour_is_read_on_the_zone_s_clock():
    schedule = parse("cron(0 0 * * ? *)", "Asia/Tokyo")
    assert schedule.next(utc(2026, 1, 1, 12)) == utc(2026, 1, 1, 15)
    assert "Asia/Tokyo" in schedule.describe()


# Instants: what goes in, what comes out.


@pytest.mark.parametrize("expression", ["cron(* * * * ? *)", "rate(1 minute)", "rate(2 days)"])
def test_slots_are_utc_and_whole_seconds_whatever_is_passed_in(expression):
    odd = datetime(2026, 1, 1, 9, 0, 59, 999999, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    schedule = parse(expression, "UTC", start=odd)
    slots = [schedule.next(odd), schedule.previous(odd + timedelta(days=9))]
    slots += islice(schedule.between(odd, odd + timedelta(days=3)), 5)
    for slot in slots:
        assert (slot.tzinfo, slot.microsecond) == (UTC, 0)


@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), "2026-01-01", None])  # noqa: DTZ001
def test_a_naive_time_or_none_at_all_is_a_type_error(wrong):
    schedule = parse("cron(* * * * ? *)")
    calls = (
        lambda: schedule.next(wrong),
        lambda: schedule.previous(wrong),
        lambda: schedule.between(wrong, JANUARY),
        lambda: schedule.between(JANUARY, wrong),
        lambda: schedule.slot_of(wrong),
    )
    for call in calls:
        with pytest.raises(TypeError, match="aware datetime"):
            call()


def test_a_naive_bound_is_a_type_error():
    with pytest.raises(TypeError, match="start must be an aware datetime"):
        parse("rate(1 day)", start=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    "expression", ["cron(* * * * ? *)", "rate(1 day)", "at(2026-01-01T00:00:00)"]
)
def test_the_ends_of_pythons_calendar_raise_nothing(expression):
    for offset in (-12, 0, 14):
        zone = timezone(timedelta(hours=offset))
        first, last = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
        schedule = parse(expression, start=first)
        assert schedule.next(last) is None
        assert schedule.previous(first) is None
        assert schedule.slot_of(first) is None or expression.startswith("rate")
        assert next(schedule.between(first, last)) is not None


def test_previous_of_a_time_just_after_a_slot_is_that_slot():
    noon = utc(2026, 1, 1, 12)
    assert parse("cron(0 12 * * ? *)").previous(noon + timedelta(seconds=30)) == noon


def test_previous_sees_the_next_date_that_a_repeated_hour_has_shown_already():
    # St. John's set its clock at 00:01, back to 23:01 of the day before
    midnight = parse("cron(0 0 * * ? *)", "America/St_Johns")
    shown_at = utc(2010, 11, 7, 2, 30)
    evening_again = utc(2010, 11, 7, 3)
    assert midnight.next(utc(2010, 11, 7)) == shown_at
    assert midnight.previous(evening_again) == shown_at


def test_between_is_lazy():
    slots = parse("cron(* * * * ? *)").between(JANUARY, utc(2199, 1, 1))
    assert list(islice(slots, 2)) == [JANUARY, JANUARY + timedelta(minutes=1)]


def test_between_includes_its_start_and_not_its_end():
    schedule = parse("cron(0 12 * * ? *)")
    noon = utc(2026, 1, 1, 12)
    assert list(schedule.between(noon, noon + timedelta(days=1))) == [noon]


def test_between_is_empty_when_its_end_is_not_later():
    schedule = parse("cron(* * * * ? *)")
    assert list(schedule.between(JANUARY, JANUARY)) == []
    assert list(schedule.between(JANUARY, JANUARY - timedelta(days=1))) == []


# Bounds.


def test_no_slot_lies_before_start_or_at_end():
    noon = utc(2026, 1, 5, 12)
    end = noon + timedelta(days=2)
    schedule = parse("cron(0 12 * * ? *)", start=noon, end=end)
    slots = [noon, noon + timedelta(days=1)]
    assert list(schedule.between(utc(2020, 1, 1), utc(2030, 1, 1))) == slots
    assert schedule.next(utc(2020, 1, 1)) == noon
    assert schedule.next(slots[-1]) is None
    assert schedule.previous(utc(2030, 1, 1)) == slots[-1]
    assert schedule.previous(noon) is None
    assert schedule.slot_of(end) is None
    assert schedule.slot_of(noon) == noon


def test_a_start_within_a_second_does_not_move_the_slot_of_that_second():
    schedule = parse("cron(0 12 * * ? *)", start=utc(2026, 1, 5, 12, 0, 0, 1))
    assert schedule.next(JANUARY) == utc(2026, 1, 6, 12)


def test_an_end_that_is_not_after_start_is_refused():
    with pytest.raises(InvalidScheduleError, match="is not after start"):
        parse("rate(1 day)", start=JANUARY, end=JANUARY)


def test_aws_ignores_the_bounds_of_a_one_time_schedule():
    schedule = parse("at(2026-06-01T00:00:00)", start=utc(2027, 1, 1), end=utc(2026, 2, 1))
    assert (schedule.start, schedule.end) == (None, None)
    assert schedule.next(JANUARY) == utc(2026, 6, 1)


# Rates.


def test_the_start_of_a_rate_is_its_first_slot():
    schedule = parse("rate(5 minutes)", start=JANUARY)
    assert schedule.is_anchored
    assert schedule.next(JANUARY - timedelta(days=1)) == JANUARY
    assert schedule.previous(JANUARY) is None
    assert schedule.previous(JANUARY + timedelta(seconds=1)) == JANUARY


def test_a_rate_without_a_start_counts_from_the_argument_and_says_so():
    schedule = parse("rate(1 hour)")
    odd = utc(2026, 1, 1, 0, 7, 7)
    assert not schedule.is_anchored
    assert schedule.next(odd) == odd + timedelta(hours=1)
    assert schedule.previous(odd) == odd - timedelta(hours=1)
    between = list(schedule.between(odd, odd + timedelta(hours=2)))
    assert between == [odd, odd + timedelta(hours=1)]
    assert "a moment only AWS knows" in schedule.describe()


def test_the_slots_of_a_rate_asked_for_from_before_its_anchor_begin_with_it():
    slots = RateSlots(timedelta(hours=1), JANUARY).from_(JANUARY - timedelta(days=3))
    assert list(islice(slots, 2)) == [JANUARY, JANUARY + timedelta(hours=1)]


def test_the_slot_of_a_rate_is_the_time_as_delivered():
    delivered = utc(2026, 1, 1, 0, 7, 7)
    assert parse("rate(1 hour)").slot_of(delivered.replace(microsecond=5)) == delivered


def test_only_a_rate_has_a_period():
    assert parse("rate(36 hours)").period == timedelta(hours=36)
    assert parse("cron(* * * * ? *)").period is None
    assert parse("at(2026-01-01T00:00:00)").period is None


@pytest.mark.parametrize("form", ["cron", "rate", "at"])
def test_a_schedule_tells_its_form(form):
    inner = {"cron": "* * * * ? *", "rate": "1 day", "at": "2026-01-01T00:00:00"}
    schedule = parse(f"{form}({inner[form]})")
    assert schedule.form == form
    assert schedule.is_anchored == (form != "rate")


# The slot an event stands for.


def test_a_cron_event_stands_for_the_slot_of_its_minute():
    schedule = parse("cron(0/5 * * * ? *)")
    assert schedule.slot_of(utc(2026, 1, 1, 0, 5, 42, 7)) == utc(2026, 1, 1, 0, 5)


def test_a_time_that_is_no_slot_stands_for_none():
    schedule = parse("cron(0/5 * ? * MON *)")
    assert schedule.slot_of(utc(2026, 1, 5, 0, 4)) is None
    assert schedule.slot_of(utc(2026, 1, 6, 0, 5)) is None


def test_a_one_time_event_stands_for_its_slot_within_its_minute():
    schedule = parse("at(2026-01-01T00:00:30)")
    slot = utc(2026, 1, 1, 0, 0, 30)
    assert schedule.slot_of(slot + timedelta(seconds=59)) == slot
    assert schedule.slot_of(slot + timedelta(seconds=60)) is None
    assert schedule.slot_of(slot - timedelta(seconds=1)) is None


# The object.


def test_a_schedule_keeps_what_it_was_given():
    schedule = parse("cron(0 12 * * ? *)", "Europe/Berlin", "scheduler")
    assert schedule.expression == "cron(0 12 * * ? *)"
    assert (schedule.timezone, schedule.kind) == ("Europe/Berlin", "scheduler")


def test_a_schedule_is_immutable_and_hashable():
    schedule = parse("rate(1 day)")
    with pytest.raises(FrozenInstanceError):
        schedule.expression = "rate(2 days)"
    assert not hasattr(schedule, "__dict__")
    assert {schedule: 1}[parse("rate(1 day)")] == 1


def test_schedules_of_other_zones_differ():
    assert parse("cron(0 0 * * ? *)") != parse("cron(0 0 * * ? *)", "Asia/Tokyo")


def test_a_schedule_survives_a_pickle():
    schedule = parse("cron(30 1 * * ? *)", NEW_YORK)
    copy = pickle.loads(pickle.dumps(schedule))
    assert copy == schedule
    assert copy.next(JANUARY) == schedule.next(JANUARY)


@pytest.mark.parametrize("wrong", [None, 5, b"rate(1 day)", ["rate(1 day)"]])
def test_an_expression_that_is_no_text_is_refused(wrong):
    with pytest.raises(InvalidScheduleError, match="expected cron"):
        parse(wrong)


def test_a_zone_that_is_no_text_is_refused():
    with pytest.raises(InvalidScheduleError, match="timezone None is no text"):
        parse("rate(1 day)", None)


def test_another_kind_is_refused():
    with pytest.raises(InvalidScheduleError, match="write scheduler or rule"):
        parse("rate(1 day)", kind="ScheduleV2")


@pytest.mark.parametrize(
    ("form", "timezone"),
    [("cron(1,{}x * * * ? *)", "UTC"), ("rate({} days)", "UTC"), ("rate(5 days)", "{}")],
)
def test_what_is_very_long_is_cut_in_its_error(form, timezone):
    long = "1," * 50_000
    with pytest.raises(InvalidScheduleError) as caught:
        parse(form.format(long), timezone.format(long))
    assert len(str(caught.value)) < 600


# Zones.


FIND_A_SLOT = """
from datetime import datetime, UTC
from anarchon_ddb.schedule import parse
schedule = parse("cron(30 1 * * ? *)", "America/New_York")
print(schedule.next(datetime(2026, 11, 1, tzinfo=UTC)).isoformat())
"""


@pytest.mark.parametrize("tz", [None, "Asia/Kathmandu", "nonsense"])
def test_neither_tz_nor_the_system_s_zone_files_move_a_slot(tz, tmp_path):
    # Given a system whose file of New York's zone holds Tokyo's data
    tokyo = get_data("tzdata", "zoneinfo/Asia/Tokyo")
    (tmp_path / "America").mkdir()
    (tmp_path / "America" / "New_York").write_bytes(tokyo)
    settings = {"PYTHONTZPATH": str(tmp_path), **({"TZ": tz} if tz else {})}
    # When a process looks for a slot there
    done = subprocess.run(
        [sys.executable, "-c", FIND_A_SLOT],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # Then it is New York's
    assert done.stdout.strip() == "2026-11-01T05:30:00+00:00"


def test_every_zone_of_the_package_loads():
    assert len(zones.names()) > 500
    for name in zones.names():
        assert zones.load(name).key == name


def test_a_zone_is_loaded_once():
    assert zones.load("Europe/Berlin") is zones.load("Europe/Berlin")


# Work is bounded, and imports are light.


@pytest.fixture
def months_looked_at(monkeypatch):
    """Count the months a search looks at: its only loop of any length."""
    count = [0]
    looked_up = Cron.days_in

    def counted(cron: Cron, year: int, month: int) -> tuple[int, ...]:
        count[0] += 1
        return looked_up(cron, year, month)

    monkeypatch.setattr(Cron, "days_in", counted)
    return count


def test_a_search_looks_at_each_month_of_the_calendar_at_most_once(months_looked_at):
    schedule = parse("cron(0 0 29 2 ? *)")
    months_looked_at[0] = 0
    assert schedule.next(utc(2197, 1, 1)) is None
    assert months_looked_at[0] <= WHOLE_CALENDAR
    months_looked_at[0] = 0
    assert schedule.previous(utc(1971, 1, 1)) is None
    assert months_looked_at[0] <= WHOLE_CALENDAR


def test_importing_the_module_loads_nothing_heavy():
    code = """
import sys, anarchon_ddb
before = set(sys.modules)
import anarchon_ddb.schedule
print(*set(sys.modules) - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"boto3", "botocore", "pynamodb", "aws_lambda_powertools", "difflib"}
    assert "anarchon_ddb.schedule_text" not in done.stdout.split()


@pytest.mark.parametrize("module", [schedule_module, zones, sys.modules["anarchon_ddb.cron"]])
def test_the_examples_in_the_docstrings_are_true(module):
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def instant(text):
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("expression", "zone", "slot", "start"),
    [
        ("cron(0 9 ? * MON-FRI *)", "UTC", "2026-11-30T09:00:00Z", "2026-11-27T09:00:00Z"),
        ("cron(30 2 * * ? *)", "America/New_York", "2026-03-09T06:30:00Z", "2026-03-07T07:30:00Z"),
        ("cron(30 1 * * ? *)", "America/New_York", "2026-11-02T06:30:00Z", "2026-11-01T05:30:00Z"),
        ("cron(0 * * * ? *)", "America/New_York", "2026-11-01T07:00:00Z", "2026-11-01T05:00:00Z"),
        ("cron(0 0 * * ? *)", "Africa/Cairo", "2025-04-25T21:00:00Z", "2025-04-23T22:00:00Z"),
        ("rate(1 day)", "America/New_York", "2026-03-08T14:00:07Z", "2026-03-07T14:00:07Z"),
    ],
)
def test_a_window_reaches_back_to_the_slot_before(expression, zone, slot, start):
    schedule = parse(expression, zone)
    assert schedule.window(instant(slot)) == (instant(start), instant(slot))


def test_the_window_of_an_anchored_rate_is_counted_from_the_slot_that_was_delivered():
    schedule = parse("rate(1 hour)", start=instant("2026-11-29T00:00:00Z"))
    slot = instant("2026-11-29T00:00:00Z")
    assert schedule.window(slot) == (instant("2026-11-28T23:00:00Z"), slot)


def test_a_start_date_does_not_cut_the_first_window():
    schedule = parse("cron(0 0 * * ? *)", start=instant("2026-11-29T00:00:00Z"))
    slot = instant("2026-11-29T00:00:00Z")
    assert schedule.window(slot) == (instant("2026-11-28T00:00:00Z"), slot)


@pytest.mark.parametrize("expression", ["at(2026-11-29T12:00:00)", "cron(0 12 29 11 ? 2026)"])
def test_a_slot_with_none_before_it_has_no_window(expression):
    with pytest.raises(InvalidScheduleError, match="no slot before 2026-11-29T12:00:00Z"):
        parse(expression).window(instant("2026-11-29T12:00:00Z"))


def test_a_local_time_that_occurs_twice_tells_which_of_the_two_it_is():
    schedule = parse("cron(30 1 * * ? *)", "America/New_York")
    shown = [schedule.local(instant(f"2026-11-01T{hour}:30:00Z")) for hour in ("05", "06")]
    assert [moment.isoformat() for moment in shown] == [
        "2026-11-01T01:30:00-04:00",
        "2026-11-01T01:30:00-05:00",
    ]
