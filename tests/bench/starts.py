"""What a sandbox pays before its first batch: import time, and memory once it is warm.

Each figure comes from a process of its own; the interpreter's own start is not in it. The sides
take turns, so both see the same machine.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.bench.endpoint import python, require, server
from tests.bench.measure import Bench, Figure, Goal, number, ratio

ROOT = Path(__file__).parents[2]
CREDENTIALS = {
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "ANARCHON_TABLE": "anarchon",
}
# Tells the decorator that this is Lambda's init: the client is made there, as on AWS.
IN_LAMBDA = {"AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9", "AWS_LAMBDA_FUNCTION_NAME": "export"}

FLOOR = """
import boto3
boto3.client("dynamodb")
from aws_lambda_powertools import Logger, Metrics
Logger(service="x"); Metrics(namespace="x", service="x")
"""
OURS = "import handlers.export"
TIMED = "import time; begin_s = time.perf_counter()\n{}\nprint(time.perf_counter() - begin_s)"

RESIDENT = """
lines = open("/proc/self/status").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmRSS")))
"""
WARM_FLOOR = (
    FLOOR
    + """
logger, metrics = Logger(service="x"), Metrics(namespace="x", service="x")
client = boto3.client("dynamodb")
for number in range(60):
    client.update_item(
        TableName=__import__("os").environ["ANARCHON_TABLE"],
        Key={"pk": {"S": "floor"}, "sk": {"S": "x"}},
        UpdateExpression="SET #checkpoint = :checkpoint",
        ExpressionAttributeNames={"#checkpoint": "checkpoint"},
        ExpressionAttributeValues={":checkpoint": {"S": str(number)}},
    )
logger.info("done")
metrics.add_metric(name="Done", unit="Count", value=1)
metrics.flush_metrics()
"""
    + RESIDENT
)
WARM_OURS = (
    """
import datetime, boto3
from anarchon_ddb import Run, job

class Context:
    aws_request_id = "1"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:bench"
    def get_remaining_time_in_millis(self):
        return 60_000

@job("bench")
def handler(run: Run) -> None:
    for cursor in range(20):
        run.save(cursor)

now = datetime.datetime.now(datetime.timezone.utc)
for minutes in (1, 2, 3):
    slot = now - datetime.timedelta(minutes=minutes)
    answer = handler({"job": "bench", "slot": f"{slot:%Y-%m-%dT%H:%M:%SZ}"}, Context())
    assert answer["outcome"] == "succeeded", answer
"""
    + RESIDENT
)


def output(code: str, environ: Mapping[str, str], *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        python(*options, "-c", code),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        check=True,
    )


def import_ms(code: str, environ: Mapping[str, str]) -> float:
    return float(output(TIMED.format(code), environ).stdout.split()[-1]) * 1000


def own_ms() -> float:
    """Return the time of this package's own modules, as ``-X importtime`` has it."""
    lines = output(OURS, CREDENTIALS | IN_LAMBDA, "-X", "importtime").stderr
    own = re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+anarchon_ddb\b", lines)
    require(is_right=len(own) > 10, found=lines)
    return sum(map(int, own)) / 1000


def imports(bench: Bench) -> Iterator[Figure]:
    """Init of the export handler against boto3's client with Powertools' Logger and Metrics."""
    taken = bench.interleave(
        {
            "ours": partial(import_ms, OURS, CREDENTIALS | IN_LAMBDA),
            "floor": partial(import_ms, FLOOR, CREDENTIALS),
            "without client": partial(import_ms, OURS, CREDENTIALS),
        },
        rounds=2 * bench.rounds,
    )
    yield ratio("init: export handler and its client / boto3 client, Logger, Metrics", taken,
                "ours", "floor", goal=Goal(1.1), side_unit="ms")  # fmt: skip
    yield ratio("import of it alone, no client made / the same", taken, "without client", "floor",
                side_unit="ms")  # fmt: skip
    own = [own_ms() for _ in range(bench.rounds)]
    yield number("own modules, -X importtime", own, "ms", goal=Goal(60))


def resident_mb(code: str, environ: Mapping[str, str]) -> float:
    return int(output(code, environ).stdout.split()[-1]) / 1024


def memory(bench: Bench) -> Iterator[Figure]:
    """Memory of a warm handler above boto3 and Powertools: resident, in fresh processes."""
    with server() as dynalite:
        environ = dynalite.environ | {"ANARCHON_TABLE": dynalite.new_table().table}

        # Each round has its own table: its slots are new ones.
        def ours_mb() -> float:
            table = {"ANARCHON_TABLE": dynalite.new_table().table}
            return resident_mb(WARM_OURS, dynalite.environ | table)

        taken = bench.interleave(
            {"ours": ours_mb, "floor": lambda: resident_mb(WARM_FLOOR, environ)}
        )
    above = [ours - floor for ours, floor in zip(taken["ours"], taken["floor"], strict=True)]
    yield Figure("warm handler above boto3 + Powertools, resident", tuple(above), "MB", Goal(15),
                 taken, "MB")  # fmt: skip
