"""``make demo``: the export job on the local cloud, stopped early, killed, resumed, and proved.

The stack is the repository's ``template.yaml``. Only numbers are changed, so that a night's work
fits into half a minute: the function's timeout, the lease, the margin and the size of a page.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.errors import AnarchonError
from anarchon_ddb.local import planes, reader
from anarchon_ddb.local.cloud import LocalCloud
from anarchon_ddb.local.functions import Ended, Started
from anarchon_ddb.local.screen import Screen
from anarchon_ddb.local.story import Story
from anarchon_ddb.protocol import CLOCK_SKEW_MS
from anarchon_ddb.records import TERMINAL_STATES
from anarchon_ddb.schedule import parse
from anarchon_ddb.schema import RunKey
from anarchon_ddb.template.source import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anarchon_ddb.local.aws import Call
    from anarchon_ddb.local.stack import Stack
    from anarchon_ddb.records import RunRecord

TIMEOUT_S = 3
PAGE_SIZE = 200
LEASE = "2s"
STOP_MARGIN = "1s"
LATENCY_S = 0.25
TICK_S = 1.0
"""Between two passes of the resumer: a minute on AWS."""

KILL_ATTEMPT = 2
KILL_AT_BATCH = 2
PATIENCE_S = 60

INDENT = " " * 11
_NOTES = {
    "stopped early": "stopped early (planned)",
    "killed": f"killed in batch {KILL_AT_BATCH}",
}


@dataclass
class Exports:
    """The objects that the function writes, as S3 sees them, and the kill in the middle of one."""

    cloud: LocalCloud
    story: Story
    function: str
    keys: Counter[str] = field(default_factory=Counter)
    killed: bool = False
    in_attempt: int = 0

    def watch(self, call: Call) -> None:
        """Count an object; kill its writer when it is the one to die at.

        Called when S3 has the object and its writer does not know it yet: the middle of a batch.
        """
        if (call.caller, call.operation) != (self.function, "PutObject"):
            return
        self.keys[call.path] += 1
        self.in_attempt += 1
        is_time = self.story.attempt >= KILL_ATTEMPT and self.in_attempt >= KILL_AT_BATCH
        if is_time and not self.killed:
            self.killed = True
            self.cloud.functions[self.function].kill_running()

    @property
    def repeated(self) -> int:
        """How many objects were written again."""
        return sum(self.keys.values()) - len(self.keys)


class Demo:
    """One run of the demo on a started cloud."""

    def __init__(self, cloud: LocalCloud, screen: Screen, slot: datetime) -> None:
        self.cloud = cloud
        self.screen = screen
        self.slot = slot
        export = cloud.stack.function("ExportFunction")
        self.function = export.name
        self.bucket = export.environment["EXPORT_BUCKET"]
        table = export.environment["ANARCHON_TABLE"]
        key = RunKey("export", iso(slot))
        self.story = Story(cloud.aws.client("dynamodb"), table, key, self.function)
        self.exports = Exports(cloud, self.story, self.function)
        self.killed_s: float | None = None
        self._rows: dict[str, int] = {}
        self._s3 = cloud.aws.client("s3")
        self._next_tick_s = 0.0

    def run(self) -> RunRecord | None:
        """Deliver the slot and watch the run until it is closed; None if that takes too long."""
        self.cloud.listeners.append(self._listen)
        self.cloud.aws.watchers.append(self.exports.watch)
        until_s = time.monotonic() + PATIENCE_S
        self._next_tick_s = time.monotonic() + TICK_S
        self.cloud.deliver("export", self.slot)
        while time.monotonic() < until_s:
            time.sleep(0.1)
            record = self.story.read()
            self.screen.progress(self._count_rows(), self._status(record))
            # The last attempt's line comes when its invocation has ended, a moment later.
            if record and record.state in TERMINAL_STATES and self.story.attempt > record.attempt:
                return record
            self._tick()
        return None

    def _tick(self) -> None:
        """Fire the resumer, as its schedule does."""
        if time.monotonic() >= self._next_tick_s:
            self._next_tick_s += TICK_S
            self.cloud.deliver("resumer", datetime.now(UTC))

    def _listen(self, event: object) -> None:
        if isinstance(event, Started) and event.function == self.function:
            self.exports.in_attempt = 0
        if isinstance(event, Ended) and event.function != self.function:
            self._resumer_ended(event)
        told = self.story.listen(event) if isinstance(event, Started | Ended) else None
        if told is not None:
            self.screen.attempt(told, _NOTES.get(told.how, f"{told.how} {told.detail}"))
            if told.how == "killed":
                self._explain_kill()

    def _explain_kill(self) -> None:
        self.killed_s = time.monotonic()
        record = self.story.read()
        until = iso(from_ms(record.lease_until if record else 0))[11:19]
        skew_s = CLOCK_SKEW_MS // 1000
        for text in (
            "SIGKILL: the batch is in S3, its checkpoint is not saved. The dead",
            f"can't let go: the lease runs until {until} UTC, and {skew_s} s more are",
            "allowed for clocks that differ.",
        ):
            self.screen.line(INDENT + text, "dim")

    def _resumer_ended(self, ended: Ended) -> None:
        """Tell of a pass of the resumer, if it took a run up."""
        if self.killed_s is not None and ended.end == "returned" and ended.payload["sent"]:
            waited_s = time.monotonic() - self.killed_s
            self.killed_s = None
            for text in (
                f"{waited_s:.1f} s later the resumer found the run held by nobody, and",
                "invoked its function.",
            ):
                self.screen.line(INDENT + text, "dim")

    def _status(self, record: RunRecord | None) -> str:
        is_open = record is None or record.state not in TERMINAL_STATES
        if self.killed_s is None or record is None:
            return f"attempt {self.story.attempt}" if is_open else "done"
        left_ms = record.lease_until + CLOCK_SKEW_MS - self.cloud.clock.now_ms()
        return f"waiting {max(0, left_ms) / 1000:.1f} s"

    def _count_rows(self) -> int:
        """Return the rows in S3; an object that was written since is read."""
        for path in list(self.exports.keys):
            if path not in self._rows:
                key = path.lstrip("/").removeprefix(f"{self.bucket}/")
                self._rows[path] = len(planes.read_object(self._s3, self.bucket, key))
        return sum(self._rows.values())


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 if S3 is equal to the source."""
    options = _parse(arguments)
    # So that `kill` ends what was started, as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        summary = _play(options)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; all that was started was ended.\n")
        return 128 + signal.SIGINT
    except (AnarchonError, FileNotFoundError) as error:
        sys.stderr.write(f"The demo can't start: {error}\n")
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
    if options.json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    return verdict(summary)


def verdict(summary: Mapping[str, Any]) -> int:
    """Return the exit code: 0 if the run succeeded and S3 is equal to the source, all of it."""
    is_whole = summary["source_rows"] == summary["file_rows"]
    return 0 if summary["equal"] and is_whole and summary["state"] == "succeeded" else 1


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m anarchon_ddb.local.demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    parser.add_argument("--template", type=Path, default=Path("template.yaml"))
    parser.add_argument("--data", type=Path, default=Path("tests/data/planes.csv"))
    parser.add_argument("--logs", type=Path, default=Path(".anarchon/demo"))
    return parser.parse_args(arguments)


def _play(options: argparse.Namespace) -> dict[str, Any]:
    items = planes.read_csv(options.data)
    directory = options.logs / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    started_s = time.monotonic()
    screen = Screen(len(items), to_stderr=options.json)
    latency_s = {"s3:PutObject": LATENCY_S}
    with LocalCloud(_hurried(options.template), directory, latency_s=latency_s) as cloud:
        slot = _last_slot(cloud)
        dynamodb = cloud.aws.client("dynamodb")
        planes.load(dynamodb, items)
        _introduce(screen, cloud, slot, len(items))
        demo = Demo(cloud, screen, slot)
        with screen:
            record = demo.run()
        calls = Counter(cloud.aws.calls)
        prefix = f"export/{slot:%Y-%m-%dT%H%M%SZ}/"
        exported, objects = planes.read_export(cloud.aws.client("s3"), demo.bucket, prefix)
        proof = planes.compare(planes.scan(dynamodb), exported)
    screen.line()
    if record is None:
        screen.line(f"The run did not end within {PATIENCE_S} s.", "bold red")
    screen.proof(proof, objects=objects, repeated=demo.exports.repeated)
    seconds = time.monotonic() - started_s
    screen.line(f"{seconds:.1f} s. The log of each invocation: {directory}", "dim")
    summary = _summary(demo, record, proof, calls)
    return summary | {"file_rows": len(items), "seconds": round(seconds, 1)}


def _hurried(template: Path) -> Stack:
    """Return the template's stack with the demo's numbers."""
    read = reader.read(template, name="demo")
    export = read.function("ExportFunction").with_settings(
        timeout_s=TIMEOUT_S,
        ANARCHON_LEASE=LEASE,
        ANARCHON_STOP_MARGIN=STOP_MARGIN,
        PAGE_SIZE=str(PAGE_SIZE),
    )
    return read.with_function(export)


def _last_slot(cloud: LocalCloud) -> datetime:
    """Return the slot that the export's own schedule made due last."""
    spec = cloud.stack.schedules["export"]
    slot = parse(spec.expression, spec.timezone).previous(datetime.now(UTC))
    if slot is None:
        raise TemplateError(f"{spec.expression} has made nothing due yet: there is no slot to play")
    return slot


def _introduce(screen: Screen, cloud: LocalCloud, slot: datetime, rows: int) -> None:
    for name, text in (
        ("job", f"{rows:,} aircraft from a DynamoDB table to S3, in batches of {PAGE_SIZE}"),
        ("AWS", f"embedded, at {cloud.aws.endpoint}"),
        ("S3", f"{LATENCY_S * 1000:.0f} ms of simulated network latency for each PutObject"),
        ("function", f"a child process, killed after {TIMEOUT_S} s (900 s on AWS); lease {LEASE}"),
        ("resumer", f"fired each {TICK_S:.0f} s (each minute on AWS)"),
    ):
        screen.line(f"{name:<11}{text}", "dim")
    screen.line()
    screen.line(f"slot {iso(slot)} of the schedule 'export' is delivered", "bold")


def _summary(
    demo: Demo, record: RunRecord | None, proof: planes.Proof, calls: Counter[tuple[str, str, str]]
) -> dict[str, Any]:
    attempts = demo.story.attempts
    return {
        "slot": iso(demo.slot),
        "state": record.state if record else "not finished",
        "attempts": [told.as_dict() for told in attempts],
        "stopped_early": sum(told.how == "stopped early" for told in attempts),
        "killed": sum(told.how == "killed" for told in attempts),
        "refused_deliveries": demo.story.refused,
        "source_rows": proof.source_rows,
        "exported_rows": proof.exported_rows,
        "missing": list(proof.missing),
        "extra": list(proof.extra),
        "differing": list(proof.differing),
        "equal": proof.holds,
        "batches_repeated": demo.exports.repeated,
        "calls": {
            f"{service}:{operation}": count
            for (caller, service, operation), count in sorted(calls.items())
            if caller == demo.function
        },
    }


if __name__ == "__main__":
    sys.exit(main())
