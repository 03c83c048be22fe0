"""Reading a template: YAML with CloudFormation's tags kept as data, and the line of each node.

Nothing is executed: the loader is the safe one, and a short-form tag such as ``!Ref`` becomes a
``Tagged``. What YAML lets pass in silence, a key that is written twice, is kept beside the data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from anarchon_ddb.errors import AnarchonError

if TYPE_CHECKING:
    from pathlib import Path

MOST_NODES = 200_000
"""Counted with each alias in full: a few lines of YAML can stand for a billion nodes."""


class TemplateError(AnarchonError):
    """The template can't be read, or asks for what can't be played on one machine."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A CloudFormation function, such as ``!Ref Table``: its name, its argument, its line."""

    name: str
    argument: Any
    line: int


class Map(dict[Any, Any]):
    """A mapping that knows on which line it begins, and each of its keys stands."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[Any, int] = {}


class Seq(list[Any]):
    """A list that knows on which line each element begins."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that is written twice in one mapping: YAML keeps the last one and says nothing."""

    key: str
    line: int
    first_line: int


@dataclass(frozen=True, slots=True)
class Source:
    """A template as it is written."""

    path: Path
    data: Map
    duplicates: tuple[Duplicate, ...] = field(default=())


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, with lines; an unknown tag becomes a ``Tagged`` instead of an error."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.duplicates: list[Duplicate] = []


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _map(loader: _Loader, node: yaml.Node) -> Map:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.constructor.ConstructorError(None, None, "expected a mapping", node.start_mark)
    made = Map(_line(node))
    own = _merged(loader, node, made)
    seen: dict[Any, int] = {}
    for key_node, value_node in own:
        key = _key(loader, key_node)
        if key in seen:
            loader.duplicates.append(Duplicate(str(key), _line(key_node), seen[key]))
        seen.setdefault(key, _line(key_node))
        made[key] = loader.construct_object(value_node, deep=True)
        made.lines[key] = _line(key_node)
    return made


def _merged(
    loader: _Loader, node: yaml.MappingNode, made: Map
) -> list[tuple[yaml.Node, yaml.Node]]:
    """Put what ``<<`` brings into the mapping; return its own pairs."""
    own = []
    for key_node, value_node in node.value:
        if key_node.tag != "tag:yaml.org,2002:merge":
            own.append((key_node, value_node))
            continue
        given = loader.construct_object(value_node, deep=True)
        for other in reversed(given if isinstance(given, list) else [given]):
            if isinstance(other, Map):
                made.update(other)
                made.lines.update(other.lines)
    return own


def _key(loader: _Loader, node: yaml.Node) -> Any:
    key = loader.construct_object(node, deep=True)
    try:
        hash(key)
    except TypeError:
        raise yaml.constructor.ConstructorError(
            None, None, "a key must be a text", node.start_mark
        ) from None
    return key


def _seq(loader: _Loader, node: yaml.Node) -> Seq:
    if not isinstance(node, yaml.SequenceNode):
        raise yaml.constructor.ConstructorError(None, None, "expected a list", node.start_mark)
    made = Seq(_line(node))
    for element in node.value:
        made.append(loader.construct_object(element, deep=True))
        made.lines.append(_line(element))
    return made


def _tagged(loader: _Loader, suffix: str, node: yaml.Node) -> Tagged:
    argument: Any
    if isinstance(node, yaml.ScalarNode):
        argument = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        argument = _seq(loader, node)
    else:
        argument = _map(loader, node)
    return Tagged(suffix, argument, _line(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _map)
_Loader.add_constructor("tag:yaml.org,2002:seq", _seq)
_Loader.add_multi_constructor("!", _tagged)


def load(path: Path) -> Map:
    """Return a template as data.

    Raises
    ------
    TemplateError
        If the file can't be read, or is no YAML mapping with ``Resources``.
    """
    return read(path).data


def read(path: Path) -> Source:
    """Return a template as data, with what is written twice in it.

    Raises
    ------
    TemplateError
        As ``load``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TemplateError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TemplateError(f"{path}: not UTF-8 at byte {error.start}: save it as UTF-8") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Source:
    """Return the text of a template as data.

    Raises
    ------
    TemplateError
        If it is no YAML mapping with ``Resources``.
    """
    data, duplicates = _loaded(text, path)
    if not isinstance(data, Map) or not isinstance(data.get("Resources"), dict):
        raise TemplateError(f"{path}: not a template: it has no mapping named Resources")
    if _size(data, {}) > MOST_NODES:
        raise TemplateError(f"{path}: more than {MOST_NODES} nodes, its aliases written out")
    return Source(path, data, tuple(duplicates))


def _loaded(text: str, path: Path) -> tuple[Any, list[Duplicate]]:
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data(), loader.duplicates
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise TemplateError(f"{path}: not YAML: {error}") from None
    except RecursionError:
        raise TemplateError(f"{path}: nested too deeply to be a template") from None
    except (ValueError, OverflowError) as error:  # a date or a number that YAML's own types refuse
        raise TemplateError(f"{path}: a value that YAML can't read: {error}") from None


def _size(value: Any, known: dict[int, int]) -> int:
    if isinstance(value, Tagged):
        return 1 + _size(value.argument, known)
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        inner = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_size(one, known) for one in inner)
    return known[id(value)]
