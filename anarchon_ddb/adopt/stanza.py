"""A job's lines of the template, and its handler's file."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from anarchon_ddb import options
from anarchon_ddb.schedule import parse

if TYPE_CHECKING:
    from datetime import datetime

_LONGEST_AGE_S = 3600
_SHORTEST_AGE_S = 60

_STANZA = """\
  {logical_id}:
    Type: AWS::Serverless::Function
    Metadata: {{ BuildMethod: makefile }}
    Properties:
      FunctionName: !Sub ${{AWS::StackName}}-{name}
      Handler: handlers.{module}.handler
      Policies: [!Ref JobPolicy]
{settings}      Events:
        Schedule:
          Type: ScheduleV2
          Properties:
            Name: {name}
            GroupName: !Ref Schedules
            ScheduleExpression: {expression}
            ScheduleExpressionTimezone: {timezone}
            Input: '{input}'
            RetryPolicy: {{ MaximumRetryAttempts: 185, MaximumEventAgeInSeconds: {age_s} }}
            DeadLetterConfig: {{ Arn: !GetAtt Undelivered.Arn }}"""

_INPUT = (
    '{{"job":"{name}","slot":"<aws.scheduler.scheduled-time>",'
    '"schedule":"<aws.scheduler.schedule-arn>"}}'
)
_OWN = """\
      Runtime: !Ref PythonRuntime
      Architectures: [!Ref Architecture]
      CodeUri: .
      MemorySize: 512
      Timeout: 900
      Tracing: !Ref Tracing
      LoggingConfig: { LogGroup: !Ref Logs }
"""
_RETRIES = (
    "      EventInvokeConfig: {{ MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: {age_s} }}\n"
)
_ENVIRONMENT = """\
      Environment:
        Variables:
          ANARCHON_TABLE: !GetAtt Storage.Outputs.TableName
          ANARCHON_SCHEDULE_GROUP: !Ref Schedules
          ANARCHON_STACK: !Ref AWS::StackName
          POWERTOOLS_LOG_LEVEL: !Ref LogLevel
"""
_HANDLER = '''\
"""{name}: {words}."""

from anarchon_ddb import Run, job


@job("{name}")
def handler(run: Run) -> None:
    """Do the work of one slot, batch by batch; a batch may be repeated after a crash."""
    batches = ["replace", "this", "list"]
    for number in range(run.checkpoint or 0, len(batches)):
        run.logger.info("Batch done", extra={{"batch": batches[number]}})
        run.save(number + 1, done=number + 1, total=len(batches))
'''


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is to be added."""

    name: str
    expression: str
    timezone: str
    age_s: int
    words: str

    @property
    def module(self) -> str:
        """Its file in ``handlers/``, without the ending."""
        return re.sub(r"\W", "_", self.name).lower()

    @property
    def logical_id(self) -> str:
        """Its function's name in the template."""
        parts = re.split(r"[^A-Za-z0-9]+", self.name)
        return "".join(part[:1].upper() + part[1:] for part in parts) + "Function"


def new_job(name: str, expression: str, timezone: str, now: datetime) -> NewJob:
    """Check and describe a job.

    Raises
    ------
    InvalidJobError, InvalidScheduleError
        As ``@job`` and EventBridge would refuse it.
    """
    options.check_name(name)
    schedule = parse(expression, timezone)
    period = schedule.period
    if period is None:
        slots = list(itertools.islice(schedule.between(now, now + timedelta(days=400)), 60))
        gaps = [later - earlier for earlier, later in itertools.pairwise(slots)]
        period = min(gaps, default=timedelta(days=1))
    age_s = max(_SHORTEST_AGE_S, min(_LONGEST_AGE_S, round(period.total_seconds())))
    return NewJob(name, expression, timezone, age_s, schedule.describe())


def stanza(job: NewJob, *, is_alone: bool) -> str:
    """Return a job's lines.

    Parameters
    ----------
    is_alone : bool
        Whether the template's Globals are not those of this package: then the job says all itself.
    """
    is_often = job.age_s < _LONGEST_AGE_S
    settings = _OWN if is_alone else ""
    if is_alone or is_often:
        settings += _RETRIES.format(age_s=job.age_s)
    settings += _ENVIRONMENT if is_alone else ""
    return _STANZA.format(
        logical_id=job.logical_id,
        name=job.name,
        module=job.module,
        settings=settings,
        expression=job.expression,
        input=_INPUT.format(name=job.name),
        timezone=job.timezone,
        age_s=job.age_s,
    )


def handler(job: NewJob) -> str:
    """Return the text of a job's handler."""
    return _HANDLER.format(name=job.name, words=job.words)
