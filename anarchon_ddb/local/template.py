"""The functions of a template, such as ``!Ref``, resolved to what the local stack has.

Nothing is guessed: a function that can't be resolved on one machine is an error that
names the line it stands on.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

from anarchon_ddb.template.source import Map, Tagged, TemplateError, load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class _UnknownError(Exception):
    """What can't be resolved, before the place is known."""


class UnresolvedError(TemplateError):
    """A function of the template that can't be resolved on one machine."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path} line {line}: {problem}" if line else f"{path}: {problem}")
        self.problem = problem


__all__ = ["Map", "Resolver", "TemplateError", "UnresolvedError", "load"]

_NO_VALUE = object()
"""What ``Ref: AWS::NoValue`` gives: the property or element is left out."""


class Resolver:
    """Resolves CloudFormation's functions to the names of the local stack.

    Parameters
    ----------
    path : Path
        The template's, for messages.
    values : dict
        What ``Ref`` gives: parameters, pseudo parameters and resources by logical id.
    attributes : dict
        What ``GetAtt`` gives, as ``Table.Arn``.
    conditions : mapping
        The template's ``Conditions``.
    mappings : mapping
        The template's ``Mappings``.
    """

    def __init__(
        self,
        path: Path,
        values: dict[str, str],
        attributes: dict[str, str],
        conditions: Mapping[str, Any] | None = None,
        mappings: Mapping[str, Any] | None = None,
    ) -> None:
        self.values = values
        self.attributes = attributes
        self._path = path
        self._conditions = conditions or {}
        self._mappings = mappings or {}
        self._functions: Mapping[str, Callable[[Any], Any]] = {
            "Ref": self._ref,
            "Sub": self._sub,
            "GetAtt": self._get_att,
            "Join": self._join,
            "Select": lambda pair: self.resolve(pair[1])[int(self.resolve(pair[0]))],
            "Split": lambda pair: str(self.resolve(pair[1])).split(pair[0]),
            "Base64": lambda text: base64.b64encode(str(self.resolve(text)).encode()).decode(),
            "FindInMap": self._find_in_map,
            "If": self._if,
            "Equals": lambda pair: self.resolve(pair[0]) == self.resolve(pair[1]),
            "Not": lambda one: not self._holds(one[0]),
            "And": lambda all_of: all(self._holds(condition) for condition in all_of),
            "Or": lambda any_of: any(self._holds(condition) for condition in any_of),
            "Condition": self.condition,
        }

    def resolve(self, value: Any) -> Any:
        """Return a value with every function in it replaced by what it gives.

        Raises
        ------
        TemplateError
            If one of them can't be resolved here.
        """
        if isinstance(value, Tagged):
            return self._apply(value.name, value.argument, value.line)
        if isinstance(value, dict):
            name = next(iter(value), "")
            if len(value) == 1 and (name == "Ref" or str(name).startswith("Fn::")):
                return self._apply(
                    name.removeprefix("Fn::"), value[name], getattr(value, "line", 0)
                )
            pairs = ((key, self.resolve(inner)) for key, inner in value.items())
            return {key: inner for key, inner in pairs if inner is not _NO_VALUE}
        if isinstance(value, list):
            return [inner for inner in map(self.resolve, value) if inner is not _NO_VALUE]
        return value

    def condition(self, name: str) -> bool:
        """Return whether a named condition of the template holds."""
        if name not in self._conditions:
            raise TemplateError(f"{self._path}: no condition named {name!r}")
        return self._holds(self._conditions[name])

    def _apply(self, name: str, argument: Any, line: int) -> Any:
        try:
            if name not in self._functions:
                raise _UnknownError(f"{name} can't be resolved on one machine")
            return self._functions[name](argument)
        except _UnknownError as error:
            raise UnresolvedError(self._path, line, str(error)) from None
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            problem = f"{name} has arguments that it can't have: {argument!r}"
            raise UnresolvedError(self._path, line, problem) from None

    def _ref(self, name: str) -> Any:
        return _NO_VALUE if name == "AWS::NoValue" else _look_up(self.values, name, "Ref")

    def _get_att(self, argument: str | list[str]) -> str:
        name = argument if isinstance(argument, str) else ".".join(argument)
        return _look_up(self.attributes, name, "GetAtt")

    def _sub(self, argument: str | list[Any]) -> str:
        text, extra = (argument, {}) if isinstance(argument, str) else argument
        own = {name: str(self.resolve(value)) for name, value in extra.items()}

        def replace(match: re.Match[str]) -> str:
            name = match[1]
            if name.startswith("!"):  # ${!Literal}
                return "${" + name[1:] + "}"
            if name in own:
                return own[name]
            return self._get_att(name) if "." in name else str(self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", replace, text)

    def _join(self, argument: list[Any]) -> str:
        separator, parts = argument
        return str(separator).join(str(self.resolve(part)) for part in parts)

    def _find_in_map(self, argument: list[Any]) -> Any:
        name, *keys = (str(self.resolve(part)) for part in argument)
        found = self._mappings.get(name)
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise _UnknownError(f"FindInMap of {name}: nothing at {'.'.join(keys)}")
        return found

    def _if(self, argument: list[Any]) -> Any:
        name, holds, otherwise = argument
        return self.resolve(holds if self.condition(name) else otherwise)

    def _holds(self, condition: Any) -> bool:
        if isinstance(condition, dict) and set(condition) == {"Condition"}:
            return self.condition(condition["Condition"])
        return bool(self.resolve(condition))


def _look_up(known: Mapping[str, str], name: str, function: str) -> str:
    if name not in known:
        raise _UnknownError(f"{function} of {name!r}: no such parameter, resource or attribute")
    return known[name]
