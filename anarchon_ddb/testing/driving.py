"""``drive``: a job's slot from its delivery to its end, in a test, without waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anarchon_ddb.testing.execution import Attempt, FinalRun, as_point, new_execution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from anarchon_ddb.job import Job
    from anarchon_ddb.options import Duration
    from anarchon_ddb.testing.clock import SettableClock


@dataclass(frozen=True, slots=True)
class Drive:
    """How a run went."""

    attempts: tuple[Attempt, ...]
    """Each invocation: from which cursor, to which, and how it ended."""
    run: FinalRun
    """The run as it is stored at the end."""


def drive(  # noqa: PLR0913  each is a keyword of its own
    handler: Job,
    slot: datetime | str,
    *,
    timeout: Duration = "15m",
    kill_at: str | Sequence[str] | None = None,
    stop_early: bool = False,
    max_invocations: int = 100,
    clock: SettableClock | None = None,
    instance: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Drive:
    """Invoke a job until the run of a slot has ended.

    The slot is delivered as by EventBridge, and an open run is resumed as by the resumer. Nothing
    waits: the clock is moved to where the run may be claimed. The table is that of
    ``ANARCHON_TABLE``, such as the fixture ``anarchon_table`` makes.

    Parameters
    ----------
    handler : Job
        What ``@job`` made.
    slot : datetime or str
        Aware, or as ``2026-11-29T12:00:00Z``.
    timeout : str or timedelta
        The function's timeout, for each invocation.
    kill_at : str or sequence of str, optional
        Where the sandbox is killed: ``"before save 3"`` is after the third batch and before its
        checkpoint, ``"after PutItem 7"`` right after the job's seventh PutItem; several in the
        order in which they fall. Calls are counted over all invocations. The protocol's writes are
        ``claim``, ``pass`` (the gate), ``save``, ``commit``, ``let_go``, ``finish`` and ``clear``
        (the gate); other calls have the operation's name, or the function's that is marked as
        ``outside``. With ``kill_at``, even if it is empty, the job runs in a child process: what it
        writes to memory is lost, and a function that outlives its timeout is killed there.
    stop_early : bool
        Leave no time for a second batch, in any invocation. Runs in a child process, too.
    max_invocations : int
        Give up after so many.
    clock : SettableClock, optional
        The one that the handler moves; one set to 5 s after the slot if not given.
    instance : str, optional
        An instance of the job, such as ``"export:tenant-a"``.
    params : mapping, optional
        What the first delivery brings.

    Raises
    ------
    AssertionError
        If the run has not ended after ``max_invocations``, an invocation went on beyond its
        timeout, or the run did not come to a point of ``kill_at``.
    InvalidEventError, InvalidJobError, StoreError
        If it can't be run at all.
    ValueError
        If ``kill_at`` names no point.

    Examples
    --------
    >>> driven = drive(handler, "2026-11-29T12:00:00Z", kill_at="before save 2")
    >>> [(attempt.from_cursor, attempt.to_cursor, attempt.ended) for attempt in driven.attempts]
    [(None, 200, 'killed'), (200, 450, 'succeeded')]
    >>> driven.run.state
    'succeeded'
    """
    execution = new_execution(
        handler, slot, timeout=timeout, clock=clock, instance=instance, params=params
    )
    execution.max_invocations = max_invocations
    if kill_at is None and not stop_early:
        run = execution.run_here()
        return Drive(tuple(execution.attempts), run)
    kills = [kill_at] if isinstance(kill_at, str) else kill_at or []
    execution.kills = [as_point(kill) for kill in kills]
    execution.stops = stop_early
    run = execution.run_in_sandboxes()
    if execution.kills:
        passed = ", ".join(map(str, execution.points))
        raise AssertionError(
            f"the run did not come to {execution.kills[0]!r}. It came to: {passed}"
        )
    return Drive(tuple(execution.attempts), run)
