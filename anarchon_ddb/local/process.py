"""The parent's side of a sandbox: start, send, hear what it says, and always end.

Ending is a SIGKILL to the child's process group before the child is reaped: while it is not, its
number can't belong to anybody else. On the machine's clock each sandbox is started afresh, as on
AWS; on a simulated one it is forked from a process that has imported the handler already.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Hear = Callable[[dict[str, Any] | None], None]

START_TIMEOUT_S = 60.0
"""For a fork server's import, on the machine's clock."""


class Process(Protocol):
    """A process that was started, by whom ever."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def reap(self) -> int:
        """Wait for its end and return its exit code, negative for a signal."""
        ...


class Child:
    """One child process, and the socket to it.

    Parameters
    ----------
    hear : callable
        Called in a thread with each message of the child, and at its end with None.
    """

    def __init__(self, process: Process, channel: socket.socket, hear: Hear) -> None:
        self._process = process
        self._channel = channel
        self._hear = hear
        self._lock = threading.Lock()
        self._code: int | None = None
        self._thread = threading.Thread(target=self._listen, name=f"child-{self.pid}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; of a child that is gone, its end is heard."""
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def kill(self) -> None:
        """Send SIGKILL to the child and what it started, as Lambda does at the deadline."""
        with self._lock:
            if self._code is None:
                _kill_group(self.pid)

    def end(self) -> int:
        """Kill the child if it still runs, reap it, and return its exit code."""
        self.kill()
        with self._lock:
            if self._code is None:
                self._code = self._process.reap()
        with contextlib.suppress(OSError):  # wakes the thread, whoever else holds the other end
            self._channel.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._channel.close()
        return self._code

    def _listen(self) -> None:
        with self._channel.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                self._hear(json.loads(line))
        self._hear(None)


class _Started:
    """A process that was started afresh."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def reap(self) -> int:
        return self._process.wait()


def start(handler: str, code: Path, environment: Mapping[str, str], log: Path, hear: Hear) -> Child:
    """Start a sandbox afresh.

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
    ours, theirs = socket.socketpair()
    with theirs:
        process = _popen(["serve"], handler, code, environment, log, theirs)
    return Child(_Started(process), ours, hear)


class ForkServer:
    """A process that has imported a handler, and forks a sandbox from itself when it is asked to.

    Only where an import starts no thread: a fork has the thread that forked and no other.
    """

    def __init__(self, handler: str, code: Path, environment: Mapping[str, str], log: Path) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = _popen(["fork"], handler, code, environment, log, theirs)
        self._channel.settimeout(START_TIMEOUT_S)
        self.is_usable = bool(self._answer().get("forks"))
        if not self.is_usable:
            self.close()

    def start(self, name: str, log: Path, hear: Hear) -> Child:
        """Fork a sandbox."""
        ours, theirs = socket.socketpair()
        with theirs:
            request = json.dumps({"fork": name, "log": str(log)}).encode()
            socket.send_fds(self._channel, [request], [theirs.fileno()])
            pid: int = self._answer()["pid"]
        return Child(_Forked(self, pid), ours, hear)

    def reap(self, pid: int) -> int:
        """Wait for the end of a fork."""
        self._channel.sendall(json.dumps({"reap": pid}).encode())
        code: int = self._answer().get("code", -signal.SIGKILL)
        return code

    def close(self) -> None:
        """End it; its forks have ended."""
        _kill_group(self._process.pid)
        self._process.wait()
        self._channel.close()

    def _answer(self) -> dict[str, Any]:
        """Return what it answers; nothing if it is gone."""
        try:
            line = self._channel.recv(1 << 16)
        except OSError:
            line = b""
        answer: dict[str, Any] = json.loads(line or b"{}")
        return answer


class _Forked:
    """A process that a fork server started."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def reap(self) -> int:
        return self._server.reap(self.pid)


def _popen(
    how: list[str],
    handler: str,
    code: Path,
    environment: Mapping[str, str],
    log: Path,
    theirs: socket.socket,
) -> subprocess.Popen[bytes]:
    arguments = [*how, str(theirs.fileno()), handler]
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "anarchon_ddb.local.sandbox", *arguments],
            cwd=code,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C goes to the cloud, which ends its children
        )


def peak_bytes(pid: int) -> int:
    """Return the most that a living process held; 0 where that can't be told."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def _kill_group(pid: int) -> None:
    # PermissionError: macOS says so of a child that is dead but not reaped.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)  # a fork that has had no time yet to lead a group of its own
