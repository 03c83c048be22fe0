"""The parent's side of a sandbox: start, ask with a deadline, and always end.

Ending is a SIGKILL to the child's process group before the child is reaped: while it is not, its
number can't belong to anybody else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ChildExitedError(Exception):
    """The child ended without an answer; ``code`` is negative for a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Child:
    """One child process that runs ``anarchon_ddb.local.sandbox``.

    Parameters
    ----------
    handler : str
        As the template has it: ``handlers.export.handler``.
    code : Path
        The directory it is imported from.
    environment : mapping
        All of the child's environment: nothing is inherited.
    log : Path
        Where what it prints goes while it starts.
    """

    def __init__(self, handler: str, code: Path, environment: Mapping[str, str], log: Path) -> None:
        self._lock = threading.Lock()
        self._received = b""
        self._channel, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "anarchon_ddb.local.sandbox", str(theirs.fileno()), handler],
                cwd=code,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C goes to the cloud, which ends its children
            )

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ask(self, message: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a message and return the answer.

        Raises
        ------
        TimeoutError
            If none came in time. The child is left running.
        ChildExitedError
            If the child ended. It was reaped.
        """
        try:
            self._channel.settimeout(max(timeout_s, 0.001))
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except TimeoutError:
            raise
        except OSError:
            raise ChildExitedError(self.end()) from None
        return self.receive(timeout_s)

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next line that the child sends; raises as ``ask``."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            try:
                self._channel.settimeout(max(until - time.monotonic(), 0.001))
                more = self._channel.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError:  # closed by end(), in another thread
                more = b""
            if not more:
                raise ChildExitedError(self.end())
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """Send SIGKILL to the child and what it started, as Lambda does at the deadline."""
        with self._lock:
            if self._process.returncode is None:
                # PermissionError: macOS says so of a child that is dead but not reaped.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill the child if it still runs, reap it, and return its exit code."""
        self.kill()
        with self._lock:
            code = self._process.wait()
            self._channel.close()
        return code
