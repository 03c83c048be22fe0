"""From a file to a model: parameters put in, nested applications followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anarchon_ddb.doctor.finding import Hit
from anarchon_ddb.doctor.model import NESTED, Model, of_type
from anarchon_ddb.doctor.scope import Node, Scope, Unresolved
from anarchon_ddb.template.source import TemplateError, read

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from anarchon_ddb.template.source import Source

_DEEPEST = 5
_MOST = 200


def model(
    path: Path, parameters: Mapping[str, str] | None = None, pseudo: Mapping[str, str] | None = None
) -> Model:
    """Read a template and all that it nests.

    Raises
    ------
    TemplateError
        If the template itself can't be read. One that it nests is a finding.
    """
    return model_of(read(path), parameters, pseudo)


def model_of(
    source: Source,
    parameters: Mapping[str, str] | None = None,
    pseudo: Mapping[str, str] | None = None,
) -> Model:
    """Return the model of a template that was read."""
    made = Model([])
    _add(made, Scope(source, parameters or {}, pseudo or {}), 0)
    return made


def _add(model: Model, scope: Scope, depth: int) -> None:
    model.scopes.append(scope)
    for kind, key in NESTED:
        for logical_id, node in of_type(scope, kind):
            location = node.get("Properties", key)
            if location is not None and _is_file(location):
                _follow(model, scope, logical_id, node, location, depth)


def _is_file(location: Node) -> bool:
    text = location.text
    return text is not None and "://" not in text


def _follow(
    model: Model, scope: Scope, logical_id: str, node: Node, location: Node, depth: int
) -> None:
    path = scope.path.parent / str(location.text)
    if depth >= _DEEPEST or len(model.scopes) >= _MOST:
        what = f"{logical_id} nests too deeply: {location.text} is not followed"
        model.problems.append(Hit(location.path, location.line, what))
        return
    try:
        source = read(path)
    except (TemplateError, ValueError) as error:
        model.problems.append(Hit(location.path, location.line, f"{logical_id}: {error}"))
        return
    given = node.get("Properties", "Parameters")
    parameters = dict(given.items()) if given else {}
    inner = Scope(source, _passed(parameters), {**scope.pseudo, "AWS::StackName": ""},
                  f"{scope.label}{logical_id}.")  # fmt: skip
    scope.nested[logical_id] = inner
    _add(model, inner, depth + 1)


def _passed(parameters: dict[str, Node]) -> dict[str, Node]:
    """Keep what can't be told as such, and say by whom it was passed on."""
    return {
        name: Node(
            Unresolved(f"parameter {name}: {node.value.why}"), node.line, node.path, node.scope
        )
        if isinstance(node.value, Unresolved)
        else node
        for name, node in parameters.items()
    }
