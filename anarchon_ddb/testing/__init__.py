"""For job authors: a Lambda context on a clock that is moved by hand, events, schedules.

Examples
--------
>>> clock = SettableClock("2026-11-29T12:00:05Z")
>>> context = LambdaContext(timeout="60s", clock=clock)
>>> clock.advance(seconds=58)
>>> context.get_remaining_time_in_millis()
2000
"""

from anarchon_ddb.testing.clock import SettableClock
from anarchon_ddb.testing.context import LambdaContext
from anarchon_ddb.testing.events import resume_event, rule_event, scheduler_event
from anarchon_ddb.testing.schedules import create_schedule

__all__ = [
    "LambdaContext",
    "SettableClock",
    "create_schedule",
    "resume_event",
    "rule_event",
    "scheduler_event",
]
