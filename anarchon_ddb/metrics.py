"""The metrics, their names in one place, written as CloudWatch's embedded metric format.

An ``EphemeralMetrics`` for each record: Powertools' shared ``Metrics`` object would mix them with
the user's own, and a service name would add a dimension that blanks every graph.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE = "Anarchon"
STACK_SETTING = "ANARCHON_STACK"

Metric = Literal[
    "AttemptsStarted",
    "AttemptsInterrupted",
    "AttemptsFailed",
    "Takeovers",
    "RunsSucceeded",
    "RunsFailed",
    "SlotsSkipped",
    "SlotsMissed",
    "SlotLag",
    "RunDuration",
    "RunAttempts",
    "OpenRuns",
    "OldestOpenRunAge",
    "ResumerPasses",
]

_UNITS: dict[Metric, MetricUnit] = {
    "SlotLag": MetricUnit.Seconds,
    "RunDuration": MetricUnit.Seconds,
    "OldestOpenRunAge": MetricUnit.Seconds,
}


def emit(
    values: Mapping[Metric, float],
    *,
    job: str | None = None,
    fields: Mapping[str, object] | None = None,
) -> None:
    """Write one record to the log.

    Parameters
    ----------
    values : mapping
        Metric names and their values; durations in seconds.
    job : str, optional
        The job or instance. The instance is a field, never a dimension: there may be thousands.
    fields : mapping, optional
        What else the log should tell, such as slot and attempt.
    """
    stack = os.environ.get(STACK_SETTING) or "unnamed"
    record = EphemeralMetrics(namespace=NAMESPACE, service="")
    record.add_dimension("stack", stack)
    if job is not None:
        # For alarms [stack], since an alarm can't be put on a search; for graphs [job, stack].
        record.add_dimensions(job=job.partition(":")[0], stack=stack)
    for name, value in (fields or {}).items():
        record.add_metadata(name, value)
    for metric, value in values.items():
        record.add_metric(metric, _UNITS.get(metric, MetricUnit.Count), value)
    record.flush_metrics()
