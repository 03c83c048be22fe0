"""Laws that hold for every schedule, and an oracle that shares no code with the package."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from anarchon_ddb import zones
from anarchon_ddb.cron import Cron
from anarchon_ddb.errors import InvalidScheduleError
from anarchon_ddb.schedule import Schedule, parse
from tests.properties import naive_schedule
from tests.properties.schedule_expressions import ZONES, crons

TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)
# Days on which one of the zones sets its clock, so that a good part of the search is near them.
CHANGES = [
    datetime(2026, 3, 8, 7, tzinfo=UTC),  # New York
    datetime(2026, 11, 1, 6, tzinfo=UTC),
    datetime(2026, 3, 29, 1, tzinfo=UTC),  # Berlin
    datetime(2025, 10, 26, 1, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),  # Lord Howe
    datetime(2025, 10, 4, 15, 30, tzinfo=UTC),
    datetime(2025, 4, 24, 22, tzinfo=UTC),  # Cairo
    datetime(2025, 10, 30, 21, tzinfo=UTC),
    datetime(2026, 4, 5, 3, tzinfo=UTC),  # Santiago
    datetime(2025, 11, 2, 5, tzinfo=UTC),  # Havana, St. John's
    datetime(2010, 11, 7, 2, 31, tzinfo=UTC),  # St. John's, back over midnight
    datetime(2011, 12, 30, 10, tzinfo=UTC),  # Apia's lost date
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(2025, 12, 31, tzinfo=UTC),
]
ANYWHERE = st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
NEAR_A_CHANGE = st.builds(
    lambda change, minutes, seconds: change + timedelta(minutes=minutes, seconds=seconds),
    st.sampled_from(CHANGES),
    st.integers(-36 * 60, 36 * 60),
    st.integers(0, 59),
)
INSTANTS = st.one_of(NEAR_A_CHANGE, NEAR_A_CHANGE, ANYWHERE)
RATES = st.builds(
    lambda number, unit: f"rate({number} {unit})",
    st.integers(1, 500),
    st.sampled_from(["minutes", "hours", "days"]),
)


@st.composite
def schedules(draw) -> Schedule:
    expression = draw(st.one_of(crons(), crons(), RATES))
    start = draw(st.one_of(st.none(), INSTANTS))
    if expression.startswith("rate"):
        start = draw(INSTANTS)
    end = draw(st.one_of(st.none(), INSTANTS))
    try:
        return parse(expression, draw(ZONES), start=start, end=end)
    except InvalidScheduleError as error:
        assume("never fires" not in str(error) and "is not after start" not in str(error))
        raise


def found_by_search(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """List what the package finds: nothing if it refuses the expression because it never fires."""
    try:
        return list(parse(expression, zone).between(start, end))
    except InvalidScheduleError as error:
        if "never fires" in str(error):
            return []
        raise


@given(crons(), ZONES, INSTANTS, st.integers(1, 60))
@example("cron(0/7 * * * ? *)", "Australia/Lord_Howe", CHANGES[4] - DAY / 8, 6)
@example("cron(* * * * ? *)", "Africa/Cairo", CHANGES[7] - DAY / 8, 6)
@settings(max_examples=250, deadline=None)
def test_a_walk_from_minute_to_minute_finds_the_same_slots(expression, zone, start, hours):
    end = start + timedelta(hours=hours)
    expected = list(naive_schedule.slots(expression, zones.load(zone), start, end))
    assert found_by_search(expression, zone, start, end) == expected


@given(crons(minutes=st.just("30")), ZONES, INSTANTS)
@settings(max_examples=60, deadline=None)
def test_over_a_month_the_walk_finds_the_same_days(expression, zone, start):
    end = start + 40 * DAY
    expected = list(naive_schedule.slots(expression, zones.load(zone), start, end))
    assert found_by_search(expression, zone, start, end) == expected


@given(schedules(), INSTANTS)
@settings(deadline=None)
def test_next_is_later_and_previous_leads_back(schedule, instant):
    slot = schedule.next(instant)
    if slot is not None:
        assert slot > instant
        assert schedule.previous(slot + TICK) == slot
        before = schedule.previous(slot)
        assert before is None or before <= instant


@given(schedules(), INSTANTS)
@settings(deadline=None)
def test_previous_is_earlier_and_next_leads_back(schedule, instant):
    slot = schedule.previous(instant)
    if slot is not None:
        assert slot < instant
        assert schedule.next(slot - TICK) == slot
        after = schedule.next(slot)
        assert after is None or after >= instant


@given(schedules(), INSTANTS)
@settings(deadline=None)
def test_between_is_next_again_and_again(schedule, instant):
    listed = list(islice(schedule.between(instant, instant + 400 * DAY), 50))
    one_by_one = []
    slot = schedule.next(instant - TICK)
    while slot is not None and slot < instant + 400 * DAY and len(one_by_one) < 50:
        one_by_one.append(slot)
        slot = schedule.next(slot)
    assert listed == one_by_one


@given(schedules(), INSTANTS, st.integers(0, 100), st.integers(0, 100))
@settings(deadline=None)
def test_two_stretches_that_meet_list_what_the_whole_does(schedule, start, first, second):
    middle = start + timedelta(minutes=first * 7)
    end = middle + timedelta(minutes=second * 7)
    halves = [*schedule.between(start, middle), *schedule.between(middle, end)]
    assert halves == list(schedule.between(start, end))


@given(schedules(), INSTANTS)
@settings(deadline=None)
def test_slots_ascend_and_lie_within_the_bounds(schedule, instant):
    slots = list(islice(schedule.between(instant - 30 * DAY, instant + 400 * DAY), 40))
    assert slots == sorted(set(slots))
    for slot in slots:
        assert schedule.start is None or slot >= schedule.start
        assert schedule.end is None or slot < schedule.end


@given(crons(), ZONES, INSTANTS)
@settings(deadline=None)
def test_each_slot_shows_its_fields_on_the_local_clock(expression, zone, instant):
    try:
        slot = parse(expression, zone).next(instant)
    except InvalidScheduleError:
        return
    if slot is not None:
        local = slot.astimezone(zones.load(zone))
        minutes, hours, *days = expression[5:-1].split()
        assert (local.second, local.fold) == (0, 0)
        assert naive_schedule.is_time(local, minutes, hours)
        assert naive_schedule.is_day(local.date(), *days)


@given(crons(), ZONES, INSTANTS, st.integers(0, 59))
@settings(deadline=None)
def test_an_event_within_a_slot_s_minute_stands_for_it(expression, zone, instant, seconds):
    try:
        schedule = parse(expression, zone)
    except InvalidScheduleError:
        return
    slot = schedule.next(instant)
    if slot is not None:
        assert schedule.slot_of(slot + timedelta(seconds=seconds)) == slot
    named = schedule.slot_of(instant)
    assert named is None or schedule.next(named - TICK) == named


@given(crons(), ZONES, INSTANTS)
@settings(max_examples=50, deadline=None)
def test_describe_names_the_zone_whatever_the_expression(expression, zone, instant):
    try:
        schedule = parse(expression, zone)
    except InvalidScheduleError:
        return
    assert f"{zone} time" in schedule.describe()


VALID = (
    "cron(0/5 8-17 ? * MON-FRI *)",
    "cron(0 0 15W 2,JUN ? 2026-2030)",
    "cron(15 10 ? * 6L 2022-2199/3)",
    "cron(0 12 ? * 3#5)",
    "rate(5 minutes)",
    "at(2026-11-29T12:00:00)",
)
ALPHABET = "0123456789 *?,-/LW#()cronateMONJUSFRI\t\n:T.٣é\x00"


def mutated(pick: random.Random) -> str:
    text = list(pick.choice(VALID))
    for _ in range(pick.choice((1, 1, 1, 2, 3, 6))):
        at = pick.randrange(len(text) + 1)
        new = [] if pick.random() < 0.3 else [pick.choice(ALPHABET)]
        text[at : at + pick.randint(0, 2)] = new
    return "".join(text)


def garbage(pick: random.Random) -> str:
    text = "".join(pick.choices(ALPHABET, k=pick.randint(0, 60)))
    return pick.choice(("", "cron(", "rate(", "at(")) + text + pick.choice(("", ")"))


@pytest.mark.parametrize("seed", range(4))
def test_of_20000_random_strings_each_is_a_schedule_or_refused_in_bounded_work(seed, monkeypatch):
    # Given a count of the months looked at: the one loop whose length depends on the text's meaning
    looked_at = [0]
    days_in = Cron.days_in

    def counted(cron: Cron, year: int, month: int) -> tuple[int, ...]:
        looked_at[0] += 1
        return days_in(cron, year, month)

    monkeypatch.setattr(Cron, "days_in", counted)
    pick = random.Random(seed)
    outcomes = {"schedule": 0, "refused": 0}
    for number in range(5_000):
        text = mutated(pick) if number % 2 else garbage(pick)
        looked_at[0] = 0
        try:
            schedule = parse(text, "UTC", pick.choice(("scheduler", "rule")))
        except InvalidScheduleError:
            outcomes["refused"] += 1
        else:
            outcomes["schedule"] += 1
            schedule.next(CHANGES[0])
        # Then it walked the 230 years of the calendar no more than once forward and once for `next`
        assert looked_at[0] <= 2 * 230 * 12, text
    assert outcomes["schedule"] > 100
    assert outcomes["refused"] > 1000
