"""One sandbox of a function, as the cloud sees it: it starts, works, sleeps and comes to an end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from anarchon_ddb.local import lambda_texts as texts
from anarchon_ddb.local import sources
from anarchon_ddb.local.engine import LONGEST_WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from anarchon_ddb.local.engine import Timer
    from anarchon_ddb.local.functions import Function, Invocation
    from anarchon_ddb.local.lambda_texts import End

INIT_TIMEOUT_S = 10.0
"""Lambda's limit for importing a handler."""

SIMULATED_INIT_S = 0.4
"""How long an import takes on a simulated clock, where computing takes no time."""


class Sandbox:
    """A child process that works on one invocation after the other.

    Parameters
    ----------
    name : str
        Function and number: it signs its calls with it.
    """

    def __init__(self, function: Function, name: str, log: Path) -> None:
        self.function = function
        self.name = name
        self.invocation: Invocation | None = None
        self.is_alive = True
        self.patience_s = LONGEST_WAIT_S
        self._engine = function.engine
        self._is_cold = True
        self._is_ready = False
        self._began_s = 0.0
        self._sleepers: dict[int, Timer] = {}
        self._timed_out: str | None = None
        self.init_fault: dict[str, Any] | None = None
        self._init_timer: Timer | None = None
        spec = function.spec
        self._sources = sources.fingerprint(spec.code)
        self._child = function.start_child(name, log, self._hear)
        self._engine.let_run(self)
        if not self._engine.is_simulated:
            self._init_timer = self._engine.after(INIT_TIMEOUT_S, self._init_too_long)

    @property
    def pid(self) -> int:
        """Of the child."""
        return self._child.pid

    def work_on(self, invocation: Invocation) -> None:
        """Begin an invocation: at once if it is warm, else when the import is done."""
        self.invocation = invocation
        self._began_s = time.monotonic()
        invocation.started_ms = self._engine.clock.now_ms()
        if self._is_ready:
            self._ask()

    def duration_s(self, invocation: Invocation) -> float:
        """Return how long an invocation took, on the cloud's clock."""
        if self._engine.is_simulated:
            return (self._engine.clock.now_ms() - invocation.started_ms) / 1000
        return time.monotonic() - self._began_s

    def is_outdated(self) -> bool:
        """Tell whether the code was changed since it was imported."""
        if self._engine.is_simulated:
            return False
        return sources.fingerprint(self.function.spec.code) != self._sources

    def kill(self) -> None:
        """Send SIGKILL; its end is heard of in the engine's thread."""
        if self.is_alive:
            self._child.kill()
            self._engine.let_run(self)

    def kill_now(self) -> None:
        """Send SIGKILL, from any thread."""
        self._child.kill()

    def end(self) -> None:
        """Kill and reap the child."""
        self.is_alive = False
        self._child.end()

    def overdue(self) -> None:
        """End what computes, or waits for something that a simulation does not see."""
        self._timed_out = (
            f"neither answered nor called AWS for {self.patience_s:.0f} s of the machine's clock"
        )
        self.kill()

    # --- what the child says -------------------------------------------------------------------

    def _hear(self, message: dict[str, Any] | None) -> None:
        """Pass a message on to the engine's thread."""
        self._engine.post(lambda: self._received(message))

    def _received(self, message: dict[str, Any] | None) -> None:
        if message is None:
            self._ended()
        elif not self.is_alive:
            return
        elif "sleep" in message:
            self._sleep(message["number"], message["sleep"], parks=message["parks"])
        elif "cancel" in message:
            timer = self._sleepers.pop(message["cancel"], None)
            if timer is not None:
                timer.cancel()
        elif "idle" in message:
            self._engine.parked(self)
        elif not self._is_ready:
            self._imported(message)
        else:
            self._answered(message)

    def _sleep(self, number: int, seconds: float, *, parks: bool) -> None:
        if parks:
            self._engine.parked(self)
        self._sleepers[number] = self._engine.after(seconds, lambda: self._wake(number))

    def _wake(self, number: int) -> None:
        del self._sleepers[number]
        if self.is_alive:
            self._engine.let_run(self)
            self._child.send({"wake": number})

    def _imported(self, message: dict[str, Any]) -> None:
        """Begin, now that the handler is imported; that did not count for the deadline."""
        self._engine.parked(self)
        if self._init_timer is not None:
            self._init_timer.cancel()
        if "error" in message:
            self.init_fault = message["error"]  # it ends by itself
            self._engine.let_run(self)
            return
        self._is_ready = True
        if self._engine.is_simulated:
            self._engine.after(SIMULATED_INIT_S, self._ask)
        else:
            self._ask()

    def _ask(self) -> None:
        """Send the event, and let the deadline run."""
        invocation = self.invocation
        if invocation is None or invocation.log is None or not self.is_alive:
            return
        clock, spec = self._engine.clock, self.function.spec
        invocation.started_ms = clock.now_ms()
        self._began_s = time.monotonic()
        deadline_ms = invocation.started_ms - clock.offset_ms + round(spec.timeout_s * 1000)
        texts.write(invocation.log, f"START RequestId: {invocation.request_id} Version: $LATEST\n")
        invocation.deadline = self._engine.at(
            invocation.started_ms + round(spec.timeout_s * 1000), self._too_long
        )
        if invocation.fate is not None and invocation.fate.at_call == 0:
            self.function.killed(invocation, "at its start")
            self.kill()
            return
        self._engine.let_run(self)
        self._child.send(
            {
                "request_id": invocation.request_id,
                "arn": spec.arn,
                "event": invocation.event,
                "deadline_ms": deadline_ms,
                "clock_offset_ms": clock.offset_ms,
                "trace": invocation.trace.header(),
                "seed": invocation.request_id + str(invocation.attempt),
                "log": str(invocation.log),
            }
        )

    def _answered(self, message: dict[str, Any]) -> None:
        self._engine.parked(self)
        invocation = self.invocation
        if invocation is not None and invocation.fate is not None:
            # It made fewer calls than the last one: it dies with its work done, its answer unheard.
            self.function.killed(invocation, "before its answer")
            self.kill()
            return
        end: End = "raised" if "error" in message else "returned"
        self._finish(end, message.get("error", message.get("result")))

    def _ended(self) -> None:
        """Finish, since the child is gone: by itself, at its deadline, or killed."""
        self._engine.parked(self)
        was_alive, self.is_alive = self.is_alive, False
        code = self._child.end()
        invocation = self.invocation
        if invocation is None or not was_alive:
            return
        if self.init_fault is not None:
            self._finish("raised", self.init_fault)
        elif self._timed_out is not None:
            payload = {"errorType": "Sandbox.Timedout", "errorMessage": self._timed_out}
            self._finish("timed_out", payload)
        else:
            self._finish("exited", texts.exited(invocation.request_id, code))

    def _finish(self, end: End, payload: Any) -> None:
        invocation, self.invocation = self.invocation, None
        if invocation is None:
            return
        if invocation.deadline is not None:
            invocation.deadline.cancel()
        cold, self._is_cold = self._is_cold, False
        self.function.ended(invocation, end, payload, cold=cold)

    def _too_long(self) -> None:
        if self.invocation is not None:
            self._timed_out = texts.timed_out(
                self._engine.clock.now_ms(),
                self.invocation.request_id,
                self.function.spec.timeout_s,
            )
            self.kill()

    def _init_too_long(self) -> None:
        self.init_fault = {
            "errorType": "Sandbox.Timedout",
            "errorMessage": f"Init took longer than {INIT_TIMEOUT_S:.0f} s",
        }
        self.kill()
