"""The policy of a job: its options, their parsing, and where each came from.

An option may be set in the decorator and, as ``ANARCHON_<OPTION>``, in the template. The template
wins: what the operator reads there is what runs. No I/O; the environment is passed in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from anarchon_ddb.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Overlap = Literal["skip", "allow", "queue"]
CatchUp = Literal["none", "latest", "all"]
Continuation = Literal["resumer", "self"]
OnVersionChange = Literal["restart", "fail", "continue"]
Duration = str | timedelta

PREFIX = "ANARCHON_"
RESERVED = frozenset({"TABLE", "SCHEDULE_GROUP", "STACK"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DURATION = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class JobOptions(TypedDict, total=False):
    """What ``@job`` takes beside the name."""

    overlap: Overlap
    timeout: Duration
    lease: Duration
    stop_margin: Duration
    checkpoint_interval: Duration
    max_attempts: int
    retry_delay: Duration
    catch_up: CatchUp
    catch_up_window: Duration
    continuation: Continuation
    retention: Duration
    version: str
    on_version_change: OnVersionChange


@dataclass(frozen=True, slots=True)
class Options:
    """The effective options of a job; durations in milliseconds."""

    overlap: Overlap = "skip"
    timeout: int = 86_400_000
    lease: int = 60_000
    stop_margin: int = 10_000
    checkpoint_interval: int = 0
    max_attempts: int = 3
    retry_delay: int = 30_000
    catch_up: CatchUp = "latest"
    catch_up_window: int = 86_400_000
    continuation: Continuation = "resumer"
    retention: int = 30 * 86_400_000
    version: str = ""
    on_version_change: OnVersionChange = "restart"


def check_name(name: object) -> str:
    """Return a usable job name.

    Raises
    ------
    InvalidJobError
        If it has other characters than letters, digits, ``.``, ``_`` and ``-``, begins with none
        of the first two, or has more than 64: parts of a key must never run together.
    """
    if not isinstance(name, str):
        raise InvalidJobError(f'a job needs a name: write @job("export"), not @job; got {name!r}')
    if not _NAME.fullmatch(name):
        raise InvalidJobError(
            f"job name {name[:80]!r}: use 1 to 64 letters, digits, '.', '_' or '-', "
            "beginning with a letter or a digit"
        )
    return name


def duration_ms(value: object, setting: str) -> int:
    """Return a duration in milliseconds.

    Examples
    --------
    >>> duration_ms("50m", "timeout")
    3000000
    """
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InvalidJobError(
            f'{setting} is {value!r}, expected a duration such as "90s", "50m", "1h" or "30d"'
        )
    return int(match[1]) * _UNIT_MS[match[2]]


def duration_text(milliseconds: int) -> str:
    """Return a duration as it would be written.

    Examples
    --------
    >>> duration_text(3_000_000)
    '50m'
    """
    for unit, size_ms in reversed(_UNIT_MS.items()):
        if milliseconds % size_ms == 0:
            return f"{milliseconds // size_ms}{unit}"
    return f"{milliseconds / 1000}s"


def described(options: Options, sources: Mapping[str, str]) -> dict[str, str]:
    """Return each option as it would be written, with where it came from: for the log."""
    texts = {}
    for option, source in sources.items():
        value = getattr(options, option)
        written = duration_text(value) if _PARSERS[option] is duration_ms else repr(value)
        texts[option] = f"{written} ({source})"
    return texts


def resolve(
    name: str, given: Mapping[str, object], environ: Mapping[str, str]
) -> tuple[Options, dict[str, str]]:
    """Return the effective options and where each came from.

    Raises
    ------
    InvalidJobError
        For an unknown option or ``ANARCHON_*`` setting, or a value out of range.
    """
    _refuse_unknown(name, given, environ)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option, parse in _PARSERS.items():
        setting = PREFIX + option.upper()
        if setting in environ:
            values[option] = parse(environ[setting], setting)
            sources[option] = setting
        elif option in given:
            values[option] = parse(given[option], f"job {name!r}: {option}")
            sources[option] = "decorator"
        else:
            sources[option] = "default"
    options = Options(**values)
    _check_ranges(name, options)
    return options, sources


def _refuse_unknown(name: str, given: Mapping[str, object], environ: Mapping[str, str]) -> None:
    for option in given:
        if option not in _PARSERS:
            raise InvalidJobError(
                f"job {name!r}: unknown option {option!r}{_nearest(option, list(_PARSERS))}"
            )
    known = [PREFIX + part for part in (*map(str.upper, _PARSERS), *sorted(RESERVED))]
    for setting in environ:
        if setting.startswith(PREFIX) and setting not in known:
            raise InvalidJobError(
                f"unknown setting {setting} in the function's environment{_nearest(setting, known)}"
            )


def _nearest(word: str, known: list[str]) -> str:
    import difflib  # noqa: PLC0415  only a mistake pays for it

    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _check_ranges(name: str, options: Options) -> None:
    for field in ("timeout", "lease", "retention"):
        if getattr(options, field) < 1_000:
            raise InvalidJobError(f"job {name!r}: {field} must be at least 1s")
    if options.checkpoint_interval < 0:
        raise InvalidJobError(
            f"job {name!r}: checkpoint_interval must be a time to let pass between two saves, "
            "or 0s to store each"
        )
    if options.max_attempts < 1:
        raise InvalidJobError(f"job {name!r}: max_attempts must be at least 1")
    if options.catch_up_window >= options.retention:
        raise InvalidJobError(
            f"job {name!r}: catch_up_window must be shorter than retention: "
            "a run that was deleted can't be told from one that never was"
        )


def _choice(literal: Any) -> Callable[[object, str], str]:
    choices: tuple[str, ...] = get_args(literal)

    def parse(value: object, setting: str) -> str:
        if value not in choices:
            raise InvalidJobError(f"{setting} is {value!r}, expected one of {', '.join(choices)}")
        return str(value)

    return parse


def _whole_number(value: object, setting: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidJobError(f"{setting} is {value!r}, expected a whole number")
    if isinstance(value, str) and not re.fullmatch(r"\d{1,6}", value.strip()):
        raise InvalidJobError(f"{setting} is {value!r}, expected a whole number")
    return int(value)


def _text(value: object, setting: str) -> str:
    if not isinstance(value, str) or len(value) > 64:
        raise InvalidJobError(f"{setting} is {value!r}, expected a text of up to 64 characters")
    return value


_PARSERS: dict[str, Callable[[object, str], object]] = {
    "overlap": _choice(Overlap),
    "timeout": duration_ms,
    "lease": duration_ms,
    "stop_margin": duration_ms,
    "checkpoint_interval": duration_ms,
    "max_attempts": _whole_number,
    "retry_delay": duration_ms,
    "catch_up": _choice(CatchUp),
    "catch_up_window": duration_ms,
    "continuation": _choice(Continuation),
    "retention": duration_ms,
    "version": _text,
    "on_version_change": _choice(OnVersionChange),
}
