"""The check-up: all rules over one model, and the schedules with their next slots."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anarchon_ddb.doctor import (
    reading,
    rules_job,
    rules_schedule,
    rules_stack,
    rules_template,
    rules_times,
)
from anarchon_ddb.doctor.finding import Finding
from anarchon_ddb.doctor.scope import Unresolved
from anarchon_ddb.errors import InvalidScheduleError
from anarchon_ddb.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from anarchon_ddb.doctor.finding import Level, Rule
    from anarchon_ddb.doctor.model import Model, Planned, State

RULES: tuple[Rule, ...] = (
    *rules_template.CHAPTER.rules,
    *rules_schedule.CHAPTER.rules,
    *rules_times.CHAPTER.rules,
    *rules_job.CHAPTER.rules,
    *rules_stack.CHAPTER.rules,
)
_SLOTS = 3


@dataclass(frozen=True, slots=True)
class Preview:
    """A schedule, and when it fires next."""

    name: str
    job: str | None
    path: Path
    line: int
    expression: str
    timezone: str
    state: State
    in_words: str
    slots: tuple[tuple[datetime, datetime], ...]
    """Each on the clock of the schedule's zone, and in UTC."""
    is_anchored: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What a check-up found."""

    path: Path
    findings: tuple[Finding, ...]
    schedules: tuple[Preview, ...]

    def count(self, level: Level) -> int:
        """Return how many findings are of a level."""
        return sum(finding.level == level for finding in self.findings)


def check(
    path: Path,
    *,
    now: datetime,
    parameters: Mapping[str, str] | None = None,
    pseudo: Mapping[str, str] | None = None,
) -> Report:
    """Check a template and all that it nests, offline.

    Parameters
    ----------
    path : Path
        Of the template.
    now : datetime
        Aware; the next slots are counted from it.
    parameters : mapping, optional
        Values of the template's parameters, as given to ``sam deploy``.
    pseudo : mapping, optional
        Values of ``AWS::Region``, ``AWS::StackName`` and so on.

    Raises
    ------
    TemplateError
        If the template can't be read.
    """
    model = reading.model(path, parameters, pseudo)
    model.now = now
    return examine(model)


def examine(model: Model) -> Report:
    """Check a model."""
    found = sorted(set(_findings(model)))
    return Report(model.scopes[0].path, tuple(found), tuple(_previews(model)))


def _findings(model: Model) -> Iterator[Finding]:
    for rule in RULES:
        for hit in rule.look(model):
            yield Finding(
                hit.path, hit.line, rule.id, rule.level, hit.what, rule.why, hit.fix or rule.fix
            )


def _previews(model: Model) -> Iterator[Preview]:
    for planned in model.schedules:
        parsed = planned.parsed
        words, zone = "", str(planned.zone.value) if planned.zone else "UTC"
        if isinstance(parsed, Unresolved):
            words, zone = f"not resolved: {parsed.why}", "?"
        elif isinstance(parsed, InvalidScheduleError):
            words = "AWS refuses it"
        else:
            words = parsed.describe()
        yield Preview(
            planned.name,
            planned.job,
            planned.expression.path,
            planned.expression.line,
            str(planned.expression.value) if planned.expression.is_known else "?",
            zone,
            planned.state,
            words,
            _next(planned, model.now),
            isinstance(parsed, Schedule) and parsed.is_anchored,
        )


def _next(planned: Planned, now: datetime) -> tuple[tuple[datetime, datetime], ...]:
    parsed = planned.parsed
    if not isinstance(parsed, Schedule):
        return ()
    slots = _coming(parsed, now)
    return tuple((parsed.local(slot), slot) for slot in itertools.islice(slots, _SLOTS))


def _coming(schedule: Schedule, now: datetime) -> Iterator[datetime]:
    slot = schedule.next(now)
    while slot is not None:
        yield slot
        slot = schedule.next(slot)
