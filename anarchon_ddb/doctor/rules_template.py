"""Rules on the file itself: what YAML and SAM's linter let pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anarchon_ddb.doctor.finding import Chapter, Hit, at
from anarchon_ddb.doctor.functions import HOLE
from anarchon_ddb.doctor.model import NESTED, of_type
from anarchon_ddb.doctor.scope import Unresolved, is_function
from anarchon_ddb.template.source import Map, Seq, Tagged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.doctor.model import Function, Model
    from anarchon_ddb.doctor.scope import Node, Scope

CHAPTER = Chapter()
_KNOWN_TRANSFORMS = ("AWS::Serverless-2016-10-31", "AWS::LanguageExtensions")


@CHAPTER.rule(
    "duplicate-key",
    "error",
    title="A key is written twice",
    why="YAML keeps the last one and says nothing: what stands above it is never deployed.",
    fix="Remove one of the two, or give it a name of its own.",
)
def _duplicate_key(model: Model) -> Iterator[Hit]:
    for scope in model.scopes:
        for found in scope.source.duplicates:
            what = f"{found.key} is written twice, first on line {found.first_line}"
            yield Hit(scope.path, found.line, what)


@CHAPTER.rule(
    "nested-template",
    "error",
    title="A nested template can't be read",
    why="The deploy fails, or what it holds (the table, the resumer) could not be checked.",
    fix="Write Location as the path of a template, from the folder of this file on.",
)
def _nested_template(model: Model) -> Iterator[Hit]:
    yield from model.problems


@CHAPTER.rule(
    "nested-parameter",
    "error",
    title="A nested application gets the wrong parameters",
    why="CloudFormation refuses a parameter that is not declared, or one without value or default.",
    fix="Give exactly the parameters that the nested template declares.",
)
def _nested_parameter(model: Model) -> Iterator[Hit]:
    for scope in model.scopes:
        for logical_id, inner in scope.nested.items():
            node = scope.resource(logical_id)
            if node is not None:
                yield from _parameters_of(logical_id, node, inner)


def _parameters_of(logical_id: str, node: Node, inner: Scope) -> Iterator[Hit]:
    declared = inner.section("Parameters")
    given = node.get("Properties", "Parameters")
    written = dict(given.items()) if given else {}
    for name, value in written.items():
        if name not in declared:
            yield at(value, f"{logical_id} is given {name}, which {inner.path} does not declare")
    for name, one in declared.items():
        if name not in written and not (isinstance(one, Map) and "Default" in one):
            yield at(given or node, f"{logical_id} is not given {name}, which has no default")


@CHAPTER.rule(
    "undefined-name",
    "error",
    title="A name that is nowhere defined",
    why="CloudFormation refuses the template when the deploy has begun.",
    fix="Write a parameter, resource, condition or mapping that this template has.",
)
def _undefined_name(model: Model) -> Iterator[Hit]:
    for scope in model.scopes:
        if not _is_generated(scope):
            for what, line in _undefined(scope, scope.source.data, 1, frozenset(), set()):
                yield Hit(scope.path, line, what)


def _is_generated(scope: Scope) -> bool:
    """Whether names may come from what is not written: a macro, or ``Fn::ForEach``."""
    transform = scope.source.data.get("Transform")
    listed = transform if isinstance(transform, list) else [transform]
    if any(_is_macro(one) for one in listed):
        return True
    loops = [key for name in ("Resources", "Conditions", "Outputs") for key in scope.section(name)]
    return any(str(key).startswith("Fn::ForEach") for key in loops)


def _is_macro(one: Any) -> bool:
    return one is not None and one not in _KNOWN_TRANSFORMS


def _undefined(
    scope: Scope, raw: Any, line: int, own: frozenset[str], seen: set[int]
) -> Iterator[tuple[str, int]]:
    if isinstance(raw, (Map, Seq, Tagged)):
        if id(raw) in seen:
            return
        seen.add(id(raw))
        line = raw.line
    call = is_function(raw)
    if call is not None:
        for what in _names_of(scope, *call):
            yield what, line
        raw = call[1]
    pairs = _children(raw)
    for inner, inner_line in pairs:
        yield from _undefined(scope, inner, inner_line or line, own, seen)


def _children(raw: Any) -> list[tuple[Any, int]]:
    if isinstance(raw, Map):
        return [(value, raw.lines.get(key, raw.line)) for key, value in raw.items()]
    if isinstance(raw, Seq):
        return list(zip(raw, raw.lines, strict=True))
    return [(raw, raw.line)] if isinstance(raw, Tagged) else []


def _names_of(scope: Scope, name: str, argument: Any) -> Iterator[str]:
    if name == "Sub":
        yield from _holes(scope, argument)
        return
    first = argument[0] if isinstance(argument, list) and argument else argument
    if not isinstance(first, str):
        return
    if name == "Ref":
        yield from _missing(scope, first, "parameter or resource")
    elif name == "GetAtt":
        yield from _missing(scope, first.partition(".")[0], "resource")
    elif name in {"If", "Condition"} and first not in scope.section("Conditions"):
        yield f"there is no condition {first}"
    elif name == "FindInMap" and first not in scope.section("Mappings"):
        yield f"there is no mapping {first}"


def _holes(scope: Scope, argument: Any) -> Iterator[str]:
    text, own = argument, Map(1)
    if isinstance(argument, list) and len(argument) == 2 and isinstance(argument[1], Map):
        text, own = argument
    for match in HOLE.finditer(text) if isinstance(text, str) else ():
        name = match[1].strip()
        if name not in own:
            yield from _missing(scope, name.partition(".")[0], "parameter or resource")


def _missing(scope: Scope, name: str, kind: str) -> Iterator[str]:
    made = scope.section("Resources")
    if name.startswith(("AWS::", "Serverless")) or name in scope.section("Parameters"):
        return
    if name not in made and not any(_is_made_by_sam(name, str(one)) for one in made):
        yield f"there is no {kind} {name}"


def _is_made_by_sam(name: str, resource: str) -> bool:
    """SAM names the resources that it makes after one that is written: ``ExportRole``."""
    return name.startswith(resource) and name[len(resource) :][:1].isupper()


@CHAPTER.rule(
    "unresolved",
    "note",
    title="Something could not be told offline",
    why="Nothing is guessed: what depends on it was not checked.",
    fix="Give the value with --parameter NAME=VALUE, --region or --stack, and check again.",
)
def _unresolved(model: Model) -> Iterator[Hit]:
    for scope in model.scopes:
        yield from _made_later(scope)
    for function in model.functions:
        yield from _unresolved_of(function)
    for planned in model.schedules:
        for label in ("ScheduleExpressionTimezone", "State", "Enabled", "GroupName"):
            yield from _if_unresolved(planned.properties.get(label), f"{planned.name} {label}")
        yield from _if_unresolved(planned.expression, f"{planned.name} expression")
        yield from _if_unresolved(planned.input, f"{planned.name} Input")


def _unresolved_of(function: Function) -> Iterator[Hit]:
    name = function.logical_id
    for key in ("Timeout", "Handler", "Events", "Policies"):
        yield from _if_unresolved(function.get(key), f"{name} {key}")
    yield from _if_unresolved(function.get("Environment", "Variables"), f"{name} Variables")
    events = function.node.get("Properties", "Events")
    for label, event in events.items() if events else ():
        yield from _if_unresolved(event, f"{name} event {label}")
        yield from _if_unresolved(event.get("Properties"), f"{name} event {label}")
    for key, value in function.environment.items():
        if key.startswith("ANARCHON_"):
            yield from _if_unresolved(value, f"{name} {key}")


def _if_unresolved(node: Node | None, what: str) -> Iterator[Hit]:
    if node is not None and isinstance(node.value, Unresolved):
        yield at(node, f"{what} could not be resolved: {node.value.why}")


def _made_later(scope: Scope) -> Iterator[Hit]:
    section = scope.section("Resources")
    for key in section:
        if str(key).startswith("Fn::"):
            what = f"the resources that {key} makes could not be resolved: they are not checked"
            yield Hit(scope.path, section.lines.get(key, 1), what)
    for kind, key in NESTED:
        for logical_id, node in of_type(scope, kind):
            location = node.get("Properties", key)
            if location is not None and (location.text is None or "://" in location.text):
                what = f"{logical_id} could not be resolved: its template is no file here"
                yield at(location, what, "Check the nested template by itself.")
    data = scope.source.data
    transform = data.get("Transform")
    for one in transform if isinstance(transform, list) else [transform]:
        if _is_macro(one):
            what = f"the macro {one} could not be resolved: what it makes is not checked"
            yield Hit(scope.path, data.lines.get("Transform", 1), what)
