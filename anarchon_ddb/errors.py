"""Every error and every stop this package raises. Imports nothing of it.

Two families, on purpose:

* ``AnarchonError`` and its children are ordinary ``Exception``s: something is wrong, and the text
  says what was found, what was expected, and what to do.
* ``Stop`` and its children derive from ``BaseException``, as ``KeyboardInterrupt`` does: nothing is
  wrong, the work has to end here. A handler's ``except Exception`` must not swallow them.
"""

from __future__ import annotations


class AnarchonError(Exception):
    """Root of the errors of this package."""


class InvalidEventError(AnarchonError):
    """The event names no slot of this job. Nothing was written."""


class InvalidJobError(AnarchonError):
    """A job's name or one of its options is not usable."""


class InvalidScheduleError(AnarchonError):
    """An expression that AWS would refuse or that never fires, or a schedule that is not known."""


class CheckpointError(AnarchonError):
    """A cursor that would not come back as it is. The stored one stays."""


class CheckpointTooLargeError(CheckpointError):
    """A cursor beyond the size limit. The stored one stays."""


class CommitError(AnarchonError):
    """A commit that can't be stored as it is. Nothing of it was, and the checkpoint is unmoved.

    Attributes
    ----------
    index : int or None
        Which of the items is to blame, from 0; None for the whole.
    code : str
        DynamoDB's reason, such as ``ConditionalCheckFailed``; empty if it was not asked.
    """

    def __init__(self, message: str, *, index: int | None = None, code: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.code = code


class RefusedError(AnarchonError):
    """What a person asked for does not fit the state of the run, or it changed meanwhile."""


class StoreError(AnarchonError):
    """The table, or EventBridge, could not be asked or did not answer: *unknown*, never *refused*.

    Attributes
    ----------
    retryable : bool
        True for throttling, timeouts and faults of the service; False for what only a person can
        mend (a permission, a name, a region).
    code : str
        The error as the service or the SDK names it.
    """

    def __init__(self, message: str, *, retryable: bool = False, code: str = "") -> None:
        super().__init__(message)
        self.retryable = retryable
        self.code = code


class Stop(BaseException):
    """Root of the planned stops. Let it pass: the worker records it."""


class StopEarly(Stop):
    """Time is short, or a stop was asked for: the run is left for the next invocation.

    Attributes
    ----------
    reason : str
        ``time_short``, ``paused``, or ``timed_out`` for a run that used up its own timeout.
    """

    def __init__(self, message: str, *, reason: str = "time_short") -> None:
        super().__init__(message)
        self.reason = reason


class LeaseLost(Stop):
    """Another invocation holds the run now; nothing of this one is written any more."""


class Cancelled(Stop):
    """A person cancelled the run."""
