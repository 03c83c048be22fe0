"""A Lambda context whose remaining time is that of a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from anarchon_ddb.clock import SYSTEM_CLOCK
from anarchon_ddb.options import duration_ms

if TYPE_CHECKING:
    from anarchon_ddb.clock import Clock
    from anarchon_ddb.options import Duration


class LambdaContext:
    """What Lambda gives a handler as its second argument.

    The fakes of other kits return a constant remaining time, so an early stop can't be tested with
    them. This one counts down on its clock, and the package takes its time from that clock, too.

    Parameters
    ----------
    timeout : str or timedelta
        The function's timeout, as ``"15m"``; it begins now.
    clock : Clock, optional
        The machine's if not given; a ``SettableClock`` to move it by hand.
    remaining_ms : int, optional
        The time that is left, where that is not the whole timeout.
    function_name, request_id : str
        As Lambda has them.

    Examples
    --------
    >>> LambdaContext(timeout="30s", remaining_ms=7_000).remaining_ms <= 7_000
    True
    """

    memory_limit_in_mb = 128
    function_version = "$LATEST"
    identity = None
    client_context = None

    def __init__(
        self,
        timeout: Duration = "15m",
        *,
        clock: Clock = SYSTEM_CLOCK,
        remaining_ms: int | None = None,
        function_name: str = "test-function",
        request_id: str | None = None,
    ) -> None:
        self.clock = clock
        self.function_name = function_name
        self.invoked_function_arn = (
            f"arn:aws:lambda:eu-west-1:123456789012:function:{function_name}"
        )
        self.aws_request_id = request_id or str(uuid4())
        self.log_group_name = f"/aws/lambda/{function_name}"
        self.log_stream_name = "2026/11/29/[$LATEST]0123456789abcdef"
        left_ms = duration_ms(timeout, "timeout") if remaining_ms is None else remaining_ms
        self.deadline_ms = clock.now_ms() + left_ms

    @property
    def remaining_ms(self) -> int:
        """Milliseconds until the function would be killed; set it to change the deadline."""
        return self.deadline_ms - self.clock.now_ms()

    @remaining_ms.setter
    def remaining_ms(self, value: int) -> None:
        self.deadline_ms = self.clock.now_ms() + value

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds that are left, never less than 0, as Lambda does."""
        return max(0, self.remaining_ms)
