"""The export killed at random instants on the local cloud: nothing is lost, nothing is doubled."""

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from anarchon_ddb import schema
from anarchon_ddb.local import planes, reader
from anarchon_ddb.local.cloud import LocalCloud
from anarchon_ddb.local.functions import Ended, Started
from anarchon_ddb.records import TERMINAL_STATES
from anarchon_ddb.schema import RunKey
from tests.processes import wait_until

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "template.yaml"
PLANES = planes.read_csv(ROOT / "tests/data/planes.csv")
KILLS = 30
SEED = 20261129


class Exporter:
    """The export job of the template on a local cloud; it knows how to kill and how to compare."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.function = cloud.function("ExportFunction")
        self.dynamodb = cloud.aws.client("dynamodb")
        self.s3 = cloud.aws.client("s3")
        self.started = threading.Event()
        self.ended = []
        cloud.listeners.append(self._listen)

    def _listen(self, event):
        if event.function == self.function.spec.name:
            if isinstance(event, Ended):
                self.ended.append(event)
            elif isinstance(event, Started):
                self.started.set()

    def deliver(self, schedule, slot):
        """Deliver a slot and wait until its invocation has begun."""
        self.started.clear()
        self.cloud.deliver(schedule, slot)
        assert self.started.wait(20)

    def next_end(self, count):
        wait_until(lambda: len(self.ended) > count)
        return self.ended[count]

    def record(self, slot):
        key = RunKey("export", f"{slot:%Y-%m-%dT%H:%M:%SZ}")
        reply = self.dynamodb.get_item(
            TableName=self.function.spec.environment["ANARCHON_TABLE"],
            Key=key.wire,
            ConsistentRead=True,
        )
        return schema.to_record(reply["Item"]) if "Item" in reply else None

    def resume(self, slot):
        """Let the lease run out, and fire the resumer until the run is closed."""
        while (record := self.record(slot)) is None or record.state not in TERMINAL_STATES:
            count = len(self.ended)
            self.cloud.clock.advance(seconds=70)
            # Killed before its claim, a run has left no trace: Scheduler's event is repeated.
            self.deliver("export" if record is None else "resumer", slot)
            self.next_end(count)
        return record

    def proof(self, slot):
        bucket = self.function.spec.environment["EXPORT_BUCKET"]
        exported, _ = planes.read_export(self.s3, bucket, f"export/{slot:%Y-%m-%dT%H%M%SZ}/")
        return planes.compare(PLANES, exported)


@pytest.fixture(scope="module")
def exporter(tmp_path_factory):
    with LocalCloud(reader.read(TEMPLATE), tmp_path_factory.mktemp("logs")) as cloud:
        planes.load(cloud.aws.client("dynamodb"), PLANES)
        yield Exporter(cloud)


def test_thirty_exports_killed_at_a_random_instant_each_end_equal_to_their_source(exporter, capsys):
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    slots = (now - timedelta(minutes=minute) for minute in range(1, 200))
    exporter.deliver("export", next(slots))
    exporter.next_end(0)
    exporter.deliver("export", next(slots))
    warm_s = exporter.next_end(1).duration_s  # how long a run takes when nobody kills it

    history, killed_at = [], []
    for seed in range(SEED, SEED + 3 * KILLS):
        slot, count = next(slots), len(exporter.ended)
        instant_s = random.Random(seed).uniform(0, warm_s)
        exporter.deliver("export", slot)
        time.sleep(instant_s)
        exporter.function.kill_running()
        first = exporter.next_end(count)
        at_kill = exporter.record(slot)
        record = exporter.resume(slot)
        proof = exporter.proof(slot)
        done = at_kill.done if at_kill else None
        history.append(f"seed {seed}: {first.end} after {instant_s:.3f} s, {done} rows saved")
        assert proof.holds, (history[-1], proof)
        assert (record.state, record.done) == ("succeeded", len(PLANES)), history[-1]
        if first.end == "exited":
            killed_at.append(done)
        if len(killed_at) == KILLS:
            break

    with capsys.disabled():
        print("", *history, sep="\n  ")  # noqa: T201  how to repeat a failure
    assert len(killed_at) == KILLS
    assert len(set(killed_at)) > 3, "the kills fell at different checkpoints"


def test_an_export_killed_at_its_deadline_goes_on_from_its_checkpoint(tmp_path):
    shipped = reader.read(TEMPLATE)
    hurried = shipped.function("ExportFunction").with_settings(
        timeout_s=4, ANARCHON_STOP_MARGIN="1s"
    )
    slot = datetime.now(UTC).replace(second=0, microsecond=0)
    with LocalCloud(shipped.with_function(hurried), tmp_path) as cloud:
        planes.load(cloud.aws.client("dynamodb"), PLANES)
        exporter = Exporter(cloud)

        def hang_at_the_second_object(call):
            if call.operation == "PutObject" and cloud.aws.calls[call.key] == 1:
                cloud.aws.latency_s["s3:PutObject"] = 8

        cloud.aws.watchers.append(hang_at_the_second_object)
        exporter.deliver("export", slot)
        ended = exporter.next_end(0)
        cloud.aws.latency_s.clear()
        # From here on a slow machine is no matter.
        exporter.function.spec = hurried.with_settings(timeout_s=60)
        saved = exporter.record(slot).done
        record = exporter.resume(slot)

        assert ended.end == "timed_out"
        assert saved == 500
        assert [past.end for past in record.attempts] == ["lost", "succeeded"]
        assert exporter.proof(slot).holds
