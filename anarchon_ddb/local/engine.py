"""The order in which things happen: one thread does them all, each when its time has come.

``LiveEngine`` waits for the machine's clock. ``SimulatedEngine`` lets the time jump to the next
thing to do, and lets one sandbox at most run at a time: until it calls AWS, sleeps or answers. What
happens then depends on the seed and on the code that is played, not on how fast the machine is.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from anarchon_ddb.local.clock import OffsetClock, SimulatedClock

    Action = Callable[[], Any]

_log = logging.getLogger(__name__)

LONGEST_WAIT_S = 60.0
"""How long a simulation waits, on the machine's clock, for a sandbox that computes."""


@dataclass(order=True, slots=True)
class Timer:
    """Something to do at a time of the cloud's clock."""

    due_ms: int
    number: int
    action: Action = field(compare=False)
    is_cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Do nothing when the time comes."""
        self.is_cancelled = True


class Runner(Protocol):
    """What a simulation lets run: a sandbox."""

    patience_s: float

    def overdue(self) -> None:
        """End it: it neither answered nor called within its patience."""
        ...


class Engine:
    """What both engines have: an inbox for other threads, and timers for the engine's own."""

    is_simulated: bool

    def __init__(self, clock: OffsetClock | SimulatedClock) -> None:
        self.clock = clock
        self._inbox: queue.SimpleQueue[Action] = queue.SimpleQueue()
        self._timers: list[Timer] = []
        self._numbers = itertools.count()
        self.is_stopped = False
        self._thread = threading.Thread(target=self._work, name="local-cloud", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the action in hand."""
        self.is_stopped = True
        self.post(lambda: None)
        if self._thread.ident is not None:
            self._thread.join()

    def post(self, action: Action) -> None:
        """Let the engine's thread do something as soon as it can; from any thread."""
        self._inbox.put(action)

    def ask(self, action: Callable[[], Any]) -> Any:
        """Do something in the engine's thread and return what it gives; from another thread."""
        answer: Future[Any] = Future()

        def do() -> None:
            try:
                answer.set_result(action())
            except BaseException as error:  # noqa: BLE001  raised where it was asked
                answer.set_exception(error)

        self.post(do)
        return answer.result()

    def at(self, due_ms: int, action: Action) -> Timer:
        """Do something at a time; in the engine's thread only."""
        timer = Timer(due_ms, next(self._numbers), action)
        heapq.heappush(self._timers, timer)
        return timer

    def after(self, seconds: float, action: Action) -> Timer:
        """Do something some time from now."""
        return self.at(self.clock.now_ms() + round(seconds * 1000), action)

    def let_run(self, runner: Runner) -> None:
        """Say that a sandbox was given something to do."""

    def parked(self, runner: Runner) -> None:
        """Say that a sandbox waits for something, or has ended."""

    def _work(self) -> None:
        while not self.is_stopped:
            action = self._next()
            if action is None:
                continue
            try:
                action()
            except Exception:  # noqa: BLE001  told, and the rest of the cloud goes on
                _log.exception("The local cloud")

    def _next(self) -> Action | None:
        raise NotImplementedError

    def _first(self) -> Timer | None:
        while self._timers and self._timers[0].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0] if self._timers else None

    def _received(self, timeout_s: float | None) -> Action | None:
        try:
            if timeout_s is not None and timeout_s <= 0:
                return self._inbox.get_nowait()
            return self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None


class LiveEngine(Engine):
    """On the machine's clock: sandboxes run at the same time, as on AWS."""

    is_simulated = False

    def _next(self) -> Action | None:
        timer = self._first()
        wait_s = None if timer is None else (timer.due_ms - self.clock.now_ms()) / 1000
        received = self._received(wait_s)
        if received is not None or timer is None or timer.due_ms > self.clock.now_ms():
            return received
        heapq.heappop(self._timers)
        return timer.action


class SimulatedEngine(Engine):
    """On a simulated clock, which moves when nothing is left to do at its time.

    Parameters
    ----------
    speed : float, optional
        At most so many simulated seconds in a real one; as fast as possible if not given.
    """

    is_simulated = True
    clock: SimulatedClock

    def __init__(self, clock: SimulatedClock, speed: float | None = None) -> None:
        super().__init__(clock)
        self._speed = speed
        self._limit_ms = clock.now_ms()
        self._arrived = threading.Event()
        self._running: Runner | None = None
        self._began = (time.monotonic(), clock.now_ms())

    def play_until(self, limit_ms: int, is_over: Callable[[], bool]) -> None:
        """Let the time pass until an instant, or until nobody wants it any more.

        Parameters
        ----------
        is_over : callable
            Asked now and then, in the caller's thread.
        """
        self._arrived.clear()
        self.post(lambda: self._allow(limit_ms))
        while not self._arrived.wait(0.1):
            if is_over():
                self.post(lambda: self._allow(self.clock.now_ms()))
                self._arrived.wait(0.2)  # a handler that hangs is not waited for
                return

    def let_run(self, runner: Runner) -> None:
        """Wait for this sandbox before anything else is done."""
        self._running = runner

    def parked(self, runner: Runner) -> None:
        """Wait for it no longer."""
        if self._running is runner:
            self._running = None

    def _allow(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._began = (time.monotonic(), self.clock.now_ms())

    def _next(self) -> Action | None:
        running = self._running
        if running is not None:
            return self._received(running.patience_s) or running.overdue
        received = self._received(0)
        if received is not None:
            return received
        timer = self._first()
        if timer is None or timer.due_ms > self._limit_ms:
            self.clock.move_to(self._limit_ms)
            self._arrived.set()
            return self._received(None)
        wait_s = self._ahead_s(timer.due_ms)
        if wait_s > 0:
            return self._received(wait_s)
        heapq.heappop(self._timers)
        self.clock.move_to(timer.due_ms)
        return timer.action

    def _ahead_s(self, due_ms: int) -> float:
        """Return how long to wait for real, so as to be no faster than was asked for."""
        if self._speed is None:
            return 0
        began_s, from_ms = self._began
        return began_s + (due_ms - from_ms) / 1000 / self._speed - time.monotonic()
