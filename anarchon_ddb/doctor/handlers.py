"""What ``@job`` says in a handler's file, read as text: a user's code is never imported."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Declared:
    """A ``@job`` above the function that Lambda calls."""

    path: Path
    line: int
    name: str | None
    """None where it is no literal."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Those that are written as literals."""


@dataclass(frozen=True, slots=True)
class HandlerFile:
    """The file of a handler, found or not."""

    path: Path
    exists: bool
    is_readable: bool = False
    has_function: bool = False
    declared: Declared | None = None


def find(code: Path, handler: str) -> HandlerFile | None:
    """Return what a handler such as ``handlers.export.handler`` is; None for no local folder."""
    module, _, name = handler.rpartition(".")
    if not module or not name or not code.is_dir() or ".." in module:
        return None
    path = code.joinpath(*module.replace("/", ".").split(".")).with_suffix(".py")
    if not path.is_file():
        package = path.with_suffix("") / "__init__.py"
        if not package.is_file():
            return HandlerFile(path, exists=False)
        path = package
    return _read(path, name)


def _read(path: Path, name: str) -> HandlerFile:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return HandlerFile(path, exists=True)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for node in functions:
        if node.name == name:
            declared = [_declared(path, one) for one in node.decorator_list]
            found = next((one for one in declared if one is not None), None)
            return HandlerFile(
                path, exists=True, is_readable=True, has_function=True, declared=found
            )
    assigned = any(name in ast.dump(node) for node in tree.body)
    return HandlerFile(path, exists=True, is_readable=True, has_function=assigned)


def _declared(path: Path, node: ast.expr) -> Declared | None:
    if not isinstance(node, ast.Call):
        return None
    called = node.func
    word = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
    if word != "job":
        return None
    name = _literal(node.args[0]) if node.args else None
    options = {one.arg: _literal(one.value) for one in node.keywords if one.arg}
    known = {option: value for option, value in options.items() if value is not None}
    return Declared(path, node.lineno, name if isinstance(name, str) else None, known)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
