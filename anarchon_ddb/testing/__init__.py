"""For job authors: a Lambda context on a clock that is moved by hand, events, schedules.

``drive`` invokes a job until its run has ended; ``explore_crashes`` kills it everywhere and tells
whether its batches are safe to repeat. The pytest fixtures ``anarchon_table`` and
``anarchon_clock`` come with the package.

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
from anarchon_ddb.testing.crashes import CrashFound, Exploration, explore_crashes
from anarchon_ddb.testing.driving import Drive, drive
from anarchon_ddb.testing.events import resume_event, rule_event, scheduler_event
from anarchon_ddb.testing.execution import Attempt, FinalRun
from anarchon_ddb.testing.schedules import create_schedule
from anarchon_ddb.testing.world import outside

__all__ = [
    "Attempt",
    "CrashFound",
    "Drive",
    "Exploration",
    "FinalRun",
    "LambdaContext",
    "SettableClock",
    "create_schedule",
    "drive",
    "explore_crashes",
    "outside",
    "resume_event",
    "rule_event",
    "scheduler_event",
]
