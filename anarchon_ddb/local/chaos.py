"""What goes wrong on purpose, and how it is decided: from the seed and from what it befalls.

Each decision has a chance of its own, so that one does not depend on the order of the others: the
same slot is late, and the same invocation killed at the same call, in every run with the same seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

LATEST_S = 7_200
"""A late delivery comes at most so long after its slot."""


class ChaosError(ValueError):
    """What was asked for is no chaos that there is."""


@dataclass(frozen=True, slots=True)
class Fate:
    """A kill that an invocation has before it."""

    at_call: int
    """0 for before its first line; else the number of the AWS call at which it dies. One that makes
    fewer calls dies before its answer is heard."""
    before_it: bool
    """Whether the call is not made any more, or is made and its answer not seen."""


@dataclass(frozen=True, slots=True)
class Chaos:
    """How likely each kind of fault is, from 0 to 1.

    Attributes
    ----------
    kill : float
        An invocation is killed: at its start, at one of its AWS calls, or behind the last.
    duplicate : float
        A slot is delivered twice.
    late : float
        A delivery comes up to two hours late.
    throttle : float
        A call of AWS is throttled.
    lost_reply : float
        A call of AWS is carried out and its connection closed without an answer.
    """

    kill: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    throttle: float = 0.0
    lost_reply: float = 0.0
    seed: int = 0

    @classmethod
    def parse(cls, text: str, seed: int) -> Self:
        """Return what a person wrote.

        Raises
        ------
        ChaosError
            If it names what there is not, or a chance that is none.

        Examples
        --------
        >>> Chaos.parse("kill=0.2,lost-reply=0.02", seed=7).lost_reply
        0.02
        """
        kinds = [name.name.replace("_", "-") for name in fields(cls) if name.name != "seed"]
        chances: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            if name not in kinds:
                raise ChaosError(f"no chaos named {name!r}: there are {', '.join(kinds)}")
            chances[name.replace("-", "_")] = _chance(name, value)
        return cls(seed=seed, **chances)

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self) if one.name != "seed")

    def as_dict(self) -> Mapping[str, float]:
        """Return the chances that are not 0, by the names they are asked for with."""
        return {
            one.name.replace("_", "-"): getattr(self, one.name)
            for one in fields(self)
            if one.name != "seed" and getattr(self, one.name)
        }

    def draw(self, *what: object) -> float:
        """Return the chance of a decision: the same number for the same seed and question."""
        return int.from_bytes(self.token(8, *what)) / 2**64

    def token(self, size: int, *what: object) -> bytes:
        """Return bytes that look random, the same for the same seed and question."""
        text = "|".join(map(str, (self.seed, *what)))
        return hashlib.blake2b(text.encode(), digest_size=size).digest()

    def happens(self, kind: str, *what: object) -> bool:
        """Decide whether a kind of fault befalls something."""
        chance: float = getattr(self, kind)
        return chance > 0 and self.draw(kind, *what) < chance

    def fate(self, usual_calls: int, *what: object) -> Fate | None:
        """Return where an invocation is killed; None if it is not.

        Parameters
        ----------
        usual_calls : int
            How many calls of AWS such an invocation makes: the kill is at one of them.
        """
        if not self.happens("kill", *what):
            return None
        at_call = int(self.draw("kill at", *what) * (usual_calls + 2))
        return Fate(at_call, before_it=self.draw("kill before", *what) < 0.5)

    def lateness_s(self, *what: object) -> float:
        """Return how much later than usual a delivery comes; most are late by minutes."""
        if not self.happens("late", *what):
            return 0.0
        return round(60.0 * float((LATEST_S / 60) ** self.draw("late by", *what)), 3)


def _chance(name: str, value: str) -> float:
    try:
        chance = float(value)
    except ValueError:
        chance = -1.0
    if not 0 <= chance <= 1:
        raise ChaosError(f"{name}={value}: expected a number from 0 to 1, such as {name}=0.2")
    return chance
