"""What a value of a template is: resolved where it can be, said to be unresolved where it can't.

A `Scope` is one template with the parameters that it was given. It evaluates lazily: a function is
looked at only when a rule asks for the value behind it. Three kinds of answer are not plain values:

* `Holed`: a text with parts that are known once it is deployed, such as ``${AWS::StackName}-job``;
* `Reference`: what ``Ref`` or ``GetAtt`` of a resource gives;
* `Unresolved`: anything else, with the reason. It is never taken for true, false, or absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anarchon_ddb.template.source import Map, Seq, Tagged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from anarchon_ddb.template.source import Source


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A value that is not known before it is deployed, and why."""

    why: str


class Holed(str):
    """A text whose ``${…}`` are filled when it is deployed."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A resource, or an attribute of it."""

    scope: Scope
    logical_id: str
    attribute: str = ""
    """Empty for ``Ref``."""

    def __str__(self) -> str:
        name = f"{self.logical_id}.{self.attribute}" if self.attribute else self.logical_id
        return f"${{{name}}}"


class NoValue:
    """What ``Ref: AWS::NoValue`` gives: the property or element is left out."""


NO_VALUE = NoValue()


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the place where it is written.

    Attributes
    ----------
    value : object
        A scalar, a ``Map`` or ``Seq`` whose inner values are not yet evaluated, or one of the
        three above.
    """

    value: Any
    line: int
    path: Path
    scope: Scope = field(repr=False)

    def get(self, *keys: str) -> Node | None:
        """Return what stands under the keys, or None if nothing does.

        If it can't be told, the answer is a node whose value is ``Unresolved``.
        """
        node: Node = self
        for key in keys:
            if isinstance(node.value, Unresolved):
                return node
            if not isinstance(node.value, Map) or key not in node.value:
                return None
            node = node.scope.node(node.value[key], node.value.lines.get(key, node.line))
            if node.value is NO_VALUE or node.value is None:
                return None
        return node

    def items(self) -> Iterator[tuple[str, Node]]:
        """Yield keys and values of a mapping; nothing for any other value."""
        if isinstance(self.value, Map):
            for key in self.value:
                inner = self.get(key)
                if inner is not None:
                    yield str(key), inner

    def elements(self) -> Iterator[Node]:
        """Yield the elements of a list; a single value is a list of one."""
        if not isinstance(self.value, Seq):
            yield self
            return
        for element, line in zip(self.value, self.value.lines, strict=True):
            node = self.scope.node(element, line)
            if node.value is not NO_VALUE:
                yield node

    @property
    def text(self) -> str | None:
        """The value, if it is a text without holes."""
        value = self.value
        return value if isinstance(value, str) and not isinstance(value, Holed) else None

    @property
    def is_known(self) -> bool:
        """Whether the value is what will be deployed."""
        return not isinstance(self.value, (Unresolved, Holed, Reference))

    @property
    def number(self) -> int | None:
        """The value as a whole number, if it is one; parameters give theirs as text."""
        if isinstance(self.value, bool):
            return None
        try:
            return int(self.value) if self.is_known else None
        except (TypeError, ValueError, OverflowError):
            return None

    def deep(self) -> Any:
        """Return the value as plain data; ``Unresolved`` if a part of it is."""
        if isinstance(self.value, Map):
            pairs = {key: node.deep() for key, node in self.items()}
            return _first_unresolved(pairs.values()) or pairs
        if isinstance(self.value, Seq):
            found = [node.deep() for node in self.elements()]
            return _first_unresolved(found) or found
        return self.value


def _first_unresolved(values: Any) -> Unresolved | None:
    return next((value for value in values if isinstance(value, Unresolved)), None)


class Scope:
    """One template, with what its parameters were given.

    Parameters
    ----------
    source : Source
        The template.
    given : mapping
        Values of parameters; nodes where an outer template passes them on.
    pseudo : mapping
        Known pseudo parameters, such as ``AWS::Region``.
    label : str
        Where it is nested: the logical ids on the way, for messages.
    """

    def __init__(
        self,
        source: Source,
        given: Mapping[str, Node | str],
        pseudo: Mapping[str, str],
        label: str = "",
    ) -> None:
        self.source = source
        self.path = source.path
        self.given = given
        self.pseudo = pseudo
        self.label = label
        self.nested: dict[str, Scope] = {}
        """The nested applications that could be read."""

    def node(self, raw: Any, line: int, path: Path | None = None) -> Node:
        """Return a value at its place, evaluated so far that it is no function any more."""
        from anarchon_ddb.doctor.functions import evaluate  # noqa: PLC0415 - the two need each other

        found = evaluate(self, raw)
        if isinstance(found, Node):
            return Node(found.value, line, path or self.path, found.scope)
        return Node(found, line, path or self.path, self)

    @property
    def root(self) -> Node:
        """The whole template."""
        return Node(self.source.data, 1, self.path, self)

    def section(self, name: str) -> Map:
        """Return a top-level section as written; an empty one if there is none."""
        found = self.source.data.get(name)
        return found if isinstance(found, Map) else Map(1)

    def resource(self, logical_id: str) -> Node | None:
        """Return a resource as a node."""
        return self.root.get("Resources", logical_id)


def is_function(raw: Any) -> tuple[str, Any] | None:
    """Return name and argument of an intrinsic function in either form, None for plain data."""
    if isinstance(raw, Tagged):
        return raw.name, raw.argument
    if isinstance(raw, Map) and len(raw) == 1:
        name = str(next(iter(raw)))
        if name == "Ref" or name.startswith("Fn::"):
            return name.removeprefix("Fn::"), raw[next(iter(raw))]
    return None
