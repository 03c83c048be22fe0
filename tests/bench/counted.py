"""Saves, counted instead of timed: the same numbers on a busy machine.

``instructions`` runs this module below callgrind, ``calls`` counts the functions that the
interpreter calls. Both sides' clients get canned replies, so nothing but their own code runs: no
server, no socket. Between two stretches ``getpriority`` is called, which nobody else calls:
callgrind, told ``--dump-before=getpriority``, writes down what was executed since the last one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from botocore.awsrequest import AWSResponse

from anarchon_ddb import Run, job, worker
from anarchon_ddb.clock import SYSTEM_CLOCK, iso
from tests.bench.sides.floor import Floor

ROOT = Path(__file__).parents[2]
SAVES = 25
SETTINGS = {
    "ANARCHON_TABLE": "anarchon",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "POWERTOOLS_LOG_LEVEL": "CRITICAL",
    "POWERTOOLS_METRICS_DISABLED": "true",
}
NOW_MS = 1_796_000_000_000
_RUN: dict[str, str | int] = {
    "pk": "job#bench",
    "sk": "run#2026-11-29T12:00:00Z",
    "state": "running",
    "owner": "0" * 32,
    "attempt": 1,
    "seq": 1,
    "strikes": 1,
    "lease_until": 4_000_000_000_000,
    "claimed_at": NOW_MS,
    "started_at": NOW_MS,
    "checkpoint": "123",
    "checkpoint_at": NOW_MS,
    "longest_batch_ms": 12,
    "longest_save_ms": 7,
    "open": "1",
    "due": 4_000_000_005_000,
    "cause": "schedule",
    "request_id": "1",
    "function": "arn:aws:lambda:eu-west-1:123456789012:function:bench",
}
_HEAD: dict[str, str | int] = {"pk": "job#bench", "sk": "head", "rev": 1, "active_attempt": 1}


def _reply(item: dict[str, str | int]) -> bytes:
    wire = {
        name: {"S": value} if isinstance(value, str) else {"N": str(value)}
        for name, value in item.items()
    }
    return json.dumps({"Attributes": wire}).encode()


RUN_REPLY, HEAD_REPLY = _reply(_RUN), _reply(_HEAD)


class Context:
    """Lambda's, with time enough."""

    aws_request_id = "1"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:bench"

    def get_remaining_time_in_millis(self) -> int:
        return 600_000


def answer(request: Any, **_: object) -> AWSResponse:
    body = HEAD_REPLY if b'"head"' in request.body else RUN_REPLY
    response = AWSResponse(request.url, 200, {}, None)
    response._content = body
    return response


def stretches(save: Callable[[int], object], mark: Callable[[], object]) -> None:
    """Save so often, and twice as often; what one stretch has and the other has not, a save is."""
    for cursor in range(SAVES):  # caches are filled
        save(1_000 + cursor)
    mark()
    for cursor in range(SAVES):
        save(2_000 + cursor)
    mark()
    for cursor in range(2 * SAVES):
        save(3_000 + cursor)
    mark()


def floors(mark: Callable[[], object]) -> None:
    floor = Floor("anarchon")
    floor.client.meta.events.register("before-send.dynamodb", answer)
    held = floor.claim("2026-11-29T12:00:00Z")
    assert held is not None
    stretches(lambda cursor: floor.save("2026-11-29T12:00:00Z", held, cursor), mark)
    floor.finish("2026-11-29T12:00:00Z", held)


def ours(mark: Callable[[], object]) -> None:
    @job("bench", lease="10m")
    def handler(run: Run) -> None:
        stretches(run.save, mark)

    store = worker.store_of(SYSTEM_CLOCK)
    store.client.meta.events.register("before-send.dynamodb", answer)
    slot = iso(datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1))
    result = handler({"job": "bench", "slot": slot}, Context())
    assert result["outcome"] == "succeeded", result


@dataclass(frozen=True, slots=True)
class PerSave:
    """What one save takes, on each side."""

    ours: float
    floor: float

    @property
    def ratio(self) -> float:
        return self.ours / self.floor


def per_save(stretches_counted: list[int]) -> PerSave:
    """Return the difference of a stretch and one twice as long: what else happens cancels out."""
    _, floor, floor_twice, _, mine, mine_twice = stretches_counted
    return PerSave((mine_twice - mine) / SAVES, (floor_twice - floor) / SAVES)


def instructions(directory: Path) -> PerSave:
    """Count what the processor executes, by callgrind. Needs valgrind; takes half a minute."""
    dumps = directory / "callgrind"
    callgrind = f"valgrind --tool=callgrind --dump-before=getpriority --callgrind-out-file={dumps}"
    _run(by=[*callgrind.split(), sys.executable])
    counted = [
        int(_TOTALS.findall(Path(f"{dumps}.{number}").read_text())[0]) for number in range(1, 7)
    ]
    return per_save(counted)


_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def calls() -> PerSave:
    """Count the functions that the interpreter calls, its own and C's."""
    totals = json.loads(_run("--calls", by=[sys.executable]))
    return per_save([after - before for before, after in pairwise([0, *totals])])


def _run(*options: str, by: list[str]) -> str:
    environ = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", **SETTINGS}
    command = [*by, "-m", "tests.bench.counted", *options]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Run both sides; print how many functions were called up to each mark."""
    called, marked = [0], []

    def profile(_frame: object, event: str, _argument: object) -> None:
        if event in {"call", "c_call"}:
            called[0] += 1

    def mark() -> None:
        os.getpriority(os.PRIO_PROCESS, 0)
        marked.append(called[0])

    if "--calls" in sys.argv:
        sys.setprofile(profile)
    floors(mark)
    ours(mark)
    sys.setprofile(None)
    sys.stdout.write(json.dumps(marked))


if __name__ == "__main__":
    main()
