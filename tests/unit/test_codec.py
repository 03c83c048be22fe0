"""What is saved comes back: equal value, equal type, or it is refused."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st

from anarchon_ddb import codec
from anarchon_ddb.errors import CheckpointError, CheckpointTooLargeError


class Color(IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")  # noqa: PYI024  what a user may have


def assert_same(expected: Any, actual: Any) -> None:
    assert type(expected) is type(actual)
    assert expected == actual
    if isinstance(expected, dict):
        assert list(expected) == list(actual)
        for key in expected:
            assert_same(expected[key], actual[key])
    elif isinstance(expected, (list, tuple)):
        for one, other in zip(expected, actual, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert math.copysign(1, expected) == math.copysign(1, actual)
    elif isinstance(expected, Decimal):
        assert expected.as_tuple() == actual.as_tuple()
    elif isinstance(expected, datetime):
        assert expected.utcoffset() == actual.utcoffset()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(0.1, id="C39-ratio"),
        pytest.param(30.4, id="C39-price"),
        pytest.param(3, id="C39-count"),
        pytest.param(True, id="C39-flag"),
        pytest.param(9007199254740993, id="C39-big"),
        pytest.param(-0.0, id="C39-negative-zero"),
        pytest.param(Decimal(3), id="C40-number-key"),
        pytest.param(b"abc", id="C40-bytes"),
        pytest.param("YWJj", id="C40-looks-like-base64"),
        pytest.param(Decimal("1.10"), id="C40-exponent"),
        pytest.param((3, "x"), id="C41-tuple"),
        pytest.param(1e308, id="C43-large-float"),
        pytest.param(10**40, id="C43-large-int"),
        pytest.param(Decimal("1E+100"), id="C43-large-decimal"),
        pytest.param(1234567895171680000000000000000000000000, id="C43-40-digits"),
        pytest.param(10**6000, id="int-beyond-the-decimal-limit"),
        pytest.param(None, id="none"),
        pytest.param({"$": "bytes", "v": "YWJj"}, id="looks-like-a-marker"),
        pytest.param({"$": 1}, id="has-the-marker-key"),
        pytest.param({"a": {"$": "dict", "v": {"$": 2}}}, id="nested-marker"),
        pytest.param("\ud800 file", id="lone-surrogate"),
        pytest.param(date(2026, 2, 28), id="date"),
        pytest.param(datetime(2026, 2, 28, 1, 2, 3, 4, tzinfo=UTC), id="datetime"),
        pytest.param(datetime(2026, 2, 28, tzinfo=timezone(timedelta(hours=9))), id="offset"),
        pytest.param(
            datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=ZoneInfo("America/New_York")), id="fold"
        ),
        pytest.param(UUID("12345678123456781234567812345678"), id="uuid"),
        pytest.param([[], {}, (), "", b"", 0, False], id="empty-things"),
        pytest.param(["2026-02-01T00:00:00Z", 17], id="C34-composite-keyset"),
    ],
)
def test_a_value_comes_back_with_value_and_type(value: Any) -> None:
    assert_same(value, codec.loads(codec.dumps(value)))


def test_C39_the_whole_state_comes_back_and_is_plain_json() -> None:
    state = {"ratio": 0.1, "price": 30.4, "count": 3, "flag": True, "big": 9007199254740993}
    loaded = codec.loads(codec.dumps(state))
    assert_same(state, loaded)
    assert json.loads(json.dumps(loaded)) == state


def test_C40_a_binary_of_boto3_comes_back_as_bytes() -> None:
    loaded = codec.loads(codec.dumps({"sk": Binary(b"\x00\xff")}))
    assert_same({"sk": b"\x00\xff"}, loaded)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        pytest.param({"done_by_id": {101: "ok"}}, "done_by_id: key 101", id="C41-integer-key"),
        pytest.param({"seen": {1, 2}}, "seen: a set", id="C41-set"),
        pytest.param({"mixed": {1: "a", "1": "b"}}, "mixed: key 1", id="C41-mixed-keys"),
        pytest.param({"a": [1, math.nan]}, "a[1]: nan", id="C43-nan"),
        pytest.param(math.inf, "the value: inf", id="C43-inf"),
        pytest.param([-math.inf], "[0]: -inf", id="C43-minus-inf"),
        pytest.param({"d": Decimal("NaN")}, "d: NaN", id="C43-decimal-nan"),
        pytest.param({"d": Decimal("sNaN")}, "d: sNaN", id="C43-signalling-nan"),
        pytest.param({"d": Decimal("Infinity")}, "d: Infinity", id="C43-decimal-inf"),
        pytest.param({"t": datetime(2026, 1, 1)}, "t: a datetime without", id="naive"),  # noqa: DTZ001
        pytest.param(object(), "the value: an object", id="object"),
        pytest.param({"c": Color.RED}, "c: a Color would come back as int", id="enum"),
        pytest.param(Point(1, 2), "a Point would come back as tuple", id="named-tuple"),
        pytest.param(OrderedDict(a=1), "an OrderedDict would come back as dict", id="dict-kind"),
        pytest.param({"a": bytearray(b"x")}, "a: a bytearray", id="bytearray"),
        pytest.param({"\ud800": 1}, "is not valid Unicode", id="key-with-surrogate"),
        pytest.param({"f": lambda: 0}, "f: a function", id="function"),
    ],
)
def test_anything_else_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        codec.dumps(value)
    assert path in str(refusal.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CheckpointError, match="nested deeper"):
        codec.dumps(loop)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"seen_ids": ["x" * 9] * 33_250, "cursor": 42}, id="C35-growing-list"),
        pytest.param("é" * 210_000, id="C35-utf-8-counts"),
        pytest.param("x" * 20_000_000, id="C35-20-MB"),
    ],
)
def test_C35_beyond_the_limit_is_refused_with_the_size(value: Any) -> None:
    with pytest.raises(CheckpointTooLargeError, match=r"[\d,]+ bytes, the limit is 350,000"):
        codec.dumps(value)


def test_C35_the_largest_keys_are_named() -> None:
    with pytest.raises(CheckpointTooLargeError, match=r"largest keys: seen_ids \(360,0.. bytes\)"):
        codec.dumps({"cursor": 42, "seen_ids": "x" * 360_000})


@pytest.mark.parametrize("text", ["", "{", '{"$":"nope","v":1}', '{"$":"bytes"}',
                                  '{"$":"decimal","v":"x"}', '{"$":"datetime","v":["x"]}',
                                  '{"$":["a"],"v":1}'])  # fmt: skip
def test_damaged_text_is_one_clear_error(text: str) -> None:
    with pytest.raises(CheckpointError, match="can't be decoded"):
        codec.loads(text)


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.dates()
    | st.uuids()
    | st.datetimes(timezones=st.timezones())
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.sampled_from(["$", "v", "a", "b", "é"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_every_value_comes_back(value: Any) -> None:
    assert_same(value, codec.loads(codec.dumps(value)))


@given(st.text())
def test_no_text_makes_loads_fail_otherwise(text: str) -> None:
    try:
        codec.loads(text)
    except CheckpointError:
        pass
