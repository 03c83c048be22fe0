"""The cloud's clocks: the machine's, which can be moved forward, and a simulated one.

The offset of the first is sent with each invocation. The second stands in a file that every child
has mapped into its memory, so that all of them share one time.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

from anarchon_ddb.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pathlib import Path

_FORMAT = struct.Struct("<q")


class OffsetClock:
    """The machine's clock, shifted. Durations are real; only the wall clock is moved."""

    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        """Return the shifted wall clock, in epoch milliseconds."""
        return SYSTEM_CLOCK.now_ms() + self.offset_ms

    def monotonic_ms(self) -> int:
        """Return the machine's monotonic clock, not shifted."""
        return SYSTEM_CLOCK.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        """Wait for real."""
        SYSTEM_CLOCK.sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Move the wall clock forward, for every invocation that begins afterwards."""
        self.offset_ms += round(seconds * 1000)


class SimulatedClock:
    """A clock that stands still until the cloud moves it.

    Parameters
    ----------
    path : Path
        The file that children read the time from.
    now_ms : int
        Where it begins, in epoch milliseconds.
    """

    offset_ms = 0

    def __init__(self, path: Path, now_ms: int) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_FORMAT.pack(now_ms))
        self._memory = _map(path, mmap.ACCESS_WRITE)

    def now_ms(self) -> int:
        """Return the simulated wall clock, in epoch milliseconds."""
        return _read(self._memory)

    def monotonic_ms(self) -> int:
        """Return the same: it never goes back."""
        return _read(self._memory)

    def sleep(self, seconds: float) -> None:
        """Wait for real: only children sleep on simulated time."""
        SYSTEM_CLOCK.sleep(seconds)

    def move_to(self, now_ms: int) -> None:
        """Let it be later, for everybody at once; never earlier."""
        _FORMAT.pack_into(self._memory, 0, max(now_ms, self.now_ms()))

    def close(self) -> None:
        """Remove the file."""
        self._memory.close()
        self.path.unlink(missing_ok=True)


class SharedClock:
    """A child's view of the simulated clock."""

    def __init__(self, path: Path) -> None:
        self._memory = _map(path, mmap.ACCESS_READ)

    def now_ms(self) -> int:
        """Return the simulated wall clock, in epoch milliseconds."""
        return _read(self._memory)


def _map(path: Path, access: int) -> mmap.mmap:
    with path.open("r+b" if access == mmap.ACCESS_WRITE else "rb") as file:
        return mmap.mmap(file.fileno(), _FORMAT.size, access=access)


def _read(memory: mmap.mmap) -> int:
    now_ms: int = _FORMAT.unpack_from(memory)[0]
    return now_ms
