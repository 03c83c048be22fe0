"""Rules on a job's times against each other: timeout, margin, lease, period, ages, windows."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING

from anarchon_ddb import options as job_options
from anarchon_ddb.doctor.finding import Chapter, Hit, at
from anarchon_ddb.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.doctor.model import Function, Model, Planned
    from anarchon_ddb.doctor.scope import Node

CHAPTER = Chapter()

SCHEDULER_AGE_S = 86_400
"""How long Scheduler keeps an event that it can't deliver, if RetryPolicy says nothing."""
LAMBDA_AGE_S = 21_600
"""How long Lambda keeps one in its queue, if EventInvokeConfig says nothing."""
_SLOTS_LOOKED_AT = 60
_SHORTEST_LEASE_MS = 15_000


def period_s(planned: Planned, model: Model) -> int | None:
    """Return the shortest time between the coming slots of a schedule, in seconds."""
    schedule = planned.parsed
    if not isinstance(schedule, Schedule):
        return None
    if schedule.period is not None:
        return round(schedule.period.total_seconds())
    coming = schedule.between(model.now, model.now + timedelta(days=400))
    slots = list(itertools.islice(coming, _SLOTS_LOOKED_AT))
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(slots)]
    return round(min(gaps)) if gaps else None


def _setting(function: Function, option: str) -> Node:
    """Return where an option is set, or else the function."""
    return function.environment.get(job_options.PREFIX + option.upper(), function.node)


def _age_of_schedule(planned: Planned) -> tuple[int | None, Node]:
    node = planned.target.get("RetryPolicy", "MaximumEventAgeInSeconds")
    return (SCHEDULER_AGE_S, planned.node) if node is None else (node.number, node)


def _age_of_lambda(function: Function) -> tuple[int | None, Node]:
    node = function.get("EventInvokeConfig", "MaximumEventAgeInSeconds")
    return (LAMBDA_AGE_S, function.node) if node is None else (node.number, node)


@CHAPTER.rule(
    "timeout-margin",
    "error",
    title="The function ends before a batch can",
    why="A batch begins only while more than stop_margin (10s) is left: no invocation gets to "
    "work.",
    fix="Raise Timeout to 900, or lower ANARCHON_STOP_MARGIN far below it.",
)
def _timeout_margin(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        timeout_s, margin_ms = function.timeout_s, function.policy.stop_margin
        if timeout_s is not None and timeout_s * 1000 <= margin_ms:
            margin = job_options.duration_text(margin_ms)
            said = "" if function.get("Timeout") else " (Lambda's default)"
            what = f"{function.logical_id}: Timeout {timeout_s} s{said}, stop_margin {margin}"
            yield at(function.place("Timeout"), what)


@CHAPTER.rule(
    "timeout-short",
    "warning",
    title="Most of the function's time is margin",
    why="An invocation is stopped when stop_margin is left: under half of the time is for work.",
    fix="Raise Timeout to 900: it costs nothing, since a job that is done ends.",
)
def _timeout_short(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        timeout_s, margin_ms = function.timeout_s, function.policy.stop_margin
        if timeout_s is not None and margin_ms < timeout_s * 1000 < 2 * margin_ms:
            margin = job_options.duration_text(margin_ms)
            what = f"{function.logical_id}: Timeout {timeout_s} s, stop_margin {margin}"
            yield at(function.place("Timeout"), what)


@CHAPTER.rule(
    "timeout-range",
    "error",
    title="Not a timeout that Lambda takes",
    why="The deploy fails when it has begun.",
    fix="Write 1 to 900 seconds.",
)
def _timeout_range(model: Model) -> Iterator[Hit]:
    for function in model.functions:
        node = function.get("Timeout")
        if node is not None and node.is_known and not 1 <= (node.number or 0) <= 900:
            yield at(node, f"{function.logical_id}: Timeout {node.value!r}")


@CHAPTER.rule(
    "catch-up-retention",
    "error",
    title="The catch-up window reaches behind the retention",
    why="A run that was deleted can't be told from one that never was: the job refuses to start.",
    fix="Make ANARCHON_RETENTION longer, or ANARCHON_CATCH_UP_WINDOW shorter.",
)
def _catch_up_retention(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        if "catch_up_window must be" in str(function.options):
            node = _setting(function, "catch_up_window")
            node = _setting(function, "retention") if node is function.node else node
            yield at(node, f"{function.logical_id}: {function.options}")


@CHAPTER.rule(
    "lease-short",
    "warning",
    title="The lease is shorter than a slow call",
    why="One renewal with its retries takes up to 9 s: a slow network loses the lease of a live "
    "run.",
    fix="Leave ANARCHON_LEASE at 60s; it never reaches past the function's own deadline.",
)
def _lease_short(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        if 1_000 <= function.policy.lease < _SHORTEST_LEASE_MS:
            lease = job_options.duration_text(function.policy.lease)
            yield at(_setting(function, "lease"), f"{function.logical_id}: lease {lease}")


@CHAPTER.rule(
    "lease-long",
    "warning",
    title="The lease is longer than the function lives",
    why="After a crash the run waits for its lease to end: up to a whole timeout, for nothing.",
    fix="Leave ANARCHON_LEASE at 60s: it is renewed while the handler is alive.",
)
def _lease_long(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        timeout_s, lease_ms = function.timeout_s, function.policy.lease
        if (
            timeout_s is not None
            and lease_ms > timeout_s * 1000
            and "ANARCHON_LEASE" in function.environment
        ):
            lease = job_options.duration_text(lease_ms)
            what = f"{function.logical_id}: lease {lease}, Timeout {timeout_s} s"
            yield at(_setting(function, "lease"), what)


@CHAPTER.rule(
    "run-timeout",
    "error",
    title="A run has no time for one batch",
    why="timeout bounds a run over all invocations, and stop_margin is kept free in each.",
    fix="Make ANARCHON_TIMEOUT longer than the longest run you accept, such as 50m.",
)
def _run_timeout(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        policy = function.policy
        if policy.timeout <= policy.stop_margin:
            timeout = job_options.duration_text(policy.timeout)
            yield at(_setting(function, "timeout"), f"{function.logical_id}: timeout {timeout}")


@CHAPTER.rule(
    "event-age",
    "warning",
    title="A late slot may arrive behind the next one",
    why="Scheduler keeps an event that it can't deliver for longer than the time between two "
    "slots.",
    fix="Write RetryPolicy: { MaximumRetryAttempts: 185, MaximumEventAgeInSeconds: … }, at most "
    "the period.",
)
def _event_age(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        age_s, node = _age_of_schedule(planned)
        period = period_s(planned, model)
        if age_s is not None and period is not None and age_s > max(period, 60):
            yield at(node, f"{planned.name}: event age {age_s} s, a slot each {period} s")


@CHAPTER.rule(
    "invoke-age",
    "warning",
    title="Lambda may hand over a slot behind the next one",
    why="Lambda's queue keeps an event for longer than the time between two slots.",
    fix="Write EventInvokeConfig: { MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: … }, at "
    "most the period.",
)
def _invoke_age(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        periods = [period_s(planned, model) for planned in model.of(function)]
        known = [period for period in periods if period is not None]
        age_s, node = _age_of_lambda(function)
        if age_s is not None and known and age_s > max(min(known), 60):
            yield at(
                node, f"{function.logical_id}: event age {age_s} s, a slot each {min(known)} s"
            )


@CHAPTER.rule(
    "invoke-retries",
    "warning",
    title="Lambda tries a failed job again by itself",
    why="A failed attempt is retried by the resumer, with its backoff: Lambda's own are refused, "
    "and cost.",
    fix="Write EventInvokeConfig: { MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: 3600 }.",
)
def _invoke_retries(model: Model) -> Iterator[Hit]:
    for function in model.jobs:
        node = function.get("EventInvokeConfig", "MaximumRetryAttempts")
        if (
            node is None
            and function.get("EventInvokeConfig") is not None
            and not function.place("EventInvokeConfig").is_known
        ):
            continue
        if node is None or (node.is_known and node.number != 0):
            found = "2 (Lambda's default)" if node is None else node.value
            what = f"{function.logical_id}: MaximumRetryAttempts is {found}"
            yield at(node or function.place("EventInvokeConfig"), what)


_RANGES = (
    (("RetryPolicy", "MaximumEventAgeInSeconds"), 60, 86_400),
    (("RetryPolicy", "MaximumRetryAttempts"), 0, 185),
)
_INVOKE_RANGES = (
    (("EventInvokeConfig", "MaximumEventAgeInSeconds"), 60, 21_600),
    (("EventInvokeConfig", "MaximumRetryAttempts"), 0, 2),
)


@CHAPTER.rule(
    "retry-range",
    "error",
    title="A retry setting out of AWS's range",
    why="The deploy fails when it has begun.",
    fix="Scheduler: age 60 to 86400 s, attempts 0 to 185. Lambda: age 60 to 21600 s, attempts 0 "
    "to 2.",
)
def _retry_range(model: Model) -> Iterator[Hit]:
    owners = [(planned.target.get, planned.name, _RANGES) for planned in model.schedules]
    owners += [(function.get, function.logical_id, _INVOKE_RANGES) for function in model.functions]
    for get, name, ranges in owners:
        for keys, least, most in ranges:
            node = get(*keys)
            if node is not None and node.is_known and not _is_within(node, least, most):
                yield at(node, f"{name}: {keys[-1]} is {node.value!r}, expected {least} to {most}")


def _is_within(node: Node, least: int, most: int) -> bool:
    return node.number is not None and least <= node.number <= most


@CHAPTER.rule(
    "delivery-retries",
    "warning",
    title="Scheduler gives up too soon",
    why="One throttled minute, and the slot goes to the queue, or is gone.",
    fix="Write RetryPolicy: { MaximumRetryAttempts: 185, MaximumEventAgeInSeconds: 3600 }.",
)
def _delivery_retries(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        node = planned.target.get("RetryPolicy", "MaximumRetryAttempts")
        if node is not None and node.number is not None and 0 <= node.number < 3:
            yield at(node, f"{planned.name}: MaximumRetryAttempts is {node.value}")


@CHAPTER.rule(
    "catch-up-short",
    "warning",
    title="The catch-up window ends before a slot counts as missed",
    why="A slot is missed only when both event ages have passed; by then it is out of the window.",
    fix="Make ANARCHON_CATCH_UP_WINDOW longer than both ages together, or lower the ages.",
)
def _catch_up_short(model: Model) -> Iterator[Hit]:
    for planned, function in model.job_schedules:
        ages = [_age_of_schedule(planned)[0], _age_of_lambda(function)[0]]
        known_s = sum(age for age in ages if age is not None)
        window_ms = function.policy.catch_up_window
        if function.policy.catch_up != "none" and window_ms < known_s * 1000:
            window = job_options.duration_text(window_ms)
            what = f"{planned.name}: catch_up_window {window}, event ages {known_s} s together"
            node = _setting(function, "catch_up_window")
            yield at(planned.node if node is function.node else node, what)


@CHAPTER.rule(
    "retention-short",
    "warning",
    title="Runs are forgotten while their events still arrive",
    why="A slot older than retention is refused: it could not be told from a duplicate.",
    fix="Make ANARCHON_RETENTION at least 7d.",
)
def _retention_short(model: Model) -> Iterator[Hit]:
    for planned, function in model.job_schedules:
        ages = [_age_of_schedule(planned)[0], _age_of_lambda(function)[0]]
        known_s = sum(age for age in ages if age is not None)
        if function.policy.retention < known_s * 1000:
            retention = job_options.duration_text(function.policy.retention)
            what = f"{function.logical_id}: retention {retention}, event ages {known_s} s together"
            yield at(_setting(function, "retention"), what)


@CHAPTER.rule(
    "flexible-window",
    "warning",
    title="The flexible window is as wide as the period",
    why="A slot may be delivered behind the next one, and catch-up waits for the window first.",
    fix='Write FlexibleTimeWindow: { Mode: "OFF" }, or fewer minutes than the period.',
)
def _flexible_window(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        node = planned.properties.get("FlexibleTimeWindow", "MaximumWindowInMinutes")
        period = period_s(planned, model)
        if node is not None and node.number and period and node.number * 60 >= period:
            yield at(node, f"{planned.name}: a window of {node.number} min, a slot each {period} s")


@CHAPTER.rule(
    "queue",
    "warning",
    title="No queue for what can't be delivered",
    why="A slot that Scheduler gives up on leaves no message: only catch-up sees that it is gone.",
    fix="Write DeadLetterConfig: { Arn: !GetAtt Undelivered.Arn }.",
)
def _queue(model: Model) -> Iterator[Hit]:
    for planned, _ in model.job_schedules:
        if planned.target.get("DeadLetterConfig") is None:
            yield at(planned.node, f"{planned.name} has no DeadLetterConfig")
