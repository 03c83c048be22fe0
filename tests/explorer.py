"""Run the real code step by step: at every store call another worker may go on, be killed, find
its lease run out, lose a reply, or meet a delayed copy of an older write.

An execution is a list of choices. Choice 0 goes on with the same worker; any other is a deviation.
All executions up to a number of deviations are run, each from the beginning (stateless search), so
the search is systematic and every finding is a list of numbers that repeats it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from anarchon_ddb.testing import SettableClock
from tests.twin import Twin

LEASE_AND_SKEW_S = 67
WRITES = frozenset({"UpdateItem", "TransactWriteItems"})


class Killed(BaseException):
    """A worker was killed: every further store call of it raises this, so it writes nothing."""


class ViolationError(AssertionError):
    """A promise was broken; the text has the choices that repeat it."""


@dataclass
class Budget:
    """How often each deviation may happen in one execution."""

    deviations: int = 2
    kills: int = 1
    expiries: int = 1
    lost_replies: int = 1
    copies: int = 1


class Worker:
    """One thread that stops before each store call until it is told to go on."""

    def __init__(self, name: str, script: Callable[[], Any], world: World) -> None:
        self.name = name
        self.world = world
        self.outcome: Any = None
        self.failure: BaseException | None = None
        self.is_done = False
        self.is_killed = False
        self.loses_reply = False
        self.next_call = ""
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._script = script
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._stopped.acquire()

    def step(self) -> None:
        """Let it make its next store call and come to the one after, or to its end."""
        self._go.release()
        self._stopped.acquire()

    def pause_here(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self.is_killed:
            raise Killed

    def kill(self) -> None:
        self.is_killed = True
        self.step()

    def _work(self) -> None:
        self.world.current.worker = self
        try:
            self.pause_here()
            self.outcome = self._script()
        except Killed:
            pass
        except BaseException as error:
            self.failure = error
        self.is_done = True
        self._stopped.release()


@dataclass
class World:
    """A table, a clock and the workers on them."""

    twin: Twin = field(default_factory=Twin)
    clock: SettableClock = field(default_factory=lambda: SettableClock("2026-11-29T12:00:05Z"))
    current: threading.local = field(default_factory=threading.local)
    workers: list[Worker] = field(default_factory=list)
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    checks: list[Callable[[], None]] = field(default_factory=list)
    end: Callable[[], None] = lambda: None

    @property
    def naming(self) -> str:
        """The name of the write that is being sent, as the scenario noted it."""
        return getattr(self.current, "write", "")

    def dispatch(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Stand in for the connection: stop before the call, then make it."""
        worker: Worker | None = getattr(self.current, "worker", None)
        if worker is None:
            return self.twin.dispatch(operation, request)
        if worker.is_killed:
            raise Killed
        worker.next_call = "read" if operation == "GetItem" else self.naming or operation
        worker.pause_here()
        if operation in WRITES:
            self.sent.append((f"{worker.name} {worker.next_call}", dict(request)))
        if worker.loses_reply and operation in WRITES:
            worker.loses_reply = False
            self.try_write(request)  # applied; the reply is lost and the SDK sends it again
        return self.twin.dispatch(operation, request)

    def try_write(self, request: dict[str, Any]) -> None:
        try:
            operation = "TransactWriteItems" if "TransactItems" in request else "UpdateItem"
            self.twin.dispatch(operation, request)
        except Exception as error:
            if "ConditionalCheckFailed" not in str(error):
                raise

    def add(self, name: str, script: Callable[[], Any]) -> None:
        self.workers.append(Worker(name, script, self))

    def check(self) -> None:
        for worker in self.workers:
            if worker.failure is not None:
                raise AssertionError(f"{worker.name}: {worker.failure!r}") from worker.failure
        for check in self.checks:
            check()


Option = tuple[str, Any]


def options(world: World, last: Worker | None, left: dict[str, int]) -> list[Option]:
    """List what may happen now; the first is what happens without a deviation."""
    alive = [worker for worker in world.workers if not worker.is_done]
    if last in alive:
        alive.remove(last)
        alive.insert(0, last)
    found: list[Option] = [("step", worker) for worker in alive]
    if alive and left["kills"]:
        found += [("kill", worker) for worker in alive]
    if alive and left["expiries"]:
        found.append(("expire", None))
    if alive and left["lost_replies"]:
        found.append(("lose", alive[0]))
    if alive and left["copies"]:
        found += [("copy", index) for index in range(len(world.sent))]
    return found


def perform(world: World, option: Option, left: dict[str, int]) -> Worker | None:
    """Do what was chosen; return the worker that goes on by default."""
    kind, subject = option
    if kind == "kill":
        left["kills"] -= 1
        subject.kill()
    elif kind == "expire":
        left["expiries"] -= 1
        world.clock.advance(seconds=LEASE_AND_SKEW_S)
    elif kind == "copy":
        left["copies"] -= 1
        world.try_write(world.sent[subject][1])
    else:
        if kind == "lose":
            left["lost_replies"] -= 1
            subject.loses_reply = True
        subject.step()
        return subject if isinstance(subject, Worker) else None
    return None


def execute(build: Callable[[], World], choices: list[int], budget: Budget) -> list[int]:
    """Run one execution; return how many options each step had.

    Raises
    ------
    ViolationError
        If a check failed after some step, or at the end.
    """
    world = build()
    left = {
        "kills": budget.kills,
        "expiries": budget.expiries,
        "lost_replies": budget.lost_replies,
        "copies": budget.copies,
    }
    for worker in world.workers:
        worker.start()
    widths: list[int] = []
    told: list[str] = []
    last: Worker | None = None
    try:
        while found := options(world, last, left):
            position = len(widths)
            choice = choices[position] if position < len(choices) else 0
            widths.append(len(found))
            kind, subject = found[choice]
            told.append(f"{kind} {getattr(subject, 'name', subject)}")
            moved = perform(world, found[choice], left)
            last = moved or last
            world.check()
    except AssertionError as error:
        raise ViolationError(f"{error}\nchoices {choices}\n{' · '.join(told)}") from error
    finally:
        for worker in world.workers:
            if not worker.is_done:
                worker.kill()
    try:
        world.end()
    except AssertionError as error:
        raise ViolationError(f"{error}\nchoices {choices}\n{' · '.join(told)}") from error
    return widths


def play(world: World, schedule: list[tuple[str, str]]) -> None:
    """Run one given execution, then everything else to its end.

    Each entry is a worker and the call that it comes to next (``end`` for its end), or ``copy``
    and the name of a write that was sent before, such as ``w1 pass``; or ``kill`` and a worker.
    """
    by_name = {worker.name: worker for worker in world.workers}
    for worker in world.workers:
        worker.start()
    try:
        for name, until in schedule:
            if name == "copy":
                request = next(request for sent, request in world.sent if sent == until)
                world.try_write(request)
            elif name == "kill":
                by_name[until].kill()
            else:
                _step_until(world, by_name[name], until)
            world.check()
        for worker in world.workers:
            _step_until(world, worker, "end")
    finally:
        for worker in world.workers:
            if not worker.is_done:
                worker.kill()
    world.end()


def _step_until(world: World, worker: Worker, call: str) -> None:
    while not worker.is_done and worker.next_call != call:
        worker.step()
        world.check()


def explore(
    build: Callable[[], World], budget: Budget, *, limit: int | None = None, seed: int = 7
) -> Iterator[list[int]]:
    """Run every execution within the budget, or so many of them; yield the choices of each.

    The order is shuffled, so that a limit cuts off no kind of deviation.
    """
    pending: list[list[int]] = [[]]
    count = 0
    shuffle = random.Random(seed)
    while pending and (limit is None or count < limit):
        index = shuffle.randrange(len(pending))
        pending[index], pending[-1] = pending[-1], pending[index]
        choices = pending.pop()
        widths = execute(build, choices, budget)
        yield choices
        count += 1
        if sum(choice > 0 for choice in choices) >= budget.deviations:
            continue
        for position in range(len(choices), len(widths)):
            prefix = choices + [0] * (position - len(choices))
            pending.extend([*prefix, choice] for choice in range(1, widths[position]))
