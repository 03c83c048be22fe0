"""Other processes, as a test sees them: whether they live, whose children they are."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], timeout_s: float = 20) -> Found:
    """Wait for what another process does, and return it."""
    until_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until_s, "waited in vain"
        time.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that died and was not reaped yet does not."""
    state = _ps("-o", "stat=", "-p", str(pid)).strip()
    return bool(state) and not state.startswith("Z")


def children_of(pid: int) -> list[int]:
    """Return the children of a process."""
    pairs = (line.split() for line in _ps("-A", "-o", "pid=,ppid=").splitlines())
    return [int(child) for child, parent in pairs if int(parent) == pid]


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False).stdout
