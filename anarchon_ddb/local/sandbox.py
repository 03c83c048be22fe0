"""A Lambda sandbox: the child process that imports a handler once and works on its invocations.

Run by the local cloud as ``python -m anarchon_ddb.local.sandbox serve FD HANDLER``; with ``fork``
it imports the handler and forks sandboxes from itself, for a simulated cloud. The cloud writes one
JSON line for each invocation on the socket FD and gets one back; it kills this process when the
deadline passes. Its output goes to the log file that the invocation names.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from anarchon_ddb.local.clock import OffsetClock

    Handler = Callable[[Any, Any], Any]

CLOCK_SETTING = "_ANARCHON_LOCAL_CLOCK"
"""Names the file of the simulated clock, if there is one."""


class Context:
    """What a handler gets as its second argument, as Lambda's own runtime makes it."""

    identity = None
    client_context = None
    clock: OffsetClock  # only where the cloud's clock is not the machine's

    def __init__(self, message: dict[str, Any]) -> None:
        environ = os.environ
        self.aws_request_id: str = message["request_id"]
        self.invoked_function_arn: str = message["arn"]
        self.function_name = environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.memory_limit_in_mb = environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.log_group_name = environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self._deadline_ms: int = message["deadline_ms"]
        if message["clock_offset_ms"]:
            from anarchon_ddb.local.clock import OffsetClock  # noqa: PLC0415  not for plain jobs

            self.clock = OffsetClock(message["clock_offset_ms"])

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until this process is killed."""
        return max(0, self._deadline_ms - time.time_ns() // 1_000_000)

    def log(self, message: str) -> None:
        """Write to the log, as Lambda's context can."""
        sys.stdout.write(str(message))


class Channel:
    """The socket to the cloud. Any thread may speak; the main thread listens."""

    def __init__(self, channel: socket.socket) -> None:
        self._lines = channel.makefile("rwb")
        self._lock = threading.Lock()
        self.receive = self.read
        self.begin: Callable[[dict[str, Any]], None] = lambda _message: None

    def send(self, message: dict[str, Any]) -> None:
        """Send one message, behind all that was printed."""
        sys.stdout.flush()
        sys.stderr.flush()
        with self._lock:
            self._lines.write(json.dumps(message).encode() + b"\n")
            self._lines.flush()

    def read(self) -> dict[str, Any] | None:
        """Return the next message; None when the cloud is gone."""
        line = self._lines.readline()
        message: dict[str, Any] | None = json.loads(line) if line else None
        return message


def main() -> None:
    """Import the handler, say so, and serve until the cloud closes the socket."""
    how, descriptor, name = sys.argv[1:]
    # A process that the handler starts must not keep the socket open.
    os.set_inheritable(int(descriptor), False)  # noqa: FBT003
    with socket.socket(fileno=int(descriptor)) as connected:
        channel = Channel(connected)
        if CLOCK_SETTING in os.environ:
            from anarchon_ddb.local import simulated  # noqa: PLC0415  not for plain jobs

            simulated.patch(os.environ[CLOCK_SETTING])
            if how == "fork":
                _fork(_import(name, channel), connected)
                return
            simulated.connect(channel, os.environ["AWS_ACCESS_KEY_ID"])
        handler = _import(name, channel)
        channel.send({"ready": True})
        _serve(handler, channel)


def _serve(handler: Handler, channel: Channel) -> None:
    """Work on one invocation after the other."""
    while (message := channel.receive()) is not None:
        _write_to(message["log"])
        os.environ["_X_AMZN_TRACE_ID"] = message["trace"]
        channel.begin(message)
        channel.send(_run(handler, message))


def _fork(handler: Handler, connected: socket.socket) -> None:
    """Fork a sandbox for each request, and reap it when that is asked for."""
    answer: dict[str, Any] = {"forks": threading.active_count() == 1}
    while True:
        connected.sendall(json.dumps(answer).encode())
        request, descriptors, _, _ = socket.recv_fds(connected, 1 << 16, 1)
        if not request:
            return
        message = json.loads(request)
        if "reap" in message:
            answer = {"code": os.waitstatus_to_exitcode(os.waitpid(message["reap"], 0)[1])}
            continue
        pid = os.fork()
        if pid == 0:
            connected.close()
            _be_forked(handler, descriptors[0], message)
        os.close(descriptors[0])
        answer = {"pid": pid}


def _be_forked(handler: Handler, descriptor: int, message: dict[str, Any]) -> NoReturn:
    """Serve as a sandbox of its own, and end."""
    from anarchon_ddb.local import simulated  # noqa: PLC0415

    os.setsid()
    os.set_inheritable(descriptor, False)  # noqa: FBT003
    _write_to(message["log"])
    with socket.socket(fileno=descriptor) as connected:
        channel = Channel(connected)
        simulated.connect(channel, message["fork"])
        channel.send({"ready": True})
        _serve(handler, channel)
    os._exit(0)


def _import(name: str, channel: Channel) -> Handler:
    """Import the handler; the cloud is told, also if that fails."""
    sys.path.insert(0, str(os.environ["LAMBDA_TASK_ROOT"]))
    module, _, attribute = name.rpartition(".")
    try:
        handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), attribute)
    except BaseException as error:  # noqa: BLE001  the cloud is told
        traceback.print_exc()
        channel.send(_init_fault(error, module, attribute))
        raise SystemExit(1) from None
    return handler


def _init_fault(error: BaseException, module: str, attribute: str) -> dict[str, Any]:
    fault = _fault(error)
    if isinstance(error, ImportError):
        fault["errorType"] = "Runtime.ImportModuleError"
        fault["errorMessage"] = f"Unable to import module '{module}': {error}"
    elif isinstance(error, AttributeError) and f"has no attribute '{attribute}'" in str(error):
        fault["errorType"] = "Runtime.HandlerNotFound"
        fault["errorMessage"] = f"Handler '{attribute}' missing on module '{module}'"
    return {"error": fault}


def _run(handler: Handler, message: dict[str, Any]) -> dict[str, Any]:
    try:
        result = handler(message["event"], Context(message))
    except SystemExit as stop:
        _exit(stop)
    except BaseException as error:  # noqa: BLE001  the cloud is told
        traceback.print_exc()
        return {"error": _fault(error)}
    try:
        return {"result": json.loads(json.dumps(result))}
    except (TypeError, ValueError) as error:
        text = f"Unable to marshal response: {error}"
        return {"error": {"errorType": "Runtime.MarshalError", "errorMessage": text}}


def _exit(stop: SystemExit) -> NoReturn:
    """End as the handler asked: with its code, before the cloud sees the socket closed."""
    if stop.code is not None and not isinstance(stop.code, int):
        sys.stderr.write(f"{stop.code}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(stop.code if isinstance(stop.code, int) else int(stop.code is not None))


def _fault(error: BaseException) -> dict[str, Any]:
    """Return an error as Lambda's Python runtime answers it."""
    return {
        "errorMessage": str(error),
        "errorType": type(error).__name__,
        "stackTrace": traceback.format_tb(error.__traceback__),
    }


def _write_to(path: str) -> None:
    """Send what is printed from now on, also by other programs, to a log file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


if __name__ == "__main__":
    main()
