"""What is drawn and alarmed on is what the code emits, and the other way round."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from anarchon_ddb import Run, job, metrics, resumer
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, scheduler_event
from tests import emf, sam
from tests.conftest import SLOT

STACK = ("stack",)
JOB = ("job", "stack")
EMITTED = set(get_args(metrics.Metric))

# What AWS's own services emit, and by which dimensions, as far as it is drawn here.
AWS_METRICS = {
    ("AWS/DynamoDB", "ConsumedReadCapacityUnits", ("GlobalSecondaryIndexName", "TableName")),
    ("AWS/DynamoDB", "ConsumedReadCapacityUnits", ("TableName",)),
    ("AWS/DynamoDB", "ConsumedWriteCapacityUnits", ("GlobalSecondaryIndexName", "TableName")),
    ("AWS/DynamoDB", "ConsumedWriteCapacityUnits", ("TableName",)),
    ("AWS/DynamoDB", "ThrottledRequests", ("Operation", "TableName")),
    ("AWS/Lambda", "Duration", ("FunctionName",)),
    ("AWS/Lambda", "Errors", ("FunctionName",)),
    ("AWS/Lambda", "Throttles", ("FunctionName",)),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", ("QueueName",)),
}

Drawn = tuple[str, str, tuple[str, ...]]


def widgets() -> list[dict[str, Any]]:
    dashboard = sam.source("infra/dashboard.yaml")["Resources"]["Dashboard"]["Properties"]
    body: dict[str, Any] = json.loads(dashboard["DashboardBody"]["Fn::Sub"])
    found: list[dict[str, Any]] = body["widgets"]
    return found


def drawn() -> Iterator[Drawn]:
    """Yield namespace, metric and dimensions of each line of the dashboard."""
    for widget in widgets():
        for line in widget["properties"]["metrics"]:
            if isinstance(line[0], dict):
                yield searched(line[0]["expression"])
            else:
                names = [part for part in line if isinstance(part, str)]
                yield names[0], names[1], tuple(sorted(names[2::2]))


def searched(expression: str) -> Drawn:
    """Return what a search finds: it must be exact where another stack's would be found else."""
    found = re.fullmatch(
        r"SEARCH\('\{([\w/]+),([\w,]+)\} MetricName=\"(\w+)\" (\w+)=(\S+)', '(Sum|Maximum)'\)",
        expression,
    )
    assert found, expression
    namespace, dimensions, metric, filtered, value, _ = found.groups()
    assert filtered in dimensions.split(",")
    assert value == "${Stack}" if namespace == "AWS/Lambda" else value.strip('"') != value
    return namespace, metric, tuple(sorted(dimensions.split(",")))


def alarmed() -> set[Drawn]:
    return {
        (
            alarm["Namespace"],
            alarm["MetricName"],
            tuple(sorted(dimension["Name"] for dimension in alarm["Dimensions"])),
        )
        for _, alarm in sam.of_type(sam.source("infra/alarms.yaml"), "AWS::CloudWatch::Alarm")
    }


def test_every_metric_and_dimension_that_is_drawn_or_alarmed_on_is_emitted() -> None:
    for namespace, metric, dimensions in set(drawn()) | alarmed():
        if namespace == metrics.NAMESPACE:
            assert metric in EMITTED
            assert dimensions in {STACK, JOB}
        else:
            assert (namespace, metric, dimensions) in AWS_METRICS


def test_every_metric_that_is_emitted_is_drawn() -> None:
    assert {metric for namespace, metric, _ in drawn() if namespace == metrics.NAMESPACE} == EMITTED


def test_metrics_of_jobs_are_drawn_for_each_job_and_the_resumers_for_the_stack() -> None:
    of_stack = {metric for _, metric, dimensions in drawn() if dimensions == STACK}
    assert of_stack == {"OpenRuns", "OldestOpenRunAge", "ResumerPasses"}


def test_alarms_are_on_the_stack_and_each_says_what_to_do() -> None:
    for logical_id, alarm in sam.of_type(sam.source("infra/alarms.yaml"), "AWS::CloudWatch::Alarm"):
        if alarm["Namespace"] == metrics.NAMESPACE:
            assert [dimension["Name"] for dimension in alarm["Dimensions"]] == ["stack"]
        assert len(alarm["AlarmDescription"]) > 150, logical_id
        assert len(alarm["AlarmDescription"]) <= 1024, "CloudWatch's limit"
        silent = alarm["MetricName"] == "ResumerPasses"
        assert alarm["TreatMissingData"] == ("breaching" if silent else "notBreaching")


def test_the_line_of_the_timeout_is_the_timeout_of_jobs() -> None:
    timeout_s = sam.source(sam.PARENT)["Globals"]["Function"]["Timeout"]
    (line,) = (
        w["properties"]["annotations"] for w in widgets() if "annotations" in w["properties"]
    )
    assert line["horizontal"][0]["value"] == timeout_s * 1000


def test_no_two_widgets_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for widget in widgets():
        columns = range(widget["x"], widget["x"] + widget["width"])
        rows = range(widget["y"], widget["y"] + widget["height"])
        own = {(x, y) for x in columns for y in rows}
        assert not own & taken
        assert widget["x"] + widget["width"] <= 24
        taken |= own


def test_the_embedded_metrics_of_a_run_read_back_are_its_numbers(
    store: Store,
    clock: SettableClock,
    context: Callable[..., LambdaContext],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A slot 5 s late: stopped early, killed, taken over, ended; a second one fails at last."""
    monkeypatch.setenv("ANARCHON_STACK", "shop-prod")
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "ERROR")  # never hides a metric
    began_ms, deaths = clock.now_ms(), ["once"]

    @job("export")
    def handler(run: Run) -> None:
        for cursor in range(run.checkpoint or 0, 5):
            clock.advance(seconds=20)
            run.save(cursor + 1)
            if cursor == 2 and deaths:
                deaths.clear()
                raise KeyboardInterrupt

    @job("export", max_attempts=1)
    def fails(run: Run) -> None:
        raise ValueError("down")

    def dies(held: object, error: BaseException | None, **_: object) -> None:
        raise error or SystemExit

    event = scheduler_event("export:tenant-a", SLOT)
    assert handler(event, context("60s"))["outcome"] == "interrupted"
    assert resumer.handler({}, context())["open"] == 1
    with monkeypatch.context() as killed:
        killed.setattr("anarchon_ddb.ending.end", dies)
        with pytest.raises(KeyboardInterrupt):
            handler(event, context("60s"))
    clock.advance(minutes=3)
    assert handler(event, context("15m"))["outcome"] == "succeeded"
    took_s = (clock.now_ms() - began_ms) / 1000
    with pytest.raises(ValueError, match="down"):
        fails(scheduler_event("export:tenant-b", "2026-11-29T12:03:00Z"), context())

    series = emf.read(capsys.readouterr().out.splitlines())

    of_stack = {k[1]: v for k, v in series.items() if k[2] == (("stack", "shop-prod"),)}
    of_job = {
        k[1]: v for k, v in series.items() if k[2] == (("job", "export"), ("stack", "shop-prod"))
    }
    assert {namespace for namespace, _, _ in series} == {"Anarchon"}
    assert of_stack.keys() | of_job.keys() <= EMITTED
    assert of_stack.pop("ResumerPasses") == [1]
    assert of_stack.pop("OpenRuns") == [1]
    assert len(of_stack.pop("OldestOpenRunAge")) == 1
    assert of_stack == of_job, "each in both sets"
    counts = {name: sum(values) for name, values in of_job.items()}
    assert counts["AttemptsStarted"] == 4
    assert counts["AttemptsInterrupted"] == 1
    assert counts["Takeovers"] == 1
    assert counts["RunsSucceeded"] == 1
    assert counts["AttemptsFailed"] == counts["RunsFailed"] == 1
    assert of_job["SlotLag"][0] == 5
    assert of_job["RunAttempts"] == [3, 1]
    assert of_job["RunDuration"][0] == pytest.approx(took_s, abs=1)
