"""Simulated time inside a sandbox: the clock, sleeping, timed waits, and chance.

``time-machine`` gives the wall clock to all code, ``datetime.now()`` included. Sleeping and timed
waits ask the cloud to be woken at a simulated time. Random numbers come from a seed, and a thread
pool does its work in the order in which it was given: what happens is the same each time.
"""

from __future__ import annotations

import concurrent.futures.thread
import itertools
import os
import queue
import random
import threading
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import time_machine

from anarchon_ddb.local.clock import SharedClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from anarchon_ddb.local.sandbox import Channel

SANDBOX_HEADER = "X-Anarchon-Sandbox"

_PATIENCE_S = 3_600
_SETTLE_S = 0.05
"""How long the start of a thread waits for it to wait: what it does first then has its place."""


class Simulation:
    """What a sandbox of a simulated cloud has in place of the machine's time.

    Parameters
    ----------
    clock : str
        The path of the simulated clock.
    """

    def __init__(self, clock: str) -> None:
        self.sandbox = ""
        self._channel: Channel | None = None
        self._clock = SharedClock(Path(clock))
        self._invocations: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._sleepers: dict[int, _Sleeper] = {}
        self._turn = threading.local()
        self._wait_for_real = threading.Event.wait

    def connect(self, channel: Channel, sandbox: str) -> None:
        """Let the cloud wake what sleeps here; its calls are known by the sandbox's name."""
        self._channel = channel
        self.sandbox = sandbox
        channel.receive, channel.begin = self._invocations.get, self._begin
        listener = threading.Thread(target=self._listen, name="anarchon-local", daemon=True)
        self._start_thread(listener)

    def _begin(self, message: dict[str, Any]) -> None:
        """Let chance begin anew for an invocation."""
        chance = random.Random(message["seed"])  # noqa: S311  repeatable, not secret
        random.seed(chance.random())
        os.urandom = chance.randbytes

    def _listen(self) -> None:
        channel = self._channel
        while channel is not None and (message := channel.read()) is not None:
            if "wake" in message:
                self._wake(message["wake"])
            else:
                self._invocations.put(message)
        self._invocations.put(None)

    def _send(self, message: dict[str, Any]) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _now_ns(self) -> int:
        return self._clock.now_ms() * 1_000_000

    def patch(self) -> None:
        """Put simulated time and repeatable chance in the place of the machine's."""
        traveller = time_machine.travel(self._clock.now_ms() / 1000, tick=False).start()
        setattr(traveller, "time_ns", self._now_ns)  # noqa: B010  read anew at each question
        replaced: dict[str, Callable[..., Any]] = {
            "sleep": self._sleep,
            "monotonic_ns": self._now_ns,
            "perf_counter_ns": self._now_ns,
            "monotonic": lambda: self._now_ns() / 1e9,
            "perf_counter": lambda: self._now_ns() / 1e9,
        }
        for name, function in replaced.items():
            setattr(time, name, function)
        self._patch_threads()
        self._patch_calls()

    def _patch_threads(self) -> None:
        simulation, wait_for_real = self, self._wait_for_real
        start = self._start_thread = threading.Thread.start
        run = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def wait(event: threading.Event, timeout: float | None = None) -> bool:
            if timeout is None or event.is_set():
                return wait_for_real(event, timeout)
            return simulation._wait(event, timeout)

        def start_and_settle(thread: threading.Thread) -> None:
            settled = thread._anarchon_settled = threading.Event()  # type: ignore[attr-defined]
            start(thread)
            wait_for_real(settled, _SETTLE_S)

        def bootstrap(thread: threading.Thread) -> None:
            run(thread)
            simulation._settle(thread)
            if simulation._has_turn():
                simulation._send({"idle": True})

        for owner, name, patched in (
            (threading.Event, "wait", wait),
            (threading.Thread, "start", start_and_settle),
            (threading.Thread, "_bootstrap_inner", bootstrap),
            (concurrent.futures.thread, "ThreadPoolExecutor", InOrder),
            (concurrent.futures, "ThreadPoolExecutor", InOrder),
        ):
            setattr(owner, name, patched)

    def _patch_calls(self) -> None:
        """Let no call time out on the machine's clock, and let each say who makes it."""
        try:
            from botocore.httpsession import URLLib3Session  # noqa: PLC0415
        except ImportError:
            return
        simulation, init, send = self, URLLib3Session.__init__, URLLib3Session.send

        def patient(session: Any, *args: Any, **settings: Any) -> None:
            init(session, *args, **{**settings, "timeout": _PATIENCE_S})

        def signed(session: Any, request: Any) -> Any:
            if simulation.sandbox:
                request.headers[SANDBOX_HEADER] = simulation.sandbox
            return send(session, request)

        setattr(URLLib3Session, "__init__", patient)  # noqa: B010
        setattr(URLLib3Session, "send", signed)  # noqa: B010

    def _sleep(self, seconds: float) -> None:
        """Wait on the simulated clock. The cloud lets other sandboxes run meanwhile."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._wait(threading.Event(), seconds)

    def _wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait for an event, or for a simulated time."""
        if self._channel is None:  # an import that sleeps, before there is a cloud to wake it
            return event.is_set()
        number = next(self._numbers)
        sleeper = self._sleepers[number] = _Sleeper(event)
        self._send({"sleep": max(timeout_s, 0), "number": number, "parks": self._has_turn()})
        self._turn.is_mine = False
        self._settle(threading.current_thread())
        condition: threading.Condition = event._cond  # type: ignore[attr-defined]
        with condition:
            while not (event.is_set() or sleeper.is_woken):
                condition.wait()
        del self._sleepers[number]
        if sleeper.is_woken:
            self._turn.is_mine = True
        else:
            self._send({"cancel": number})
        return event.is_set()

    def _wake(self, number: int) -> None:
        sleeper = self._sleepers.get(number)
        if sleeper is None:  # its event was set at the same moment
            self._send({"idle": True})
            return
        with sleeper.event._cond:  # type: ignore[attr-defined]
            sleeper.is_woken = True
            sleeper.event._cond.notify_all()  # type: ignore[attr-defined]

    def _has_turn(self) -> bool:
        """Tell whether the sandbox stands still when this thread does."""
        is_main = threading.current_thread() is threading.main_thread()
        return is_main or getattr(self._turn, "is_mine", False)

    def _settle(self, thread: threading.Thread) -> None:
        settled = getattr(thread, "_anarchon_settled", None)
        if settled is not None:
            settled.set()


class _Sleeper:
    """A thread that waits for an event, or for its time."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event
        self.is_woken = False


class InOrder(Executor):
    """A thread pool without threads: work is done when it is given."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._max_workers = 1

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it, and return what it gave or raised."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  raised where the result is asked for
            future.set_exception(error)
        return future


_simulation: Simulation | None = None


def patch(clock: str) -> None:
    """Simulate in this process, from now on."""
    global _simulation  # noqa: PLW0603  there is one, as there is one time
    _simulation = Simulation(clock)
    _simulation.patch()


def connect(channel: Channel, sandbox: str) -> None:
    """Let a cloud wake what sleeps in this process."""
    if _simulation is not None:
        _simulation.connect(channel, sandbox)
