"""Each handler is imported once before a play begins: what can't be is told at once, with its log.

Without, a slip in an import would show minutes later, at the first slot. The imports are made as
Lambda makes them, in a process of their own that ends with them; they count for nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from anarchon_ddb.local import lambda_texts as texts
from anarchon_ddb.local.functions import FORK_SERVER
from anarchon_ddb.local.process import start
from anarchon_ddb.local.sandboxes import INIT_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anarchon_ddb.local.functions import Function

_LOOK_S = 0.05


def faults(functions: Iterable[Function], is_over: Callable[[], bool]) -> dict[str, str]:
    """Import each function's handler; return, by name, why one can't be, and where its log is."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(
            lambda function: (function.spec.name, _fault(function, is_over)), functions
        )
        return {name: fault for name, fault in found if fault is not None}


def _fault(function: Function, is_over: Callable[[], bool]) -> str | None:
    if is_over():
        return None
    spec, log = function.spec, function.logs / "import.log"
    heard = _Heard()
    child = start(spec.handler, spec.code, function.environment_of(FORK_SERVER), log, heard.take)
    heard.reply = child.send
    try:
        until_s = time.monotonic() + INIT_TIMEOUT_S
        while not heard.is_done.wait(_LOOK_S):
            if is_over():
                return None
            if time.monotonic() > until_s:
                return f"it takes longer than {INIT_TIMEOUT_S:.0f} s, Lambda's limit; log: {log}"
    finally:
        code = child.end()
    if heard.is_ready:
        log.unlink(missing_ok=True)
        return None
    return f"{heard.error or f'its process ended with exit code {code}'}; log: {log}"


class _Heard:
    """What a process says while it imports a handler."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.is_ready = False
        self.error = ""
        self.reply: Callable[[dict[str, Any]], None] = lambda _message: None

    def take(self, message: dict[str, Any] | None) -> None:
        """Take a message; None when the process is gone. It sleeps for no time at all."""
        if message is not None and "sleep" in message:
            self.reply({"wake": message["number"]})
            return
        if message is not None and "error" in message:
            self.error = texts.told(message["error"])
        elif message is not None and "ready" in message:
            self.is_ready = True
        elif message is not None:
            return
        self.is_done.set()
