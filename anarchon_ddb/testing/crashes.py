"""``explore_crashes``: is a batch safe to repeat? Kill the job everywhere and see.

The job runs once uninterrupted. Then it is stopped after each batch; then killed before and after
each of its calls in turn, and at pairs of them; each time it is resumed to the end, and what it did
is compared with what it did uninterrupted. Single kills come first and in order, so the first
difference is the smallest.

A call is one of the package's own (claim, save, finish …), one of any AWS client, or one of a
function marked as ``outside``. Between the calls a job has no effect that outlives it, except what
it writes to files and sockets itself: mark the function that does.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.testing import words
from anarchon_ddb.testing.execution import Execution, FinalRun, forget, new_execution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from anarchon_ddb.job import Job
    from anarchon_ddb.options import Duration
    from anarchon_ddb.testing.clock import SettableClock

SWALLOWED = (
    "told to stop, it went on: the handler caught StopEarly. Let it pass: `except Exception` does "
    "not catch it, a bare `except` and `except BaseException` do"
)


class CrashFound(AssertionError):  # noqa: N818  what a test found, not what went wrong with it
    """The job is not safe to kill. The text says where, what came of it, and how to repeat it.

    Attributes
    ----------
    kills : tuple of str
        Where it was killed, as ``drive`` takes it; empty if it needs no kill to go wrong.
    """

    def __init__(self, text: str, kills: tuple[str, ...]) -> None:
        super().__init__(text)
        self.kills = kills


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was explored without a difference."""

    points: int
    """Instants of the uninterrupted run at which it was killed."""
    kills: int
    """Kills in all."""
    seconds: float

    @property
    def kills_per_second(self) -> float:
        """Kills explored a second, each with the work up to it and the resumed work after it."""
        return self.kills / self.seconds


def explore_crashes(  # noqa: PLR0913  each is a keyword of its own
    handler: Job,
    *,
    slot: datetime | str,
    effects: Callable[[], Any],
    reset: Callable[[], object],
    timeout: Duration = "15m",
    pairs: int = 0,
    meanwhile: Callable[[], object] | None = None,
    clock: SettableClock | None = None,
    instance: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Exploration:
    """Kill a job before and after every call, resume it, and compare its effects.

    The job runs in child processes, so its effects must be outside of them: in a table or a bucket
    (moto's are in the test's process, where they should be), in a file, or behind functions marked
    as ``outside``. A kill is a SIGKILL: nothing of the job runs after it.

    Parameters
    ----------
    handler : Job
        What ``@job`` made.
    slot : datetime or str
        Aware, or as ``2026-11-29T12:00:00Z``.
    effects : callable
        Returns what the job has done so far: anything that can be compared. A list or a set of
        rows, or a dict by key, gives the clearest report.
    reset : callable
        Puts the source and the effects as they were. The run itself is deleted by the kit.
    timeout : str or timedelta
        The function's timeout, for each invocation.
    pairs : int
        How many pairs of kills to try beyond the single ones: a sample, the same each time.
    meanwhile : callable, optional
        What may happen to the source between a kill and the next invocation: rows that are added,
        deleted, or come in another order. Called after each kill, not in the uninterrupted run.
    clock, instance, params
        As ``drive``.

    Returns
    -------
    Exploration
        How much was explored.

    Raises
    ------
    CrashFound
        On the smallest difference.
    ValueError
        If the uninterrupted run has no effects.

    Examples
    --------
    >>> explored = explore_crashes(handler, slot="2026-11-29T12:00:00Z", effects=rows, reset=clear)
    >>> explored.kills == explored.points
    True
    """
    execution = new_execution(
        handler, slot, timeout=timeout, clock=clock, instance=instance, params=params
    )
    explorer = _Explorer(execution, effects, reset, meanwhile, clock is not None)
    return explorer.explore(pairs)


class _Explorer:
    """The executions of one exploration, each from the same beginning."""

    def __init__(
        self,
        first: Execution,
        effects: Callable[[], Any],
        reset: Callable[[], object],
        meanwhile: Callable[[], object] | None,
        has_clock: bool,  # noqa: FBT001
    ) -> None:
        self._first = first
        self._effects = effects
        self._reset = reset
        self._meanwhile = meanwhile
        self._has_clock = has_clock
        self._starts_at_ms = first.clock.now_ms()
        self._expected: Any = None
        self._final: FinalRun | None = None

    def explore(self, pairs: int) -> Exploration:
        started = time.perf_counter()
        try:
            points = self._run_uninterrupted()
            self._stop_after_each_batch()
            traces = {point: self._kill_at([point]) for point in points}
            chosen = _pairs(traces, pairs)
            for pair in chosen:
                self._kill_at(pair)
        finally:
            self._anew([])  # for whoever repeats what was found
        kills = len(points) + 2 * len(chosen)
        return Exploration(len(points), kills, time.perf_counter() - started)

    def _anew(self, kills: list[str], *, stops: bool = False) -> Execution:
        """Put everything as it was; return an execution that has not begun."""
        first = self._first
        first.clock.set(from_ms(self._starts_at_ms))
        forget(first)
        self._reset()
        return Execution(
            first.job,
            first.name,
            first.slot,
            first.timeout_ms,
            first.clock,
            first.params,
            kills=list(kills),
            stops=stops,
            meanwhile=self._meanwhile if kills else None,
            quiet=True,
            max_invocations=10_000,
        )

    def _run_uninterrupted(self) -> list[str]:
        execution = self._anew([])
        untouched = self._effects()
        self._final = execution.run_in_sandboxes()
        self._check_stops(execution, "uninterrupted")
        late = [attempt for attempt in execution.attempts if attempt.ended.startswith("killed")]
        if late or self._final.state != "succeeded":
            ended = late[0].ended if late else f"{self._final.state} ({self._final.reason})"
            error = f"\n{execution.failure or self._final.error or ''}".rstrip()
            raise CrashFound(f"uninterrupted, the run ended as {ended}{error}", ())
        self._expected = self._effects()
        if self._expected == untouched:
            raise ValueError(
                f"effects() is the same before and after the uninterrupted run: "
                f"{self._expected!r:.80}. The job runs in a child process, and what it writes to "
                "memory is lost with it: read the effects from a table, a bucket or a file, or "
                "mark the functions that have them as anarchon_ddb.testing.outside"
            )
        return [str(point) for point in execution.points]

    def _stop_after_each_batch(self) -> None:
        execution = self._anew([], stops=True)
        final = execution.run_in_sandboxes()
        told = "stopped early after each batch"
        self._check_stops(execution, told)
        self._compare(execution, final, told, ())

    def _kill_at(self, kills: list[str]) -> list[str]:
        """Kill there, resume to the end, compare; return the points that it came to."""
        execution = self._anew(kills)
        final = execution.run_in_sandboxes()
        told = " and then ".join(
            words.kill(execution.points, index) for index in execution.killed_at
        )
        if execution.kills:
            raise CrashFound(
                f"the job makes other calls each time: it came to {execution.kills[0]!r} when it "
                "was run before, and not now. Let its calls depend on slot, params and cursor only",
                tuple(kills),
            )
        self._check_stops(execution, told)
        self._compare(execution, final, told, tuple(kills))
        return [str(point) for point in execution.points]

    def _check_stops(self, execution: Execution, told: str) -> None:
        if execution.stops_raised > 1:
            raise CrashFound(f"{told}: {SWALLOWED}{self._repeat(())}", ())

    def _compare(
        self, execution: Execution, final: FinalRun, told: str, kills: tuple[str, ...]
    ) -> None:
        if self._final is not None and final.state != self._final.state:
            error = f"\n{execution.failure}".rstrip()
            found = f"the run ended as {final.state} ({final.reason}){error}"
        else:
            effects = self._effects()
            if effects == self._expected:
                return
            found = words.difference(self._expected, effects)
        raise CrashFound(f"{told}: {found}{self._repeat(kills)}", kills)

    def _repeat(self, kills: tuple[str, ...]) -> str:
        name = getattr(self._first.job, "__name__", "handler")
        at = repr(kills[0] if len(kills) == 1 else list(kills)).replace("'", '"')
        how = f"kill_at={at}" if kills else "stop_early=True"
        clock = ", clock=clock" if self._has_clock else ""
        return f'\nto repeat it: drive({name}, "{iso(self._first.slot)}", {how}{clock})'


def _pairs(traces: dict[str, list[str]], limit: int) -> list[list[str]]:
    """Return so many pairs of kills, the second after the first: a sample, the same each time."""
    every = [
        [first, second]
        for first, points in traces.items()
        for second in points[points.index(first) + 1 :]
    ]
    return random.Random(0).sample(every, min(limit, len(every)))  # noqa: S311  not a secret
