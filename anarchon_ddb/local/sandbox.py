"""A Lambda sandbox: the child process that imports a handler once and works on its invocations.

Run by the local cloud as ``python -m anarchon_ddb.local.sandbox FD HANDLER``. The cloud writes one
JSON line for each invocation on the socket FD and gets one back; it kills this process when the
deadline passes. Its output goes to the log file that the invocation names.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from anarchon_ddb.local.clock import OffsetClock

    Handler = Callable[[Any, Any], Any]


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


def main() -> None:
    """Import the handler, say so, and serve until the cloud closes the socket."""
    descriptor, name = sys.argv[1:]
    # A process that the handler starts must not keep the socket open.
    os.set_inheritable(int(descriptor), False)  # noqa: FBT003
    with socket.socket(fileno=int(descriptor)) as channel, channel.makefile("rwb") as lines:
        handler = _import(name, lines)
        for line in lines:
            message = json.loads(line)
            _write_to(message["log"])
            _send(lines, _run(handler, message))


def _import(name: str, lines: Any) -> Handler:
    """Import the handler; the cloud is told, also if that fails."""
    sys.path.insert(0, str(os.environ["LAMBDA_TASK_ROOT"]))
    module, _, attribute = name.rpartition(".")
    try:
        handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), attribute)
    except BaseException as error:  # noqa: BLE001  the cloud is told
        traceback.print_exc()
        _send(lines, _init_fault(error, module, attribute))
        raise SystemExit(1) from None
    _send(lines, {"ready": True})
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


def _send(lines: Any, reply: dict[str, Any]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    lines.write(json.dumps(reply).encode() + b"\n")
    lines.flush()


def _write_to(path: str) -> None:
    """Send what is printed from now on, also by other programs, to a log file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


if __name__ == "__main__":
    main()
