"""Hypothesis strategies for valid expressions of every form that AWS documents."""

from __future__ import annotations

from hypothesis import strategies as st

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

# Zones that set the clock by an hour and by half an hour, at midnight and at two, in both
# hemispheres; one that skipped a date, and some that never set it.
ZONES = st.sampled_from(
    [
        "UTC",
        "America/New_York",
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Asia/Kathmandu",
        "America/Santiago",
        "America/Havana",
        "Pacific/Apia",
        "Africa/Casablanca",
        "America/St_Johns",
        "Asia/Gaza",
        "Pacific/Chatham",
    ]
)


@st.composite
def item(draw, low: int, high: int, names: list[str] | None = None, *, step: bool = True):
    """One item of a list: ``*``, a value, a range (wrapped or not), with a step or none."""
    values = st.integers(low, high)
    spelled = values.map(lambda n: names[n - 1]) if names and draw(st.booleans()) else values
    body = draw(st.one_of(st.just("*"), spelled, st.tuples(values, values)))
    text = f"{body[0]}-{body[1]}" if isinstance(body, tuple) else str(body)
    if step and draw(st.integers(0, 2)) == 0:
        text += f"/{draw(st.integers(1, max(high - low, 1)))}"
    return text


def listed(of: st.SearchStrategy[str], most: int = 3) -> st.SearchStrategy[str]:
    return st.lists(of, min_size=1, max_size=most).map(",".join)


def days_of_month() -> st.SearchStrategy[str]:
    nearest = st.integers(1, 31).map(lambda day: f"{day}W")
    alone = st.one_of(st.just("L"), st.just("LW"), nearest)
    return st.one_of(alone, listed(item(1, 31)), listed(item(1, 31)))


def days_of_week() -> st.SearchStrategy[str]:
    name = st.one_of(st.integers(1, 7).map(str), st.sampled_from(WEEKDAYS))
    nth = st.tuples(name, st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}")
    plain = item(1, 7, WEEKDAYS, step=False)
    last = st.one_of(st.just("L"), name.map(lambda text: f"{text}L"))
    return st.one_of(nth, last, listed(plain), listed(plain))


@st.composite
def crons(draw, *, minutes: st.SearchStrategy[str] | None = None) -> str:
    """A ``cron(…)``. Some of them can never fire."""
    of_month, of_week = draw(
        st.one_of(st.tuples(days_of_month(), st.just("?")), st.tuples(st.just("?"), days_of_week()))
    )
    fields = [
        draw(listed(item(0, 59)) if minutes is None else minutes),
        draw(listed(item(0, 23))),
        of_month,
        draw(st.one_of(st.just("*"), st.just("*"), listed(item(1, 12, MONTHS)))),
        of_week,
    ]
    return f"cron({' '.join([*fields, *draw(st.sampled_from([[], ['*'], ['2010-2030']]))])})"
