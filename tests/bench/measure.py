"""Rounds, and what is made of them.

Both sides of a comparison take turns in every round, each round begins with another side, and the
ratio is taken round by round: a machine that is busy for a while slows both sides alike. The median
of the ratios is judged, their spread is shown, and the ratio of the two minima beside it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

Timed = Callable[[], float]
"""One round of one side: does the work, checks what it left, returns what was measured."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a figure must be."""

    bound: float
    is_upper: bool = True

    def holds(self, value: float) -> bool:
        return value <= self.bound if self.is_upper else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.is_upper else '≥'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    what: str
    values: tuple[float, ...]
    """One a round: ratios, or numbers of ``unit``."""
    unit: str = ""
    """Empty for a ratio."""
    goal: Goal | None = None
    sides: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What each side took in each round, in ``side_unit``."""
    side_unit: str = ""
    note: str = ""

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def of_minima(self) -> float | None:
        """The ratio of the two sides' best rounds; None where the figure is no ratio of two."""
        if self.unit or len(self.sides) != 2:
            return None
        ours, other = self.sides.values()
        return min(ours) / min(other)


class Bench:
    """How many rounds, and where progress is shown."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self._begun_s = time.monotonic()
        self._measure = ""

    def begin(self, measure: str) -> None:
        self._measure = measure
        self.tell("…")

    def tell(self, text: str) -> None:
        """Say what is being done: on one line of a terminal, on lines of their own elsewhere."""
        start, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")
        line = f"{start}{time.monotonic() - self._begun_s:5.0f} s  {self._measure}: {text}{end}"
        sys.stderr.write(line)
        sys.stderr.flush()

    def end(self) -> None:
        self.tell("done")
        sys.stderr.write("\n" if sys.stderr.isatty() else "")

    def interleave(
        self, sides: Mapping[str, Timed], *, warm_up: bool = True, rounds: int | None = None
    ) -> dict[str, tuple[float, ...]]:
        """Let the sides take turns; return what each took in each round."""
        taken: dict[str, list[float]] = {name: [] for name in sides}
        if warm_up:
            for side in sides.values():
                side()
        names = list(sides)
        count = self.rounds if rounds is None else rounds
        for number in range(count):
            self.tell(f"round {number + 1} of {count}: {', '.join(names)}")
            first = number % len(names)
            for name in names[first:] + names[:first]:
                taken[name].append(sides[name]())
        return {name: tuple(values) for name, values in taken.items()}


def ratio(
    what: str,
    taken: Mapping[str, tuple[float, ...]],
    ours: str,
    other: str,
    *,
    goal: Goal | None = None,
    side_unit: str = "s",
    note: str = "",
) -> Figure:
    """Compare two of the sides that took turns, round by round."""
    pairs = zip(taken[ours], taken[other], strict=True)
    values = tuple(mine / theirs for mine, theirs in pairs)
    sides = {ours: taken[ours], other: taken[other]}
    return Figure(what, values, goal=goal, sides=sides, side_unit=side_unit, note=note)


def number(what: str, values: Iterable[float], unit: str, *, goal: Goal | None = None,
           note: str = "") -> Figure:  # fmt: skip
    return Figure(what, tuple(values), unit, goal, note=note)
