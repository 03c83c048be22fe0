"""A clock that the cloud moves and the children share: the machine's, plus an offset.

The offset is sent with each invocation, so that a lease can run out without anybody waiting.
"""

from __future__ import annotations

from anarchon_ddb.clock import SYSTEM_CLOCK


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
