"""One play of a template from its beginning to its verdict: what ``anarchon-ddb local`` does."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from anarchon_ddb.clock import SYSTEM_CLOCK, iso
from anarchon_ddb.errors import AnarchonError
from anarchon_ddb.local import queues, verdict
from anarchon_ddb.local.chaos import Chaos
from anarchon_ddb.local.cloud import LocalCloud, Simulated, environment_of
from anarchon_ddb.local.history import History
from anarchon_ddb.local.referee import Referee
from anarchon_ddb.local.stack import FunctionSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anarchon_ddb.local.stack import Stack

SETTLE = timedelta(hours=12)
"""A simulation goes on at most so long behind its end, until what was due by then has ended."""

_SETTLE_STEP = timedelta(minutes=5)
_FRESH = timedelta(minutes=3)
"""On the machine's clock a slot is judged when it is this old: it may come late in its minute."""


class ScriptError(AnarchonError):
    """A script that was to prepare the play did not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for.

    Attributes
    ----------
    start, end : datetime, optional
        With a start the clock is simulated. Without an end it plays until it is interrupted.
    setup, check : Path, optional
        Python scripts that run before and behind it with the environment of a function: the one
        fills tables, the other looks at what the functions made.
    """

    directory: Path
    start: datetime | None = None
    end: datetime | None = None
    speed: float | None = None
    chaos: Chaos = field(default_factory=Chaos)
    latency_s: Mapping[str, float] = field(default_factory=dict)
    port: int = 0
    dynamodb_url: str | None = None
    setup: Path | None = None
    check: Path | None = None

    @property
    def is_simulated(self) -> bool:
        """Whether the clock is a simulated one."""
        return self.start is not None

    def simulated(self) -> Simulated | None:
        """Return the simulated clock, if there is one."""
        return None if self.start is None else Simulated(self.start, self.speed)


class Play:
    """A stack on its way through a plan; use it as a context manager.

    Raises
    ------
    TemplateError, PortError, ScriptError
        When it is entered: if the stack can't be played, the port be had, or the setup fails.
    """

    def __init__(self, stack: Stack, plan: Plan) -> None:
        self.stack = stack
        self.plan = plan
        self.cloud = LocalCloud(
            stack, plan.directory, latency_s=plan.latency_s, simulated=plan.simulated(),
            chaos=plan.chaos, port=plan.port, dynamodb_url=plan.dynamodb_url,
        )  # fmt: skip
        self.tally = verdict.Tally()
        self.history = History(plan.directory / "history.jsonl", self.cloud.clock)
        self.history.readers.append(self.tally.read)
        self._closing = ExitStack()
        self._began_s = 0.0
        self.began = self.cloud.now

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.history.close)
            undo.enter_context(self.cloud)
            self.referee = Referee(
                self.cloud.aws.client("dynamodb"),
                frozenset(table.name for table in self.stack.tables),
                self.cloud.clock,
            )
            self.cloud.listeners.append(self.history.listen)
            self.cloud.aws.watchers.append(self.referee.watch)
            if self.plan.setup is not None and (code := self._run(self.plan.setup)):
                raise ScriptError(f"{self.plan.setup} ended with exit code {code}")
            self._closing = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.__exit__(None, None, None)

    def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let the schedules fire until the plan's end.

        Parameters
        ----------
        is_over : callable
            Asked ten times a second; what was due by then is judged.
        """
        self._began_s = time.monotonic()
        self.began = self.cloud.now.replace(microsecond=0)
        self.cloud.start_schedules()
        end = self.plan.end
        if not self.plan.is_simulated:
            while not is_over() and (end is None or self.cloud.now < end):
                SYSTEM_CLOCK.sleep(0.1)
            return
        self.cloud.play_until(end or datetime.max.replace(tzinfo=UTC) - SETTLE, is_over)
        until = self.cloud.now + SETTLE
        while not is_over() and self.cloud.now < until and not self._is_settled():
            self.cloud.play_until(self.cloud.now + _SETTLE_STEP, is_over)

    def summary(self) -> dict[str, Any]:
        """Return what the play showed, as JSON; the check runs now."""
        took_s = time.monotonic() - self._began_s
        found = self._ledgers()
        judged = verdict.promises(self.referee, self.tally, found)
        slots = sum(ledger.due for ledger in found)
        events, counts = self.tally.events, self.referee.counts
        summary: dict[str, Any] = {
            "from": iso(self.began),
            "to": iso(self._judged_until()),
            "simulated": self.plan.is_simulated,
            "chaos": dict(self.plan.chaos.as_dict()),
            "seed": self.plan.chaos.seed,
            "slots": slots,
            "invocations": events["ended"],
            "cold_starts": self.tally.cold,
            "attempts": counts["claims"],
            "deliveries": events["delivered"],
            "duplicates": events["duplicate"],
            "late": self.tally.late,
            "undelivered": events["undelivered"],
            "given_up": events["given up"],
            "kills": events["killed before the call"]
            + events["killed after the call"]
            + events["killed at its start"],
            "timed_out": self.tally.ends["timed_out"],
            "throttled": events["throttled"],
            "replies_lost": events["reply lost"],
            "schedules": [ledger.as_dict() for ledger in found],
            "promises": [asdict(promise) for promise in judged],
            "faults": dict(self.tally.faults),
            "queues": queues.write(self.stack.queues, self.plan.directory / "queues"),
            "check": None if self.plan.check is None else self._run(self.plan.check),
            "history": {"path": str(self.history.path), "digest": self.history.digest},
            "seconds": round(took_s, 1),
            "slots_per_s": round(slots / took_s, 1) if took_s else 0.0,
            "memory_mb": self._memory_mb(),
        }
        summary["failures"] = verdict.failures(summary)
        return summary

    def _ledgers(self) -> list[verdict.Ledger]:
        return verdict.ledgers(
            self.stack, self.referee, self.tally, self.began, self._judged_until()
        )

    def _judged_until(self) -> datetime:
        now = self.cloud.now.replace(microsecond=0)
        until = now if self.plan.is_simulated else now - _FRESH
        return max(self.began, min(self.plan.end or until, until))

    def _is_settled(self) -> bool:
        return not any(
            ledger.open or (ledger.absent and ledger.job is not None) for ledger in self._ledgers()
        )

    def _run(self, script: Path) -> int:
        """Run a script with what a function finds in its environment."""
        settings: dict[str, str] = {}
        for spec in self.stack.functions.values():
            settings |= spec.environment
        outside = FunctionSpec(
            script.stem, script.stem, "", script.parent.resolve(), 0, 0, settings
        )
        environment = environment_of(outside, endpoint=self.cloud.aws.endpoint, signer="script")
        # It runs outside of Lambda.
        kept = {name: value for name, value in environment.items() if "LAMBDA" not in name}
        played = {
            "ANARCHON_LOCAL_FROM": iso(self.began),
            "ANARCHON_LOCAL_TO": iso(self._judged_until()),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), kept.get("PYTHONPATH")))),
        }
        command = [sys.executable, str(script)]
        process = subprocess.run(command, env={**os.environ, **kept, **played}, check=False)
        return process.returncode

    def _memory_mb(self) -> dict[str, int]:
        """Return the most that the cloud itself held, and the largest sandbox."""
        unit = 1 if sys.platform == "darwin" else 1024
        peaks = {
            name: resource.getrusage(who).ru_maxrss * unit
            for name, who in (
                ("cloud", resource.RUSAGE_SELF),
                ("sandbox", resource.RUSAGE_CHILDREN),
            )
        }
        pids = [pid for function in self.cloud.functions.values() for pid in function.pids()]
        peaks["sandbox"] = max(peaks["sandbox"], *map(_peak_bytes, pids), 0)
        return {name: peak // 1_000_000 for name, peak in peaks.items()}


def _peak_bytes(pid: int) -> int:
    """Return the most that a living process held; 0 where that can't be told."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0
