"""What a function may call: its policies as a flat list of statements."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from anarchon_ddb.doctor.scope import Node, Reference, Unresolved
from anarchon_ddb.template.source import Map

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.doctor.model import Function


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, or a policy that is only named."""

    node: Node
    effect: str
    actions: tuple[str, ...]
    resources: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Grants:
    """What a function may call, and what of it can't be told."""

    statements: tuple[Statement, ...]
    named: tuple[Node, ...]
    """Managed policies and SAM's policy templates, by name."""
    unknown: tuple[Node, ...]

    def allow(self, action: str) -> bool:
        """Return whether a statement allows an action, on whatever."""
        return any(
            statement.effect == "Allow"
            and any(fnmatchcase(action.lower(), one.lower()) for one in statement.actions)
            for statement in self.statements
        )


def grants(function: Function) -> Grants:
    """Return what the policies of a function grant."""
    sorted_out = _Sorter()
    role = function.get("Role")
    if role is not None:
        sorted_out.role(role)
    policies = function.get("Policies")
    for policy in policies.elements() if policies else ():
        sorted_out.policy(policy)
    return Grants(tuple(sorted_out.statements), tuple(sorted_out.named), tuple(sorted_out.unknown))


class _Sorter:
    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.named: list[Node] = []
        self.unknown: list[Node] = []

    def role(self, role: Node) -> None:
        found = _behind(role)
        if found is None:
            self.unknown.append(role)
            return
        for key in ("Policies", "ManagedPolicyArns"):
            listed = found.get("Properties", key)
            for policy in listed.elements() if listed else ():
                self.policy(policy)

    def policy(self, policy: Node) -> None:
        if isinstance(policy.value, Reference):
            found = _behind(policy)
            document = found.get("Properties", "PolicyDocument") if found else None
            self._document(document, policy)
        elif isinstance(policy.value, Map):
            document = policy.get("PolicyDocument") or policy
            if "Statement" in policy.value or "PolicyDocument" in policy.value:
                self._document(document, policy)
            else:
                self.named.append(policy)
        elif isinstance(policy.value, str):
            self.named.append(policy)
        else:
            self.unknown.append(policy)

    def _document(self, document: Node | None, policy: Node) -> None:
        listed = document.get("Statement") if document else None
        if listed is None:
            self.unknown.append(policy)
            return
        for node in listed.elements():
            if isinstance(node.value, Unresolved):
                self.unknown.append(node)
            elif isinstance(node.value, Map):
                self.statements.append(_statement(node))


def _behind(node: Node) -> Node | None:
    value = node.value
    return value.scope.resource(value.logical_id) if isinstance(value, Reference) else None


def _statement(node: Node) -> Statement:
    effect = node.get("Effect")
    actions = tuple(str(one.value) for one in _listed(node.get("Action")) if one.text is not None)
    resources = tuple(_listed(node.get("Resource")))
    return Statement(node, (effect.text if effect else None) or "", actions, resources)


def _listed(node: Node | None) -> Iterator[Node]:
    return node.elements() if node is not None else iter(())
