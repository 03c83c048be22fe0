"""One play of a template from its beginning to its verdict: what ``anarchon-ddb local`` does."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from anarchon_ddb.clock import SYSTEM_CLOCK, iso
from anarchon_ddb.errors import AnarchonError
from anarchon_ddb.local import imports, queues, verdict
from anarchon_ddb.local import lambda_texts as texts
from anarchon_ddb.local.chaos import Chaos
from anarchon_ddb.local.cloud import LocalCloud, Simulated, environment_of
from anarchon_ddb.local.functions import Ended
from anarchon_ddb.local.history import History
from anarchon_ddb.local.referee import Referee
from anarchon_ddb.local.stack import FunctionSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anarchon_ddb.local.stack import Stack

SETTLE = timedelta(hours=12)
"""A simulation goes on at most so long behind its end, until what was due by then has ended."""

_SETTLE_STEP = timedelta(minutes=5)


class ScriptError(AnarchonError):
    """A script that was to prepare the play did not."""


class HandlerError(AnarchonError):
    """A handler of a simulated play can't be imported."""


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

    Parameters
    ----------
    is_over : callable
        Asked ten times a second: True ends it, whatever it is at.

    Raises
    ------
    TemplateError, PortError, ScriptError, HandlerError
        When it is entered: if the stack can't be played, the port be had, the setup fails, or a
        handler can't be imported. On the machine's clock the last is told and tried again.
    """

    def __init__(
        self, stack: Stack, plan: Plan, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self.stack = stack
        self.plan = plan
        self.is_over = is_over
        self._errors: dict[str, dict[str, str]] = {}  # the last of each function
        self.faults: dict[str, str] = {}
        """Functions whose handler can't be imported, and why."""
        self.cloud = LocalCloud(
            stack, plan.directory, latency_s=plan.latency_s, simulated=plan.simulated(),
            chaos=plan.chaos, port=plan.port, dynamodb_url=plan.dynamodb_url,
        )  # fmt: skip
        self.tally = verdict.Tally()
        self.history = History(plan.directory / "history.jsonl", self.cloud.clock)
        self.history.readers.append(self.tally.read)
        self._closing = ExitStack()
        self._began_s = 0.0
        self._is_early = True
        """Whether it ends while something may still be under way."""
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
            self.cloud.listeners += [self._note_error, self.history.listen]
            self.cloud.aws.watchers.append(self.referee.watch)
            if self.plan.setup is not None:
                code = self._run(self.plan.setup)
                if code and not self.is_over():
                    raise ScriptError(f"{self.plan.setup} ended with exit code {code}")
            self.faults = imports.faults(self.cloud.functions.values(), self.is_over)
            if self.faults and self.plan.is_simulated:
                raise HandlerError("; ".join(verdict.import_failures(self.faults)))
            self._closing = undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.__exit__(None, None, None)

    def run(self) -> None:
        """Let the schedules fire until the plan's end, or until it is over."""
        is_over = self.is_over
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
        self._is_early = is_over()

    def summary(self) -> dict[str, Any]:
        """Return what the play showed, as JSON; the check runs now."""
        took_s = time.monotonic() - self._began_s
        found = self._ledgers()
        judged = verdict.promises(self.referee, self.tally, found, is_early=self._is_early)
        check = None
        if self.plan.check is not None and not self.is_over():
            check = self._run(self.plan.check)
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
            "kills": self.tally.kills,
            "timed_out": self.tally.ends["timed_out"],
            "throttled": events["throttled"],
            "replies_lost": events["reply lost"],
            "schedules": [ledger.as_dict() for ledger in found],
            "promises": [asdict(promise) for promise in judged],
            "faults": dict(self.faults),
            "last_errors": dict(self._errors),
            "queues": queues.write(self.stack.queues, self.plan.directory / "queues"),
            "check": check,
            "history": {"path": str(self.history.path), "digest": self.history.digest},
            "seconds": round(took_s, 1),
            "slots_per_s": round(slots / took_s, 1) if took_s else 0.0,
            "memory_mb": self._memory_mb(),
        }
        summary["failures"] = verdict.failures(summary)
        return summary

    def _ledgers(self) -> list[verdict.Ledger]:
        return verdict.ledgers(
            self.stack, self.referee, self.tally, self.began, self._judged_until(),
            is_early=self._is_early,
        )  # fmt: skip

    def _judged_until(self) -> datetime:
        now = self.cloud.now.replace(microsecond=0)
        return max(self.began, min(self.plan.end or now, now))

    def _is_settled(self) -> bool:
        return not any(ledger.open or ledger.waiting for ledger in self._ledgers())

    def _note_error(self, event: object) -> None:
        """Keep how a function failed last, and why a handler can't be imported, until it can."""
        if not isinstance(event, Ended):
            return
        if event.in_init:
            self.faults[event.function] = f"{texts.told(event.payload)}; log: {event.log}"
        elif event.end == "returned":
            self.faults.pop(event.function, None)
        if event.end != "returned":
            log = event.log.relative_to(self.cloud.directory)
            self._errors[event.function] = {"error": texts.told(event.payload), "log": str(log)}

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
        # None of the person's own AWS: an endpoint or a profile would send the script elsewhere.
        inherited = {name: os.environ[name] for name in os.environ if not name.startswith("AWS_")}
        command = [sys.executable, str(script)]
        process = subprocess.Popen(
            command,
            env={**inherited, **kept, **played},
            stdout=sys.__stderr__,  # stdout is for the summary
            start_new_session=True,  # Ctrl-C is for the play, which ends it
        )
        try:
            while not self.is_over():
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(0.1)
        finally:
            with suppress(ProcessLookupError, PermissionError):  # what it left running, too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return process.returncode

    def _memory_mb(self) -> dict[str, int]:
        """Return the most that the cloud itself held, and the largest sandbox."""
        # Not RUSAGE_CHILDREN: a process that was just forked holds what this one holds.
        unit = 1 if sys.platform == "darwin" else 1024
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        largest = max((one.peak_bytes for one in self.cloud.functions.values()), default=0)
        return {"cloud": own // 1_000_000, "sandbox": largest // 1_000_000}
