"""Checkpoints and parameters as text: equal value and equal type after a round trip, or refused.

JSON with one marker: an object whose only keys are ``$`` and ``v`` stands for a value that JSON
lacks. A dict of the user's that has a ``$`` key is wrapped itself, so that it can't be mistaken.
Nothing is pickled: what is read from a table is data, never code.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from anarchon_ddb.errors import CheckpointError, CheckpointTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_BYTES = 350_000
"""An item may have 400 KB, names and all other attributes included."""

WARN_BYTES = 4_000
"""From here on each renewal of the lease pays for more than one write unit because of it."""

MAX_DEPTH = 100

# Beyond this many bits an int is written in hexadecimal: Python limits decimal conversion.
_DECIMAL_INT_BITS = 4_096

_MARK = "$"


def dumps(value: object, *, canonical: bool = False) -> str:
    """Encode a value as text.

    Parameters
    ----------
    value : object
        ``None``, bool, int of any size, finite float, str, bytes, ``Decimal``, aware datetime,
        date, ``UUID``, list, tuple, dict with string keys, nested.
    canonical : bool
        Sort the keys of dicts, so that equal values give equal texts. For comparing only: the
        order of a dict is part of it.

    Raises
    ------
    CheckpointError
        For everything else, with the path of the offending value.
    CheckpointTooLargeError
        Beyond ``LIMIT_BYTES`` of UTF-8.

    Examples
    --------
    >>> dumps({"after": (3, "x")})
    '{"after":{"$":"tuple","v":[3,"x"]}}'
    >>> loads(dumps({"after": (3, "x")}))
    {'after': (3, 'x')}
    """
    text = json.dumps(
        _encode(value, "", 0),
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
        sort_keys=canonical,
    )
    size = len(text.encode())
    if size > LIMIT_BYTES:
        raise CheckpointTooLargeError(
            f"the encoded value has {size:,} bytes, the limit is {LIMIT_BYTES:,}; "
            f"{_largest(value)}Keep only a cursor, and put results where they belong."
        )
    return text


def loads(text: str) -> Any:
    """Decode what ``dumps`` made.

    Raises
    ------
    CheckpointError
        If the text is no such thing: it was damaged, or written by a newer version.
    """
    try:
        return _decode(json.loads(text))
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise CheckpointError(
            f"a stored value can't be decoded ({type(error).__name__}: {error}); it was changed "
            "by other means, or written by a newer version of anarchon_ddb"
        ) from None


def _marked(kind: str, value: object) -> dict[str, object]:
    return {_MARK: kind, "v": value}


def _encode(value: object, path: str, depth: int) -> object:
    if value is None or value is True or value is False:
        return value
    if depth > MAX_DEPTH:
        raise CheckpointError(f"{path[:80]}…: nested deeper than {MAX_DEPTH} levels")
    encoder = _ENCODERS.get(type(value)) or _foreign_encoder(value)
    if encoder is None:
        raise CheckpointError(f"{path or 'the value'}: {_advice(value)}")
    return encoder(value, path, depth)


def _encode_int(value: int, _path: str, _depth: int) -> object:
    return value if value.bit_length() <= _DECIMAL_INT_BITS else _marked("int", hex(value))


def _encode_float(value: float, path: str, _depth: int) -> object:
    if not math.isfinite(value):
        raise CheckpointError(f"{path or 'the value'}: {value} is not a finite number")
    return value


def _encode_str(value: str, _path: str, _depth: int) -> object:
    try:
        value.encode()
    except UnicodeEncodeError:  # lone surrogates, as in a file name that is no UTF-8
        return _marked("str", base64.b64encode(value.encode("utf-8", "surrogatepass")).decode())
    return value


def _encode_bytes(value: bytes, _path: str, _depth: int) -> object:
    return _marked("bytes", base64.b64encode(value).decode())


def _encode_decimal(value: Decimal, path: str, _depth: int) -> object:
    if not value.is_finite():
        raise CheckpointError(f"{path or 'the value'}: {value} is not a finite number")
    return _marked("decimal", str(value))


def _encode_datetime(value: datetime, path: str, _depth: int) -> object:
    if value.tzinfo is None or value.utcoffset() is None:
        raise CheckpointError(
            f"{path or 'the value'}: a datetime without a time zone; "
            "give it one, such as datetime.now(timezone.utc)"
        )
    # A zone of this kind can't be there before its module is: it is not loaded to look for one.
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo and isinstance(value.tzinfo, zoneinfo.ZoneInfo) and value.tzinfo.key:
        local = value.replace(tzinfo=None).isoformat()
        return _marked("datetime", [local, value.tzinfo.key, value.fold])
    return _marked("datetime", value.isoformat())


def _encode_date(value: date, _path: str, _depth: int) -> object:
    return _marked("date", value.isoformat())


def _encode_uuid(value: UUID, _path: str, _depth: int) -> object:
    return _marked("uuid", str(value))


def _encode_list(value: list[object], path: str, depth: int) -> object:
    return [_encode(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]


def _encode_tuple(value: tuple[object, ...], path: str, depth: int) -> object:
    return _marked("tuple", _encode_list(list(value), path, depth))


def _encode_dict(value: dict[object, object], path: str, depth: int) -> object:
    encoded: dict[str, object] = {}
    for key, item in value.items():
        if type(key) is not str:
            raise CheckpointError(
                f"{path or 'the value'}: key {key!r} is {_article(key)}, not a string; "
                "JSON would change its type. Use a list of pairs"
            )
        if _encode_str(key, path, depth) is not key:
            raise CheckpointError(f"{path or 'the value'}: key {key!r} is not valid Unicode")
        encoded[key] = _encode(item, f"{path}.{key}" if path else key, depth + 1)
    return _marked("dict", encoded) if _MARK in encoded else encoded


def _encode_binary(value: Any, path: str, depth: int) -> object:
    return _encode_bytes(bytes(value.value), path, depth)


_ENCODERS: dict[type, Callable[[Any, str, int], object]] = {
    int: _encode_int,
    float: _encode_float,
    str: _encode_str,
    bytes: _encode_bytes,
    Decimal: _encode_decimal,
    datetime: _encode_datetime,
    date: _encode_date,
    UUID: _encode_uuid,
    list: _encode_list,
    tuple: _encode_tuple,
    dict: _encode_dict,
}


def _foreign_encoder(value: object) -> Callable[[Any, str, int], object] | None:
    """Return the encoder of boto3's ``Binary``, which comes in a LastEvaluatedKey."""
    # Told by its name: importing boto3 for it would cost every handler.
    kind = type(value)
    is_binary = (kind.__module__, kind.__name__) == ("boto3.dynamodb.types", "Binary")
    return _encode_binary if is_binary else None


def _decode(value: Any) -> Any:
    if type(value) is list:
        return [_decode(item) for item in value]
    if type(value) is not dict:
        return value
    if _MARK in value:
        return _DECODERS[value[_MARK]](value["v"])
    return {key: _decode(item) for key, item in value.items()}


def _decode_datetime(value: Any) -> datetime:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment
    from zoneinfo import ZoneInfo  # noqa: PLC0415  1 ms of each cold start, for few cursors

    local, key, fold = value
    return datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(key), fold=fold)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda value: int(value, 16),
    "str": lambda value: base64.b64decode(value).decode("utf-8", "surrogatepass"),
    "bytes": base64.b64decode,
    "decimal": Decimal,
    "datetime": _decode_datetime,
    "date": date.fromisoformat,
    "uuid": UUID,
    "tuple": lambda value: tuple(_decode(value)),
    "dict": lambda value: {key: _decode(item) for key, item in value.items()},
}


def _article(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def _advice(value: object) -> str:
    if isinstance(value, (set, frozenset)):
        return f"{_article(value)} can't be stored; use a sorted list"
    known = next((kind for kind in _ENCODERS if isinstance(value, kind)), None)
    if known is not None:  # a subclass, such as an enum or a named tuple, would lose its type
        return (
            f"{_article(value)} would come back as {known.__name__}; "
            f"convert it with {known.__name__}(…) first"
        )
    return f"{_article(value)} can't be stored; use plain values (numbers, strings, lists, dicts)"


def _largest(value: object) -> str:
    """Name the keys that weigh most, for the error of a checkpoint that grew too large."""
    if type(value) is not dict:
        return ""
    sizes = {key: len(json.dumps(_encode(item, "", 1), ensure_ascii=False).encode())
             for key, item in value.items()}  # fmt: skip
    top = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
    return f"largest keys: {', '.join(f'{key} ({sizes[key]:,} bytes)' for key in top)}. "
