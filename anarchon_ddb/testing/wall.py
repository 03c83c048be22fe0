"""The wall clock of a sandbox: what a job reads with ``time.time()`` or ``datetime.now()``.

A job that asks the clock instead of ``run.slot`` differs on a later attempt. A test takes
milliseconds, so the difference would be found only if the clock moved; here it is the test's.
"""

from __future__ import annotations

import datetime as dt
import time
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anarchon_ddb.job import Job
    from anarchon_ddb.testing.clock import SettableClock


def follow(clock: SettableClock, job: Job) -> None:
    """Let the wall clock of this process be ``clock``, as the job's module sees it.

    ``time.time`` and ``time.time_ns`` for all; ``datetime.now``, ``utcnow`` and ``date.today``
    where the handler's module names these classes or their module.
    """
    time.time = lambda: clock.now_ms() / 1000
    time.time_ns = lambda: clock.now_ms() * 1_000_000
    moment, day = _classes(clock)
    module = types.ModuleType("datetime")
    module.__dict__.update(vars(dt) | {"datetime": moment, "date": day})
    instead = {id(dt.datetime): moment, id(dt.date): day, id(dt): module}
    names = getattr(getattr(job, "__wrapped__", None), "__globals__", {})
    for name, value in list(names.items()):
        if id(value) in instead:
            names[name] = instead[id(value)]


def _classes(clock: SettableClock) -> tuple[type, type]:
    """Return ``datetime`` and ``date`` on that clock. What they make is of the real types."""

    class Moment(dt.datetime, metaclass=_Alias):
        def __new__(cls, *args: Any, **named: Any) -> Any:
            return dt.datetime(*args, **named)  # noqa: DTZ001  as the caller has it

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return dt.datetime.fromtimestamp(clock.now_ms() / 1000, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(dt.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    class Day(dt.date, metaclass=_Alias):
        def __new__(cls, *args: Any, **named: Any) -> Any:
            return dt.date(*args, **named)

        @classmethod
        def today(cls) -> Any:
            return Moment.now().date()

    return Moment, Day


class _Alias(type):
    """A class that takes every instance of its base for its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])
