"""Lambda, played: functions, their warm sandboxes, their asynchronous queues, and the deadline.

A sandbox is a child process that is reused while it is warm; two invocations at once need two. At
the deadline the child is killed with SIGKILL, as on AWS: nothing in it gets to clean up.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from anarchon_ddb.clock import SYSTEM_CLOCK
from anarchon_ddb.local.process import Child, ChildExitedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from anarchon_ddb.local.clock import OffsetClock
    from anarchon_ddb.local.stack import FunctionSpec

_log = logging.getLogger(__name__)

INIT_TIMEOUT_S = 10.0
"""Lambda's limit for importing a handler."""

QUEUE_DELAY_S = 0.05
"""An event waits a little in Lambda's queue, so the sandbox of a function that invoked itself has
mostly answered by then, and is reused."""

CONCURRENCY = 8
"""Queued events of one function that are worked on at once. The machine's limit, not Lambda's."""

End = Literal["returned", "raised", "timed_out", "exited"]
Fault = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Started:
    """An invocation was handed to a function."""

    request_id: str
    function: str
    event: Any


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


@dataclass(slots=True)
class _Sandbox:
    child: Child
    cold: bool = True


class CloudClosedError(Exception):
    """The cloud is being closed: no invocation begins any more."""


class _InitError(Exception):
    """The handler could not be imported."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.get("errorMessage"))
        self.fault = fault


class Function:
    """One Lambda function.

    Parameters
    ----------
    spec : FunctionSpec
        As the template has it.
    environment : mapping
        All of its processes' environment.
    logs : Path
        The directory of its log files, one for each invocation.
    clock : OffsetClock
        The cloud's clock; its offset goes along with each invocation.
    tell : callable
        Called with ``Started`` and ``Ended``, from the thread that runs the invocation.
    """

    def __init__(
        self,
        spec: FunctionSpec,
        environment: Mapping[str, str],
        *,
        logs: Path,
        clock: OffsetClock,
        tell: Callable[[Started | Ended], None],
    ) -> None:
        self.spec = spec
        self.environment = dict(environment)
        self._logs = logs
        self._clock = clock
        self._tell = tell
        self._lock = threading.Lock()
        self._idle: list[_Sandbox] = []  # the one that was used last at the end
        self._busy: list[_Sandbox] = []
        self._count = 0
        self._is_closed = False
        self._queue = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix=spec.name)
        logs.mkdir(parents=True, exist_ok=True)

    def send(self, event: Any) -> str:
        """Put an event into the asynchronous queue; return the id of its invocation."""
        request_id = str(uuid4())
        self._queue.submit(self._from_queue, event, request_id)
        return request_id

    def invoke(self, event: Any, request_id: str | None = None) -> Ended:
        """Run an invocation and wait for its end.

        Raises
        ------
        CloudClosedError
            If the function was closed.
        """
        request_id = request_id or str(uuid4())
        with self._lock:
            self._count += 1
            log = self._logs / f"{self._count:04}-{request_id}.log"
        self._tell(Started(request_id, self.spec.name, event))
        ended = self._run(event, request_id, log)
        self._tell(ended)
        return ended

    def kill_running(self) -> int:
        """Send SIGKILL to the sandboxes that work at this moment; return how many there were."""
        with self._lock:
            busy = list(self._busy)
        for sandbox in busy:
            sandbox.child.kill()
        return len(busy)

    def pids(self) -> list[int]:
        """Return the process ids of all sandboxes, idle and busy."""
        with self._lock:
            return [sandbox.child.pid for sandbox in (*self._idle, *self._busy)]

    def close(self) -> None:
        """End every sandbox, and wait until no invocation is left."""
        with self._lock:
            self._is_closed = True
        self._queue.shutdown(wait=False, cancel_futures=True)
        self.kill_running()
        self._queue.shutdown(wait=True)
        with self._lock:
            left = [*self._idle, *self._busy]
            self._idle = []
        for sandbox in left:
            sandbox.child.end()

    def _from_queue(self, event: Any, request_id: str) -> None:
        time.sleep(QUEUE_DELAY_S)
        try:
            self.invoke(event, request_id)
        except CloudClosedError:
            pass  # dropped, as the rest of the queue
        except Exception:  # noqa: BLE001  told, and the next event is worked on
            # Nobody waits for this thread's result.
            _log.exception("%s: invocation %s", self.spec.name, request_id)

    def _run(self, event: Any, request_id: str, log: Path) -> Ended:
        sandbox = self._take(log)
        cold, sandbox.cold = sandbox.cold, False
        started_s = time.monotonic()
        end: End
        payload: Any
        try:
            if cold:
                _wait_for_init(sandbox.child)
                started_s = time.monotonic()
            answer = self._ask(sandbox.child, event, request_id, log)
        except _InitError as error:
            end, payload = "raised", error.fault
            self._drop(sandbox)
        except TimeoutError:
            end, payload = "timed_out", _timed_out(request_id, self.spec.timeout_s)
            self._drop(sandbox)
        except ChildExitedError as error:
            end, payload = "exited", _exited(request_id, error.code)
            self._drop(sandbox)
        else:
            end = "raised" if "error" in answer else "returned"
            payload = answer.get("error", answer.get("result"))
            self._keep(sandbox)
        duration_s = time.monotonic() - started_s
        _write(log, _report(request_id, end, payload, duration_s))
        return Ended(request_id, self.spec.name, end, payload, cold, duration_s, log)

    def _ask(self, child: Child, event: Any, request_id: str, log: Path) -> dict[str, Any]:
        timeout_s = self.spec.timeout_s
        _write(log, f"START RequestId: {request_id} Version: $LATEST\n")
        message = {
            "request_id": request_id,
            "arn": self.spec.arn,
            "event": event,
            "deadline_ms": SYSTEM_CLOCK.now_ms() + round(timeout_s * 1000),
            "clock_offset_ms": self._clock.offset_ms,
            "log": str(log),
        }
        return child.ask(message, timeout_s)

    def _take(self, log: Path) -> _Sandbox:
        """Return a warm sandbox, or start one."""
        with self._lock:
            if self._is_closed:
                raise CloudClosedError(self.spec.name)
            if self._idle:
                sandbox = self._idle.pop()
            else:
                spec = self.spec
                sandbox = _Sandbox(Child(spec.handler, spec.code, self.environment, log))
            self._busy.append(sandbox)
            return sandbox

    def _keep(self, sandbox: _Sandbox) -> None:
        with self._lock:
            self._busy.remove(sandbox)
            self._idle.append(sandbox)

    def _drop(self, sandbox: _Sandbox) -> None:
        sandbox.child.end()
        with self._lock:
            self._busy.remove(sandbox)


def _wait_for_init(child: Child) -> None:
    """Wait until the child has imported the handler. It does not count for the deadline."""
    try:
        answer = child.receive(INIT_TIMEOUT_S)
    except TimeoutError:
        text = f"Init took longer than {INIT_TIMEOUT_S:.0f} s"
        raise _InitError({"errorType": "Sandbox.Timedout", "errorMessage": text}) from None
    if "error" in answer:
        raise _InitError(answer["error"])


# What Lambda answers and logs; the texts are AWS's own.


def _timed_out(request_id: str, timeout_s: float) -> Fault:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    text = f"{now}Z {request_id} Task timed out after {timeout_s:.2f} seconds"
    return {"errorType": "Sandbox.Timedout", "errorMessage": text}


def _exited(request_id: str, code: int) -> Fault:
    how = f"signal: {-code}" if code < 0 else f"exit status {code}"
    if code == -9:
        how = "signal: killed"
    text = f"RequestId: {request_id} Error: Runtime exited with error: {how}"
    return {"errorType": "Runtime.ExitError", "errorMessage": text}


def _report(request_id: str, end: End, payload: Any, duration_s: float) -> str:
    lines = [f"END RequestId: {request_id}"]
    if end in {"timed_out", "exited"}:
        lines.insert(0, str(payload["errorMessage"]))
    lines.append(f"REPORT RequestId: {request_id}\tDuration: {duration_s * 1000:.2f} ms")
    lines.append(f"RESULT {end} {json.dumps(payload)}")
    return "\n".join(lines) + "\n"


def _write(log: Path, text: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(text)
