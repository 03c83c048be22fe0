"""CloudFormation's intrinsic functions, as far as they can be known offline.

A function that can't be evaluated gives ``Unresolved`` with the reason. A wrong call (a list where
a name belongs) does so, too: other tools tell of it, and a guess would be worse.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from anarchon_ddb.doctor.scope import (
    NO_VALUE,
    Holed,
    Node,
    Reference,
    Scope,
    Unresolved,
    is_function,
)
from anarchon_ddb.template.source import Map, Seq

if TYPE_CHECKING:
    from collections.abc import Callable

HOLE = re.compile(r"\$\{([^}!][^}]*)\}")
_LITERAL = re.compile(r"\$\{!([^}]*)\}")
_DEEPEST = 40


class _MalformedError(Exception):
    """A function with an argument that it does not take."""


def evaluate(scope: Scope, raw: Any, depth: int = 0) -> Any:
    """Return a plain value, a node of another template, or what is known instead."""
    if isinstance(raw, str) and "{{resolve:" in raw:
        return Unresolved(f"{raw[:60]} is looked up when it is deployed")
    call = is_function(raw)
    if call is None:
        return raw
    name, argument = call
    if name not in _FUNCTIONS:
        return Unresolved(f"{name} is not known before it is deployed")
    if depth > _DEEPEST:
        return Unresolved(f"{name} is nested too deeply, or refers to itself")
    try:
        return _FUNCTIONS[name](scope, argument, depth + 1)
    except (_MalformedError, ValueError, TypeError, IndexError, KeyError):
        return Unresolved(f"{name} has an argument that it does not take")


def holds(scope: Scope, name: str, depth: int = 0) -> bool | Unresolved:
    """Return whether a named condition holds, if that can be told."""
    conditions = scope.section("Conditions")
    if name not in conditions:
        return Unresolved(f"there is no condition {name}")
    return _holds(scope, conditions[name], depth + 1)


def _holds(scope: Scope, raw: Any, depth: int) -> bool | Unresolved:
    if depth > _DEEPEST:
        return Unresolved("a condition refers to itself")
    if isinstance(raw, Map) and set(raw) == {"Condition"}:
        return holds(scope, str(raw["Condition"]), depth)
    found = _plain(scope, raw, depth)
    if isinstance(found, (bool, Unresolved)):
        return found
    if found in ("true", "false"):
        return bool(found == "true")
    return Unresolved("a condition is no condition function")


def _plain(scope: Scope, raw: Any, depth: int) -> Any:
    found = evaluate(scope, raw, depth)
    return found.value if isinstance(found, Node) else found


def _ref(scope: Scope, name: Any, _depth: int) -> Any:
    if not isinstance(name, str):
        raise _MalformedError
    if name == "AWS::NoValue":
        return NO_VALUE
    if name.startswith("AWS::"):
        return scope.pseudo.get(name) or Holed(f"${{{scope.label}{name}}}")
    if name in scope.section("Parameters"):
        return _parameter(scope, name)
    if name in scope.section("Resources"):
        return Reference(scope, name)
    return Unresolved(f"there is no parameter or resource {name}")


def _parameter(scope: Scope, name: str) -> Any:
    if name in scope.given:
        return scope.given[name]
    declared = scope.section("Parameters")[name]
    if not isinstance(declared, Map) or "Default" not in declared:
        return Unresolved(f"parameter {name} has no default: give --parameter {name}=…")
    if str(declared.get("Type", "")).startswith("AWS::SSM::"):
        return Unresolved(f"parameter {name} is looked up in SSM when it is deployed")
    default = declared["Default"]
    return ("true" if default else "false") if isinstance(default, bool) else default


def _get_att(scope: Scope, argument: Any, _depth: int) -> Any:
    if isinstance(argument, Seq) and all(isinstance(part, str) for part in argument):
        argument = ".".join(argument)
    if not isinstance(argument, str):
        raise _MalformedError
    logical_id, _, attribute = argument.partition(".")
    if logical_id not in scope.section("Resources"):
        return Unresolved(f"there is no resource {logical_id}")
    if attribute.startswith("Outputs."):
        return _output(scope, logical_id, attribute.removeprefix("Outputs."))
    return Reference(scope, logical_id, attribute)


def _output(scope: Scope, logical_id: str, name: str) -> Any:
    inner = scope.nested.get(logical_id)
    if inner is None:
        return Unresolved(f"the template of {logical_id} is not a file that can be read here")
    value = inner.root.get("Outputs", name, "Value")
    return value or Unresolved(f"the template of {logical_id} has no output {name}")


def _sub(scope: Scope, argument: Any, depth: int) -> Any:
    text, extra = (argument, Map(1)) if isinstance(argument, str) else argument
    if not isinstance(text, str) or not isinstance(extra, Map):
        raise _MalformedError
    problems: list[Unresolved] = []
    holed = False

    def replace(match: re.Match[str]) -> str:
        nonlocal holed
        name = match[1].strip()
        if name in extra:
            found = _plain(scope, extra[name], depth)
        else:
            found = _plain_call(_get_att if "." in name else _ref, scope, name, depth)
        if isinstance(found, Unresolved):
            problems.append(found)
        holed = holed or isinstance(found, (Holed, Reference))
        return _written(found)

    made = _LITERAL.sub(r"${\1}", HOLE.sub(replace, text))
    if problems:
        return problems[0]
    return Holed(made) if holed else made


def _plain_call(function: Callable[[Scope, Any, int], Any], *arguments: Any) -> Any:
    found = function(*arguments)
    return found.value if isinstance(found, Node) else found


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _joined(texts: list[Any], separator: str) -> Any:
    unresolved = [one for one in texts if isinstance(one, Unresolved)]
    if unresolved:
        return unresolved[0]
    made = separator.join(map(_written, texts))
    return Holed(made) if any(isinstance(one, (Holed, Reference)) for one in texts) else made


def _join(scope: Scope, argument: Any, depth: int) -> Any:
    separator, parts = argument
    listed = _plain(scope, parts, depth)
    if isinstance(listed, Unresolved):
        return listed
    texts = [_plain(scope, part, depth) for part in listed] if isinstance(listed, list) else None
    if texts is None:
        raise _MalformedError
    return _joined([text for text in texts if text is not NO_VALUE], str(separator))


def _if(scope: Scope, argument: Any, depth: int) -> Any:
    name, then, otherwise = argument
    found = holds(scope, str(name), depth)
    if isinstance(found, Unresolved):
        return Unresolved(f"If of condition {name}: {found.why}")
    return evaluate(scope, then if found else otherwise, depth)


def _equals(scope: Scope, argument: Any, depth: int) -> Any:
    left, right = (_plain(scope, side, depth) for side in argument)
    for side in (left, right):
        if isinstance(side, Unresolved):
            return side
        if isinstance(side, (Holed, Reference)):
            return Unresolved(f"{side} is not known before it is deployed")
    return _written(left) == _written(right)


def _not(scope: Scope, argument: Any, depth: int) -> Any:
    found = _holds(scope, argument[0], depth)
    return found if isinstance(found, Unresolved) else not found


def _decided(scope: Scope, argument: Any, depth: int, *, by: bool) -> Any:
    """One that decides is enough, however many can't be told."""
    found = [_holds(scope, one, depth) for one in argument]
    if any(one is by for one in found):
        return by
    unresolved = [one for one in found if isinstance(one, Unresolved)]
    return unresolved[0] if unresolved else not by


def _condition(scope: Scope, argument: Any, depth: int) -> Any:
    return holds(scope, str(argument), depth)


def _find_in_map(scope: Scope, argument: Any, depth: int) -> Any:
    names = [_plain(scope, part, depth) for part in argument[:3]]
    unresolved = _joined(names, ".")
    if isinstance(unresolved, Unresolved):
        return unresolved
    if isinstance(unresolved, Holed):
        return Unresolved(f"FindInMap of {unresolved} is not known before it is deployed")
    found: Any = scope.section("Mappings")
    for name in names:
        if not isinstance(found, Map) or name not in found:
            return _map_default(scope, argument, unresolved, depth)
        found = found[name]
    return found


def _map_default(scope: Scope, argument: Any, name: str, depth: int) -> Any:
    if len(argument) == 4 and isinstance(argument[3], Map) and "DefaultValue" in argument[3]:
        return evaluate(scope, argument[3]["DefaultValue"], depth)
    return Unresolved(f"there is no {name} in Mappings")


def _select(scope: Scope, argument: Any, depth: int) -> Any:
    index = _plain(scope, argument[0], depth)
    listed = _plain(scope, argument[1], depth)
    if isinstance(listed, str) and not isinstance(listed, Holed):  # a CommaDelimitedList
        listed = [part.strip() for part in listed.split(",")]
    for part in (index, listed):
        if isinstance(part, (Unresolved, Holed)):
            return part if isinstance(part, Unresolved) else Unresolved(f"{part} is not known yet")
    if not isinstance(listed, list) or int(index) < 0:
        raise _MalformedError
    return evaluate(scope, listed[int(index)], depth)


def _split(scope: Scope, argument: Any, depth: int) -> Any:
    text = _plain(scope, argument[1], depth)
    if isinstance(text, Unresolved):
        return text
    if not isinstance(text, str) or isinstance(text, Holed):
        return Unresolved(f"{text} is not known before it is deployed")
    made = Seq(1)
    made.extend(text.split(str(argument[0])))
    made.lines.extend([1] * len(made))
    return made


def _to_json(scope: Scope, argument: Any, _depth: int) -> Any:
    found = scope.node(argument, 1).deep()
    if isinstance(found, Unresolved):
        return found
    holes: list[Any] = []

    def write(value: Any) -> str:
        holes.append(value)
        return str(value)

    text = json.dumps(found, default=write)
    return Holed(text) if holes or HOLE.search(text) else text


_FUNCTIONS: dict[str, Callable[[Scope, Any, int], Any]] = {
    "Ref": _ref,
    "GetAtt": _get_att,
    "Sub": _sub,
    "Join": _join,
    "If": _if,
    "Equals": _equals,
    "Not": _not,
    "And": lambda scope, argument, depth: _decided(scope, argument, depth, by=False),
    "Or": lambda scope, argument, depth: _decided(scope, argument, depth, by=True),
    "Condition": _condition,
    "FindInMap": _find_in_map,
    "Select": _select,
    "Split": _split,
    "ToJsonString": _to_json,
}
