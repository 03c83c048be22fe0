"""What befalls each AWS call of a sandbox before it is served: its turn, its latency, and chaos.

On a simulated clock a call waits until its time has come, and its sandbox stands still meanwhile.
"""

from __future__ import annotations

import enum
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anarchon_ddb.local.functions import FORK_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anarchon_ddb.local.aws import Call
    from anarchon_ddb.local.chaos import Chaos
    from anarchon_ddb.local.engine import Engine
    from anarchon_ddb.local.functions import Function, Invocation
    from anarchon_ddb.local.sandboxes import Sandbox

SIMULATED_LATENCY_S = {"dynamodb": 0.005, "s3": 0.03}
SIMULATED_OTHER_S = 0.02
"""Of a call, where nothing else was asked for."""


class Verdict(enum.Enum):
    """What is done with a call."""

    SERVE = "served"
    THROTTLE = "throttled"
    LOSE_REPLY = "reply lost"
    KILL_BEFORE = "killed before the call"
    KILL_AFTER = "killed after the call"
    DROP = "dropped"
    """Its sandbox is dead."""


@dataclass(frozen=True, slots=True)
class Struck:
    """Chaos befell a call."""

    verdict: Verdict
    function: str
    request_id: str
    number: int
    """Of the call, counted in its invocation."""
    operation: str


class Traffic:
    """Admits the calls of the sandboxes.

    Parameters
    ----------
    latency_s : mapping
        Seconds that a call takes longer, by ``service:Operation``. May be changed.
    tell : callable
        Called with what chaos did.
    """

    def __init__(
        self,
        functions: Mapping[str, Function],
        engine: Engine,
        chaos: Chaos,
        latency_s: Mapping[str, float],
        tell: Callable[[Struck], None],
    ) -> None:
        self._functions = functions
        self._engine = engine
        self._chaos = chaos
        self._latency_s = latency_s
        self._tell = tell

    def sandbox_of(self, call: Call) -> Sandbox | None:
        """Return who made a call; None for one from outside."""
        function = self._functions.get(call.caller)
        return function.sandbox(call.signer) if function is not None else None

    def admit(self, call: Call) -> Verdict:
        """Wait until a call may be served, and say how; in the server's thread."""
        sandbox = self.sandbox_of(call)
        extra_s = self._latency_s.get(f"{call.service}:{call.operation}")
        if sandbox is None:
            return self._admit_stranger(call)
        if not self._engine.is_simulated:
            if extra_s:
                time.sleep(extra_s)
            return self._judge(sandbox, call)
        latency_s = SIMULATED_LATENCY_S.get(call.service, SIMULATED_OTHER_S)
        return self._wait_for_turn(sandbox, call, extra_s or latency_s)

    def _admit_stranger(self, call: Call) -> Verdict:
        """Serve what no sandbox calls: somebody outside, or an import. A dead sandbox gets none."""
        if call.signer.endswith(FORK_SERVER):
            self._functions[call.caller].calls_at_import = True
            return Verdict.SERVE
        return Verdict.SERVE if call.signer == call.caller else Verdict.DROP

    def kill(self, call: Call) -> None:
        """Kill the sandbox that made a call, which was served."""
        sandbox = self.sandbox_of(call)
        if sandbox is not None:
            sandbox.kill_now()

    def _wait_for_turn(self, sandbox: Sandbox, call: Call, latency_s: float) -> Verdict:
        verdicts: list[Verdict] = []
        released = threading.Event()

        def release() -> None:
            verdicts.append(self._judge(sandbox, call))
            if verdicts[0] is not Verdict.DROP:
                self._engine.let_run(sandbox)
            released.set()

        def arrive() -> None:
            self._engine.parked(sandbox)
            self._engine.after(latency_s, release)

        self._engine.post(arrive)
        while not released.wait(0.5):
            if self._engine.is_stopped:
                return Verdict.DROP
        return verdicts[0]

    def _judge(self, sandbox: Sandbox, call: Call) -> Verdict:
        """Decide what is done with a call, and count it."""
        invocation = sandbox.invocation
        if not sandbox.is_alive:
            return Verdict.DROP
        if invocation is None:  # made while the handler is imported
            return Verdict.SERVE
        invocation.calls += 1
        verdict = self._verdict(sandbox, invocation)
        if verdict is not Verdict.SERVE:
            operation = f"{call.service}:{call.operation}"
            name = sandbox.function.spec.name
            self._tell(Struck(verdict, name, invocation.request_id, invocation.calls, operation))
        if verdict is Verdict.KILL_BEFORE:
            sandbox.kill_now()
        return verdict

    def _verdict(self, sandbox: Sandbox, invocation: Invocation) -> Verdict:
        fate, number = invocation.fate, invocation.calls
        if fate is not None and number == fate.at_call:
            invocation.fate = None
            return Verdict.KILL_BEFORE if fate.before_it else Verdict.KILL_AFTER
        what = (sandbox.function.spec.name, invocation.request_id, invocation.attempt, number)
        if self._chaos.happens("throttle", *what):
            return Verdict.THROTTLE
        if self._chaos.happens("lost_reply", *what):
            return Verdict.LOSE_REPLY
        return Verdict.SERVE
