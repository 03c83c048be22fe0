"""The local cloud: how soon a run goes on that invokes itself, and a slot reaches its handler."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from anarchon_ddb.local import reader
from anarchon_ddb.local.cloud import LocalCloud
from anarchon_ddb.local.functions import Ended
from tests.bench.endpoint import require
from tests.bench.measure import Bench, Figure, Goal, number

ROOT = Path(__file__).parents[2]
TEMPLATE = """
Resources:
  Storage:
    Type: AWS::Serverless::Application
    Properties: {{ Location: {table} }}
  Function:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: stopper
      Handler: stopper.handler
      Timeout: 3
      Environment:
        Variables:
          ANARCHON_TABLE: !GetAtt Storage.Outputs.TableName
          ANARCHON_CONTINUATION: self
          ANARCHON_STOP_MARGIN: 2s
          NOTES: {notes}
      Events:
        Schedule:
          Type: ScheduleV2
          Properties:
            Name: stopper
            ScheduleExpression: rate(1 hour)
            Input: '{{"job":"stopper","slot":"<aws.scheduler.scheduled-time>"}}'
"""
HANDLER = """
import json, os, time
from anarchon_ddb import Run, StopEarly, job

TICKS = os.sysconf("SC_CLK_TCK")
started_s = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19]) / TICKS

def note(**words):
    words |= {"pid": os.getpid(), "at_s": time.monotonic()}
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(json.dumps(words) + "\\n")

init_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s

@job("stopper")
def handler(run: Run) -> None:
    if run.is_resuming:
        note(what="batch", slot=run.slot.isoformat(), init_s=init_s)
        return
    while run.remaining > 1.9:
        time.sleep(0.01)
    try:
        run.save(1)
    except StopEarly:
        note(what="stop", slot=run.slot.isoformat())
        raise
"""
PATIENCE_S = 30


def early_stop(bench: Bench) -> Iterator[Figure]:
    """From an early stop to the next attempt's first batch, local cloud, continuation self."""
    with tempfile.TemporaryDirectory(prefix="bench-cloud-") as name:
        directory = Path(name)
        notes = directory / "notes"
        table = ROOT / "infra" / "table.yaml"
        (directory / "template.yaml").write_text(TEMPLATE.format(table=table, notes=notes))
        (directory / "stopper.py").write_text(HANDLER)
        spec = reader.read(directory / "template.yaml")
        taken_s = []
        # Where a function's process finds the package: here it is not installed.
        with patch.dict(os.environ, PYTHONPATH=str(ROOT)), LocalCloud(spec, directory) as cloud:
            for round_number in range(bench.rounds):
                bench.tell(f"round {round_number + 1} of {bench.rounds}")
                taken_s.append(_continued_s(cloud, notes, round_number))
    yield number("early stop to the next attempt's first batch, process start left out", taken_s,
                 "s", goal=Goal(0.3))  # fmt: skip


def _continued_s(cloud: LocalCloud, notes: Path, round_number: int) -> float:
    """Deliver a slot; return the seconds between its stop and its next batch."""
    slot = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1, minutes=round_number)
    notes.write_text("")
    cloud.deliver("stopper", slot)
    until_s = time.monotonic() + PATIENCE_S
    lines: list[str] = []
    while len(lines) < 2 and time.monotonic() < until_s:
        time.sleep(0.02)
        lines = notes.read_text().splitlines()
    require(is_right=len(lines) == 2, found=lines)
    stop, batch = map(json.loads, lines)
    require(is_right=(stop["what"], batch["what"]) == ("stop", "batch"), found=lines)
    took_s = batch["at_s"] - stop["at_s"]
    return took_s if stop["pid"] == batch["pid"] else took_s - batch["init_s"]


TICKED_TEMPLATE = """
Resources:
  Ticked:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: ticked
      Handler: ticked.handler
      Events:
        Schedule:
          Type: ScheduleV2
          Properties: {{ Name: ticked, ScheduleExpression: rate(1 hour), Input: '{input}' }}
"""
TICKED = """
import time

def handler(event, context):
    return time.monotonic()
"""


def tick(bench: Bench) -> Iterator[Figure]:
    """From a delivery by the local cloud to the first line of a plain handler, cold and warm."""
    cold_s, warm_s = [], []
    with tempfile.TemporaryDirectory(prefix="bench-tick-") as name:
        directory = Path(name)
        given = '{"at":"<aws.scheduler.scheduled-time>"}'
        (directory / "template.yaml").write_text(TICKED_TEMPLATE.format(input=given))
        (directory / "ticked.py").write_text(TICKED)
        spec = reader.read(directory / "template.yaml")
        with patch.dict(os.environ, PYTHONPATH=str(ROOT)), LocalCloud(spec, directory) as cloud:
            for round_number in range(bench.rounds):
                bench.tell(f"round {round_number + 1} of {bench.rounds}")
                cold_s.append(_reached_s(cloud))
                warm_s.append(_reached_s(cloud))
                (directory / "ticked.py").write_text(f"{TICKED}# {round_number}")  # cold again
    yield number("tick to a handler's first line, cold", cold_s, "s")
    yield number("tick to a handler's first line, warm", warm_s, "s")


def _reached_s(cloud: LocalCloud) -> float:
    """Deliver a slot; return the seconds until its handler began."""
    ended: list[Ended] = []
    done = threading.Event()

    def listen(event: object) -> None:
        if isinstance(event, Ended):
            ended.append(event)
            done.set()

    cloud.listeners.append(listen)
    began_s = time.monotonic()
    cloud.deliver("ticked", datetime.now(UTC).replace(microsecond=0))
    require(is_right=done.wait(PATIENCE_S), found=ended)
    cloud.listeners.remove(listen)
    return float(ended[0].payload) - began_s
