"""What a run's log tells its author, once an attempt: a margin or a cursor that will not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anarchon_ddb import codec

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger


class Advice:
    """The warnings of one attempt.

    Parameters
    ----------
    logger : Logger
        Where they go.
    stop_margin_ms : int
        The job's option.
    """

    def __init__(self, logger: Logger, stop_margin_ms: int) -> None:
        self._logger = logger
        self._stop_margin_ms = stop_margin_ms
        self._given: set[str] = set()

    def after_save(self, checkpoint: str, longest_batch_ms: int) -> None:
        """Warn of what a save has shown.

        Parameters
        ----------
        checkpoint : str
            The cursor as it was encoded.
        longest_batch_ms : int
            How long the longest batch of the run has taken.
        """
        if longest_batch_ms > self._stop_margin_ms:
            self._give(
                "stop_margin is shorter than a batch",
                stop_margin_s=self._stop_margin_ms / 1000,
                longest_batch_s=longest_batch_ms / 1000,
            )
        size = len(checkpoint.encode())
        if size >= codec.LIMIT_BYTES * 3 // 4:
            self._give(
                "The checkpoint nears the size limit", bytes=size, limit_bytes=codec.LIMIT_BYTES
            )
        elif size >= codec.WARN_BYTES:
            self._give("Every renewal of the lease pays for a large checkpoint", bytes=size)

    def _give(self, message: str, **details: float) -> None:
        if message not in self._given:
            self._given.add(message)
            self._logger.warning(message, extra=details)
