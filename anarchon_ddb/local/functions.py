"""Lambda, played: functions, their warm sandboxes, their asynchronous queues, and the deadline.

All of it happens in the engine's thread. A sandbox is a child process that is reused while it is
warm; two invocations at once need two. At the deadline the child is killed with SIGKILL, as on AWS:
nothing in it gets to clean up. A queued event whose invocation fails is tried again, until its
tries or its age are used up.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anarchon_ddb.local import lambda_texts as texts
from anarchon_ddb.local.lineage import Trace
from anarchon_ddb.local.process import ForkServer, peak_bytes, start
from anarchon_ddb.local.sandboxes import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from anarchon_ddb.local.chaos import Fate
    from anarchon_ddb.local.engine import Engine, Timer
    from anarchon_ddb.local.lambda_texts import End
    from anarchon_ddb.local.process import Child, Hear
    from anarchon_ddb.local.stack import FunctionSpec

QUEUE_DELAY_S = 0.05
"""An event waits a little in Lambda's queue, so the sandbox of a function that invoked itself has
mostly answered by then, and is reused."""

FORK_SERVER = "@0"
"""Signs the calls that are made while a fork server imports the handler."""

RETRY_DELAYS_S = (60.0, 120.0)
"""Before the second and the third try of an event, as Lambda documents it."""

MOST_SANDBOXES = 16
"""Of one function at once. The machine's limit, not Lambda's; the rest waits in the queue."""


@dataclass(frozen=True, slots=True)
class Started:
    """An invocation was handed to a function."""

    request_id: str
    function: str
    event: Any
    attempt: int = 1
    """1 for the first try of an event; Lambda tries a failed one again under the same id."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an invocation ended. Its log is on disk by then."""

    request_id: str
    function: str
    end: End
    payload: Any
    """What the handler returned, or the error as Lambda describes it."""
    cold: bool
    duration_s: float
    log: Path
    calls: int = 0
    """Of AWS, made while it ran."""
    in_init: bool = False
    """Whether its handler could not be imported."""


@dataclass(frozen=True, slots=True)
class Killed:
    """Chaos killed an invocation between its AWS calls: before the first, or behind the last."""

    request_id: str
    function: str
    when: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An event that Lambda keeps no longer: its tries or its age are used up, or it recurses."""

    request_id: str
    function: str
    event: Any
    why: str


Told = Started | Ended | Killed | GivenUp


class CloudClosedError(Exception):
    """The local cloud was closed before the invocation could begin."""


class TooManyRequestsError(Exception):
    """The function's reserved concurrency is used up."""


@dataclass(slots=True)
class Invocation:
    """One event on its way through a function."""

    request_id: str
    event: Any
    trace: Trace
    queued_ms: int | None = None
    """When it came into the queue; None for one whose caller waits."""
    attempt: int = 1
    on_end: Callable[[Ended | Exception], None] = field(default=lambda _ended: None)
    fate: Fate | None = None
    log: Path | None = None
    sandbox: Sandbox | None = None
    started_ms: int = 0
    calls: int = 0
    deadline: Timer | None = None


class Function:
    """A function with its sandboxes and its asynchronous queue.

    Parameters
    ----------
    spec : FunctionSpec
        May be replaced; the next cold start is made from it.
    environment : callable
        Returns the environment of the sandbox with a number.
    logs : Path
        A directory: one file for each invocation.
    tell : callable
        Called with each ``Told``, in the engine's thread.
    name_request : callable
        Returns a fresh id for an invocation.
    draw_fate : callable
        Returns what chaos has in store for an invocation, or None.
    """

    def __init__(
        self,
        spec: FunctionSpec,
        engine: Engine,
        *,
        environment: Callable[[str], Mapping[str, str]],
        logs: Path,
        tell: Callable[[Told], None],
        name_request: Callable[[], str],
        draw_fate: Callable[[Function, Invocation], Fate | None],
    ) -> None:
        self.spec = spec
        self.engine = engine
        self.tell = tell
        self.usual_calls = 4
        """Of AWS, made by the last invocation that ended by itself."""
        self.peak_bytes = 0
        """The most that one of its sandboxes held."""
        self._environment = environment
        self.logs = logs
        self._name_request = name_request
        self._draw_fate = draw_fate
        self._lock = threading.Lock()  # the lists are also read by other threads
        self._forks: ForkServer | None = None
        self.calls_at_import = False
        """Whether importing the handler calls AWS: each sandbox then imports it itself."""
        self._idle: list[Sandbox] = []  # the one that was used last at the end
        self._busy: list[Sandbox] = []
        self._waiting: deque[Invocation] = deque()
        self._count = 0
        self._made = 0
        self._is_closed = False
        logs.mkdir(parents=True, exist_ok=True)

    def environment_of(self, number: str) -> Mapping[str, str]:
        """Return the environment of the sandbox with a number, such as ``@1``."""
        return self._environment(f"{self.spec.name}{number}")

    # --- from any thread -----------------------------------------------------------------------

    def send(self, event: Any, trace: Trace | None = None) -> str:
        """Put an event into the asynchronous queue; return the id of its invocation."""
        request_id = self._name_request()
        invocation = Invocation(request_id, event, trace or Trace.fresh(request_id))
        self.engine.post(lambda: self.enqueue(invocation))
        return request_id

    def drop(self, event: Any, why: str) -> str:
        """Refuse an event for good; return the id that its invocation would have had."""
        request_id = self._name_request()
        self.engine.post(lambda: self.tell(GivenUp(request_id, self.spec.name, event, why)))
        return request_id

    def invoke(
        self, event: Any, trace: Trace | None = None, caller: Sandbox | None = None
    ) -> Ended:
        """Run an invocation and wait for its end; never from the engine's thread.

        Parameters
        ----------
        caller : Sandbox, optional
            Stands still until the function has answered.

        Raises
        ------
        CloudClosedError
            If the function was closed.
        TooManyRequestsError
            If its reserved concurrency is used up.
        """
        ended: list[Ended | Exception] = []
        done = threading.Event()

        def begin() -> None:
            if caller is not None:
                self.engine.parked(caller)
            self.begin(invocation)

        def on_end(answer: Ended | Exception) -> None:
            if caller is not None:
                self.engine.let_run(caller)
            ended.append(answer)
            done.set()

        request_id = self._name_request()
        invocation = Invocation(request_id, event, trace or Trace.fresh(request_id), on_end=on_end)
        self.engine.post(begin)
        while not done.wait(0.5):
            if self.engine.is_stopped:
                raise CloudClosedError(self.spec.name)
        if isinstance(ended[0], Exception):
            raise ended[0]
        return ended[0]

    def kill_running(self) -> int:
        """Send SIGKILL to the sandboxes that work at this moment; return how many there were."""
        with self._lock:
            busy = list(self._busy)
        for sandbox in busy:
            sandbox.kill_now()
        return len(busy)

    def pids(self) -> list[int]:
        """Return the process ids of all sandboxes, idle and busy."""
        with self._lock:
            return [sandbox.pid for sandbox in (*self._idle, *self._busy)]

    def sandbox(self, name: str) -> Sandbox | None:
        """Return the sandbox with a name, if it is still there."""
        with self._lock:
            return next((one for one in (*self._busy, *self._idle) if one.name == name), None)

    def close(self) -> None:
        """End every sandbox; the engine has stopped."""
        self._is_closed = True
        with self._lock:
            left = [*self._idle, *self._busy]
            self._idle, self._busy = [], []
        for sandbox in left:  # all are killed before the first is waited for
            sandbox.kill_now()
        for sandbox in left:
            sandbox.end()
            if sandbox.invocation is not None:
                sandbox.invocation.on_end(CloudClosedError(self.spec.name))
        if self._forks is not None and self._forks.is_usable:
            self._forks.close()

    # --- in the engine's thread ----------------------------------------------------------------

    def start_child(self, name: str, log: Path, hear: Hear) -> Child:
        """Start a sandbox's process; on a simulated clock a fork, where that is the same."""
        spec = self.spec
        if self.engine.is_simulated:
            if self._forks is None:
                template = self.environment_of(FORK_SERVER)
                self._forks = ForkServer(spec.handler, spec.code, template, log)
            if self._forks.is_usable and not self.calls_at_import:
                return self._forks.start(name, log, hear)
        return start(spec.handler, spec.code, self._environment(name), log, hear)

    def enqueue(self, invocation: Invocation) -> None:
        """Take an event into the asynchronous queue."""
        invocation.queued_ms = self.engine.clock.now_ms()
        self.engine.after(QUEUE_DELAY_S, lambda: self._from_queue(invocation))

    def begin(self, invocation: Invocation) -> None:
        """Hand an invocation whose caller waits to a sandbox, or refuse it."""
        if self._is_closed:
            invocation.on_end(CloudClosedError(self.spec.name))
        elif self._is_full():
            invocation.on_end(TooManyRequestsError(self.spec.name))
        else:
            self._start(invocation)

    def killed(self, invocation: Invocation, when: str) -> None:
        """Tell that chaos killed an invocation: its sandbox says so."""
        self.tell(Killed(invocation.request_id, self.spec.name, when))

    def ended(self, invocation: Invocation, end: End, payload: Any, *, cold: bool) -> None:
        """Take the end of an invocation into account: a sandbox says so."""
        sandbox, log = invocation.sandbox, invocation.log
        if sandbox is None or log is None:
            return
        duration_s = sandbox.duration_s(invocation)
        with self._lock:
            if sandbox in self._busy:
                self._busy.remove(sandbox)
            if sandbox.is_alive and not self._is_closed:
                self._idle.append(sandbox)
        if end in {"returned", "raised"}:
            self.peak_bytes = max(self.peak_bytes, peak_bytes(sandbox.pid))
            self.usual_calls = invocation.calls
        texts.write(log, texts.report(invocation.request_id, end, payload, duration_s))
        name = self.spec.name
        told = Ended(
            invocation.request_id, name, end, payload, cold, duration_s, log, invocation.calls,
            sandbox.init_fault is not None,
        )  # fmt: skip
        self.tell(told)
        invocation.on_end(told)
        if end != "returned" and invocation.queued_ms is not None:
            self._try_again(invocation)
        if self._waiting and not self._is_full():
            self._from_queue(self._waiting.popleft())

    def _give_up(self, invocation: Invocation, why: str) -> None:
        self.tell(GivenUp(invocation.request_id, self.spec.name, invocation.event, why))

    def _from_queue(self, invocation: Invocation) -> None:
        if self._is_closed:
            return
        if self._age_s(invocation) > self.spec.max_event_age_s:
            self._give_up(invocation, "EventAgeExceeded")
        elif self._is_full():
            self._waiting.append(invocation)
        else:
            self._start(invocation)

    def _is_full(self) -> bool:
        reserved = self.spec.concurrency
        limit = MOST_SANDBOXES if reserved is None else min(reserved, MOST_SANDBOXES)
        return len(self._busy) >= limit

    def _age_s(self, invocation: Invocation) -> float:
        queued_ms = invocation.queued_ms or self.engine.clock.now_ms()
        return (self.engine.clock.now_ms() - queued_ms) / 1000

    def _try_again(self, invocation: Invocation) -> None:
        if invocation.attempt > self.spec.retries:
            self._give_up(invocation, "RetriesExhausted")
            return
        wait_s = RETRY_DELAYS_S[min(invocation.attempt, len(RETRY_DELAYS_S)) - 1]
        if self._age_s(invocation) + wait_s > self.spec.max_event_age_s:
            self._give_up(invocation, "EventAgeExceeded")
            return
        again = Invocation(
            invocation.request_id,
            invocation.event,
            invocation.trace,
            invocation.queued_ms,
            invocation.attempt + 1,
        )
        self.engine.after(wait_s, lambda: self._from_queue(again))

    def _start(self, invocation: Invocation) -> None:
        self._count += 1
        invocation.log = self.logs / f"{self._count:04}-{invocation.request_id}.log"
        invocation.fate = self._draw_fate(self, invocation)
        self.tell(
            Started(invocation.request_id, self.spec.name, invocation.event, invocation.attempt)
        )
        sandbox = self._take(invocation.log)
        invocation.sandbox = sandbox
        sandbox.work_on(invocation)

    def _take(self, log: Path) -> Sandbox:
        """Return a warm sandbox, or start one. Code that was changed needs a fresh one."""
        with self._lock:
            outdated = [one for one in self._idle if one.is_outdated()]
            self._idle = [one for one in self._idle if one not in outdated]
            sandbox = self._idle.pop() if self._idle else None
        for old in outdated:
            old.end()
        if sandbox is None:
            self._made += 1
            name = f"{self.spec.name}@{self._made}"
            sandbox = Sandbox(self, name, log)
        with self._lock:
            self._busy.append(sandbox)
        return sandbox
