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
import sys
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
_HAND_OVER_S = 1.0
"""How long, on the machine's clock, who lets a lock go stands still for who waited for it."""
_LOOK_S = 0.002


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
        self._turns: set[threading.Thread] = set()
        """Who runs: the sandbox stands still when none of them does."""
        self._awake: list[threading.Thread] = []
        """Who goes on beside them, since what it waited for has happened: it is given a turn."""
        self._waiting: dict[object, list[threading.Thread]] = {}
        self._resting: set[threading.Thread] = set()
        """Threads that sleep, or that wait for one that does."""
        self._calling: set[threading.Thread] = set()
        """Threads that wait for AWS: the cloud lets the sandbox run when it answers."""
        self._listener: threading.Thread | None = None
        self._wait_for_real = threading.Event.wait
        self._allocate = threading.Lock

    def connect(self, channel: Channel, sandbox: str) -> None:
        """Let the cloud wake what sleeps here; its calls are known by the sandbox's name."""
        self._channel = channel
        self.sandbox = sandbox
        channel.receive, channel.begin = self._next_invocation, self._begin
        self._listener = threading.Thread(
            target=self._listen, name="anarchon-local", daemon=True
        )  # fmt: skip
        self._start_thread(self._listener)

    def _next_invocation(self) -> dict[str, Any] | None:
        me = threading.current_thread()
        self._gives_up_turn(me)
        self._settle(me)
        message = self._invocations.get()
        self._turns.add(me)
        return message

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
        self._patch_waits()
        self._patch_calls()

    def _patch_threads(self) -> None:
        simulation, wait_for_real = self, self._wait_for_real
        start = self._start_thread = threading.Thread.start
        run = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

        def wait(event: threading.Event, timeout: float | None = None) -> bool:
            if event.is_set():
                return True
            if timeout is None:
                return simulation._block(lambda look_s: wait_for_real(event, look_s), event)
            return simulation._wait(event, timeout)

        def start_and_settle(thread: threading.Thread) -> None:
            settled = thread._anarchon_settled = threading.Event()  # type: ignore[attr-defined]
            start(thread)
            wait_for_real(settled, _SETTLE_S)

        def bootstrap(thread: threading.Thread) -> None:
            run(thread)
            simulation._let_go_on(thread)
            simulation._settle(thread)
            if simulation._gives_up_turn(thread):
                simulation._send({"idle": True})

        for owner, name, patched in (
            (threading.Event, "wait", wait),
            (threading.Thread, "start", start_and_settle),
            (threading.Thread, "_bootstrap_inner", bootstrap),
            (concurrent.futures.thread, "ThreadPoolExecutor", InOrder),
            (concurrent.futures, "ThreadPoolExecutor", InOrder),
        ):
            setattr(owner, name, patched)

    def _make_lock(self) -> Any:
        """Return a lock that time passes for; the standard library's own are left alone."""
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        is_own = caller.partition(".")[0] in sys.stdlib_module_names - {"__main__"}
        return self._allocate() if is_own else Lock(self, self._allocate())

    def _patch_waits(self) -> None:
        """Let time pass for who waits for a thread that sleeps."""
        simulation, join, really_set = self, threading.Thread.join, threading.Event.set

        def wait_for_end(thread: threading.Thread, timeout: float | None = None) -> None:
            def is_over(look_s: float) -> bool:
                join(thread, look_s)
                return not thread.is_alive()

            if timeout is not None or thread is threading.current_thread():
                join(thread, timeout)
            else:
                simulation._block(is_over, thread, thread)

        def set_event(event: threading.Event) -> None:
            simulation._let_go_on(event)
            really_set(event)

        setattr(threading, "Lock", self._make_lock)  # noqa: B010
        setattr(threading.Thread, "join", wait_for_end)  # noqa: B010
        setattr(threading.Event, "set", set_event)  # noqa: B010

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
            me = threading.current_thread()
            simulation._calling.add(me)
            try:
                return send(session, request)
            finally:
                simulation._calling.discard(me)

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
        thread = threading.current_thread()
        parks = self._gives_up_turn(thread)
        self._send({"sleep": max(timeout_s, 0), "number": number, "parks": parks})
        self._waiting.setdefault(event, []).append(thread)
        self._come_to_rest(thread)
        condition: threading.Condition = event._cond  # type: ignore[attr-defined]
        with condition:
            while not (event.is_set() or sleeper.is_woken):
                condition.wait()
        del self._sleepers[number]
        self._forget(event, thread)
        if sleeper.is_woken:
            self._resting.discard(thread)
            self._turns.add(thread)
        else:
            self._go_on(thread)
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

    def _gives_up_turn(self, me: threading.Thread) -> bool:
        """Tell whether the sandbox stands still when a thread does: nobody else is to go on."""
        if me in self._awake:
            self._awake.remove(me)
        if me not in self._turns:
            return False
        self._turns.remove(me)
        if self._awake:
            self._turns.add(self._awake.pop(0))
        return self._turns <= self._calling

    def _come_to_rest(self, thread: threading.Thread) -> None:
        self._resting.add(thread)
        self._settle(thread)

    def _go_on(self, thread: threading.Thread) -> None:
        if thread in self._resting:
            self._resting.remove(thread)
            self._awake.append(thread)

    def _let_go_on(self, what: object) -> None:
        """Say that those who wait for something are about to have it, before they know it."""
        for thread in self._waiting.get(what, ()):
            self._go_on(thread)

    def _forget(self, what: object, thread: threading.Thread) -> None:
        self._waiting[what].remove(thread)
        if not self._waiting[what]:
            del self._waiting[what]

    def _block(
        self,
        attempt: Callable[[float], bool],
        what: object,
        whom: threading.Thread | None = None,
    ) -> bool:
        """Wait for what another thread does; time may pass once that one sleeps.

        Parameters
        ----------
        attempt : callable
            Waits some seconds of the machine's clock; True if what it waits for has happened.
        what : object
            What is waited for: the one who does it calls ``_let_go_on`` with it.
        whom : Thread, optional
            Who is waited for; any other thread if not known.
        """
        me, has_rested = threading.current_thread(), False
        self._waiting.setdefault(what, []).append(me)
        try:
            while not attempt(_LOOK_S):
                if not has_rested and self._is_at_rest(whom, me):
                    has_rested = True
                    parks = self._gives_up_turn(me)
                    self._come_to_rest(me)
                    if parks:
                        self._send({"idle": True})
        finally:
            self._forget(what, me)
            self._go_on(me)
        return True

    def _is_at_rest(self, whom: threading.Thread | None, me: threading.Thread) -> bool:
        others = [whom] if whom is not None else [
            thread for thread in threading.enumerate() if thread not in {me, self._listener}
        ]  # fmt: skip
        return bool(others) and self._resting | self._calling >= set(others)

    def _settle(self, thread: threading.Thread) -> None:
        settled = getattr(thread, "_anarchon_settled", None)
        if settled is not None:
            settled.set()


class _Sleeper:
    """A thread that waits for an event, or for its time."""

    def __init__(self, event: threading.Event) -> None:
        self.event = event
        self.is_woken = False


class Lock:
    """A lock whose holder may sleep on the simulated clock: who waits for it lets time pass.

    Who lets it go stands still until the one who waited has come to rest in its turn, so that of
    the threads of a sandbox one runs at a time.
    """

    def __init__(self, simulation: Simulation, inner: Any) -> None:
        self._simulation = simulation
        self._inner = inner
        self._holder: threading.Thread | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        """Take it, as a lock of the standard library is taken."""
        taken: bool = self._inner.acquire(False)  # noqa: FBT003
        if not taken and blocking:
            taken = self._wait() if timeout < 0 else self._inner.acquire(timeout=timeout)
        if taken:
            self._holder = threading.current_thread()
        return taken

    def _wait(self) -> bool:
        return self._simulation._block(
            lambda look_s: bool(self._inner.acquire(timeout=look_s)), self, self._holder
        )

    def release(self) -> None:
        """Let it go, and who waits for it run."""
        simulation, self._holder = self._simulation, None
        rested = [one for one in simulation._waiting.get(self, ()) if one in simulation._resting]
        if not rested:
            self._inner.release()
            return
        settled = threading.Event()
        setattr(rested[0], "_anarchon_settled", settled)  # noqa: B010
        simulation._go_on(rested[0])
        self._inner.release()
        simulation._wait_for_real(settled, _HAND_OVER_S)

    def locked(self) -> bool:
        """Tell whether somebody holds it."""
        return bool(self._inner.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


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
