"""Import time of a handler against what it would load anyway; minimum of fresh processes.

Run it as ``python tests/bench/imports.py [ROUNDS]``. Interleaved, so that both sides see the same
machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

FLOOR = """
import boto3
boto3.client("dynamodb", region_name="eu-west-1")
from aws_lambda_powertools import Logger, Metrics
Logger(service="x"); Metrics(namespace="x", service="x")
"""
OURS = "import handlers.export"
WITH_CLIENT = """
import handlers.export
from anarchon_ddb.store import Store
Store("x").client
"""


def seconds(code: str) -> float:
    environ = os.environ | {
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)
    return time.perf_counter() - begin


def main(rounds: int) -> None:
    sides = {"floor": FLOOR, "import handlers.export": OURS, "with its client": WITH_CLIENT}
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, code in sides.items():
            best[name] = min(best[name], seconds(code))
    for name, took in best.items():
        print(f"{name:24} {took * 1000:6.0f} ms   ratio {took / best['floor']:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
