"""A sandbox that can be killed: a child process that runs the job, and this side of its pipe.

The child is a fork, so that it has all that the test has set up. It waits for an answer before and
after each call to the world; a kill is a SIGKILL while it waits. So no ``finally``, no ``except
BaseException`` and no exit handler of it runs afterwards, ours included.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, Self

from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.httpsession import URLLib3Session

from anarchon_ddb.clock import from_ms
from anarchon_ddb.testing import inside, world
from anarchon_ddb.testing.inside import Order, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from anarchon_ddb.job import Job
    from anarchon_ddb.testing.clock import SettableClock

HANG_S = 60.0
"""Real seconds after which a job that calls nothing is given up."""


@dataclass(frozen=True, slots=True)
class Point:
    """An instant at which a job may be killed: before or after one of its calls."""

    phase: str
    """``before`` or ``after``."""
    call: str
    """The protocol's name of a write, such as ``save``; else the operation or function."""
    number: int
    """Which call of that name it is, counted over all invocations of the run, from 1."""
    target: str
    """What the call is about: a table, or a bucket and a key."""
    own: bool
    """The call is the package's, not the job's."""

    def __str__(self) -> str:
        """Return the point as ``kill_at`` takes it."""
        return f"{self.phase} {self.call} {self.number}"


Announced = tuple[str, str, str, bool]
"""Phase, call, target, own."""


class Sandbox:
    """A child process that makes one invocation after the other, until it is killed.

    Parameters
    ----------
    job : Job
        The handler.
    clock : SettableClock
        One for both processes: each message brings the time along.
    quiet : bool
        Drop what the job logs and prints.

    Raises
    ------
    RuntimeError
        Where processes can't be forked: on Windows.
    """

    def __init__(self, job: Job, clock: SettableClock, *, quiet: bool) -> None:
        if not hasattr(os, "fork"):
            raise RuntimeError("a job can be killed on Linux and macOS only: it needs os.fork")
        self._clock = clock
        self._connection, theirs = Pipe()
        self._pid = _fork()
        if self._pid == 0:
            self._be_the_child(theirs, job, quiet=quiet)
        theirs.close()
        self.is_alive = True

    def _be_the_child(self, theirs: Connection, job: Job, *, quiet: bool) -> None:
        try:
            self._connection.close()
            inside.serve(theirs, job, self._clock, quiet=quiet)
        except EOFError:
            pass  # the test is done with it
        except BaseException as error:  # noqa: BLE001  told to the test's process
            broken = Outcome("failed", f"the sandbox broke: {error!r}", invalid=True)
            theirs.send(("done", self._clock.now_ms(), (broken,)))
        finally:
            os._exit(0)  # nothing of the test's may run twice

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the child at the very point where it waits. Does nothing if it is dead."""
        if not self.is_alive:
            return
        self.is_alive = False
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._connection.close()

    def invoke(self, order: Order, is_killed_at: Callable[[Announced], bool]) -> Outcome:
        """Make one invocation.

        Parameters
        ----------
        order : Order
            The invocation.
        is_killed_at : callable
            Asked before and after each call: whether the sandbox is killed there.

        Returns
        -------
        Outcome
            ``killed`` if that was so, ``killed at its timeout`` if its time was over first.
        """
        deadline_ms = order.now_ms + order.timeout_ms
        self._connection.send(order)
        while True:
            try:
                kind, payload = self._receive()
            except EOFError:
                self.kill()
                return Outcome("killed", "the process of the job ended by itself")
            if kind == "done":
                outcome: Outcome = payload[0]
                return outcome
            if self._clock.now_ms() >= deadline_ms:
                self.kill()
                return Outcome("killed at its timeout")
            if kind in {"before", "after"} and is_killed_at((kind, *payload)):
                self.kill()
                return Outcome("killed")
            self._answer(kind, payload)

    def _receive(self) -> tuple[str, Any]:
        if not self._connection.poll(HANG_S):
            self.kill()
            raise TimeoutError(f"the job made no call for {HANG_S:.0f} s: it hangs")
        kind, now_ms, payload = self._connection.recv()
        self._clock.set(from_ms(now_ms))
        return kind, payload

    def _answer(self, kind: str, payload: Any) -> None:
        answer: object = None
        try:
            if kind == "http":
                answer = _send(*payload)
            elif kind == "outside":
                index, args, named = payload
                answer = world.FUNCTIONS[index](*args, **named)
        except Exception as error:  # noqa: BLE001  raised again in the child
            answer = error
        try:
            self._connection.send((self._clock.now_ms(), answer))
        except Exception as error:  # noqa: BLE001  whatever pickling it raises
            told = TypeError(f"{answer!r:.80} can't cross the pipe to the sandbox: {error}")
            self._connection.send((self._clock.now_ms(), told))


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns of threads at a fork: the child uses none of theirs, and ends by a kill.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


@cache
def _session() -> URLLib3Session:
    return URLLib3Session(timeout=10)


def _send(
    event_name: str, method: str, url: str, headers: list[tuple[str, Any]], body: Any
) -> tuple[int, dict[str, str], bytes]:
    """Send a request of the child: to moto if it is active in this process, else as it says."""
    sent: Any = HeadersDict(headers)
    request = AWSPreparedRequest(method, url, sent, body, False)  # noqa: FBT003
    models = sys.modules.get("moto.core.models")
    response = models.botocore_stubber(event_name, request=request) if models else None
    if response is None:
        response = _session().send(request)
    return response.status_code, dict(response.headers), response.content
