"""What the doctor says: a finding, the rule behind it, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from anarchon_ddb.doctor.model import Model
    from anarchon_ddb.doctor.scope import Node

Level = Literal["error", "warning", "note"]
"""Error: a slot is lost, runs twice, or it can't be deployed. Warning: it will hurt some day."""


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule found: the place, what it is, and the fix if it differs from the rule's."""

    path: Path
    line: int
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of finding."""

    id: str
    level: Level
    title: str
    why: str
    fix: str
    look: Callable[[Model], Iterable[Hit]]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A finding, at its place."""

    path: Path
    line: int
    rule: str
    level: Level
    what: str
    why: str
    fix: str


class Chapter:
    """Collects the rules of one module in the order in which they are written."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def rule(
        self, rule_id: str, level: Level, *, title: str, why: str, fix: str
    ) -> Callable[[Callable[[Model], Iterable[Hit]]], Callable[[Model], Iterable[Hit]]]:
        """Make a function, which looks at a model and yields hits, a rule."""

        def register(look: Callable[[Model], Iterable[Hit]]) -> Callable[[Model], Iterable[Hit]]:
            self.rules.append(Rule(rule_id, level, title, why, fix, look))
            return look

        return register


def at(node: Node, what: str, fix: str = "") -> Hit:
    """Return a hit at a node."""
    return Hit(node.path, node.line, what, fix)
