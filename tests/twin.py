"""A DynamoDB table small and fast enough to explore thousands of interleavings on.

It evaluates the very expressions that the store sends: compiled once to Python, then a write takes
microseconds. ``tests/integration/test_twin.py`` runs the same writes on moto and compares.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from types import CodeType
from typing import Any

from botocore.exceptions import ClientError

Item = dict[str, Any]

_NAME = re.compile(r"#(\w+)")
_VALUE = re.compile(r":(\w+)")


def decode(wire: dict[str, Any]) -> Any:
    kind, value = next(iter(wire.items()))
    if kind == "N":
        return int(value)
    return frozenset(value) if kind == "SS" else value


def encode(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"N": str(value)}
    return {"SS": sorted(value)} if isinstance(value, frozenset) else {"S": value}


def _less(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one < other


def _at_most(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one <= other


def _equal(one: Any, other: Any) -> bool:
    return one is not None and one == other


def _operand(text: str) -> str:
    text = text.strip()
    return f'i.get("{text[1:]}")' if text[0] == "#" else f'v["{text[1:]}"]'


@cache
def condition(text: str) -> CodeType:
    """Compile a condition expression to Python over ``i`` (the item) and ``v`` (the values)."""
    text = re.sub(r"attribute_not_exists\(#(\w+)\)", r"('\1' not in i)", text)
    text = re.sub(r"attribute_exists\(#(\w+)\)", r"('\1' in i)", text)
    text = re.sub(
        r"([#:]\w+) IN \(([^)]*)\)",
        lambda match: (
            f"({_operand(match[1])} in ({', '.join(map(_operand, match[2].split(',')))}))"
        ),
        text,
    )
    for sign, call in (("<=", "at_most"), ("<", "less"), ("=", "equal")):
        text = re.sub(
            rf"([#:]\w+) {sign} ([#:]\w+)",
            lambda match, call=call: f"{call}({_operand(match[1])}, {_operand(match[2])})",
            text,
        )
    text = text.replace(" AND ", " and ").replace(" OR ", " or ")
    return compile(text, "condition", "eval")


@cache
def assignments(text: str) -> tuple[tuple[tuple[str, CodeType], ...], tuple[str, ...]]:
    """Compile an update expression: what is set to what, and what is removed."""
    sets, _, removes = text.removeprefix("SET ").partition(" REMOVE ")
    compiled = []
    for assignment in re.split(r", (?=#\w+ = )", sets):
        name, _, value = assignment.partition(" = ")
        value = re.sub(
            r"if_not_exists\(#(\w+), ([#:]\w+)\)",
            lambda match: f"(i[{match[1]!r}] if {match[1]!r} in i else {_operand(match[2])})",
            value,
        )
        value = _VALUE.sub(lambda match: f"v[{match[1]!r}]", value)
        compiled.append((name[1:], compile(value, "update", "eval")))
    return tuple(compiled), tuple(_NAME.findall(removes))


class Twin:
    """One table, as ``Connection.dispatch`` would call it."""

    def __init__(self, *, knows_tokens: bool = True) -> None:
        self.knows_tokens = knows_tokens
        """DynamoDB does, for ten minutes; moto does not."""
        self.tokens: dict[str, dict[str, Any]] = {}
        self.items: dict[tuple[str, str], Item] = {}

    def dispatch(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = getattr(self, operation)(request)
        return found

    def GetItem(self, request: dict[str, Any]) -> dict[str, Any]:
        item = self.items.get(_key(request))
        return {} if item is None else {"Item": _wire(item)}

    def UpdateItem(self, request: dict[str, Any]) -> dict[str, Any]:
        key = _key(request)
        old = self.items.get(key, {})
        values = {
            name[1:]: decode(wire) for name, wire in request["ExpressionAttributeValues"].items()
        }
        _refuse_unused(request)
        if not _holds(request, old, values):
            raise ClientError(
                {"Error": {"Code": "ConditionalCheckFailedException", "Message": "refused"}},
                "UpdateItem",
            )
        new = _updated(request, key, old, values)
        self.items[key] = new
        return {"Attributes": _wire(new)} if request["ReturnValues"] == "ALL_NEW" else {}

    def TransactWriteItems(self, request: dict[str, Any]) -> dict[str, Any]:
        """All or nothing. One namespace for all tables; keys are pk and sk."""
        token = request["ClientRequestToken"]
        if self.knows_tokens and token in self.tokens:
            assert self.tokens[token] == request, "one token for two requests"
            return {}
        staged = dict(self.items)
        actions = [next(iter(action.items())) for action in request["TransactItems"]]
        reasons = [_staged(staged, kind, body) for kind, body in actions]
        if any(reason != "None" for reason in reasons):
            message = f"Transaction cancelled [{', '.join(reasons)}]"
            answer: Any = {
                "Error": {"Code": "TransactionCanceledException", "Message": message},
                "CancellationReasons": [{"Code": reason} for reason in reasons],
            }
            raise ClientError(answer, "TransactWriteItems")
        self.items = staged
        self.tokens[token] = request
        return {}

    def Query(self, request: dict[str, Any]) -> dict[str, Any]:
        if "IndexName" not in request:
            return self._query_runs(request["ExpressionAttributeValues"])
        values = request["ExpressionAttributeValues"]
        shard, due = values[":shard"]["S"], int(values[":due"]["N"])
        found = [
            item
            for item in self.items.values()
            if item.get("open") == shard and item.get("due", due + 1) <= due
        ]
        found.sort(key=lambda item: item["due"])
        return {"Items": [{"pk": {"S": item["pk"]}, "sk": {"S": item["sk"]}} for item in found]}

    def _query_runs(self, values: dict[str, Any]) -> dict[str, Any]:
        pk, first, last = (values[name]["S"] for name in (":pk", ":first", ":last"))
        keys = sorted(sk for found, sk in self.items if found == pk and first <= sk <= last)
        return {"Items": [{"pk": {"S": pk}, "sk": {"S": sk}} for sk in keys]}

    def snapshot(self) -> dict[tuple[str, str], Item]:
        return copy.deepcopy(self.items)


def _key(request: dict[str, Any]) -> tuple[str, str]:
    return request["Key"]["pk"]["S"], request["Key"]["sk"]["S"]


def _holds(request: dict[str, Any], item: Item, values: dict[str, Any]) -> bool:
    names = {"i": item, "v": values, "less": _less, "at_most": _at_most, "equal": _equal}
    text = request.get("ConditionExpression")
    return text is None or bool(eval(condition(text), names))


def _updated(
    request: dict[str, Any], key: tuple[str, str], old: Item, values: dict[str, Any]
) -> Item:
    sets, removes = assignments(request["UpdateExpression"])
    names = {"i": old, "v": values}
    new = dict(old) or {"pk": key[0], "sk": key[1]}
    new |= {name: eval(value, names) for name, value in sets}
    for name in removes:
        new.pop(name, None)
    return new


def _staged(items: dict[tuple[str, str], Item], kind: str, request: dict[str, Any]) -> str:
    """Do one action of a transaction on the items; return why not, or ``None`` as a text."""
    where = request["Item"] if kind == "Put" else request["Key"]
    key = where["pk"]["S"], where["sk"]["S"]
    old = items.get(key, {})
    wire = request.get("ExpressionAttributeValues", {})
    values = {name[1:]: decode(value) for name, value in wire.items()}
    if not _holds(request, old, values):
        return "ConditionalCheckFailed"
    if kind == "Put":
        items[key] = {name: decode(value) for name, value in request["Item"].items()}
    elif kind == "Update":
        items[key] = _updated(request, key, old, values)
    elif kind == "Delete":
        items.pop(key, None)
    return "None"


def _wire(item: Item) -> dict[str, Any]:
    return {name: encode(value) for name, value in item.items()}


def _refuse_unused(request: dict[str, Any]) -> None:
    """Refuse values and names that no expression uses, as DynamoDB does."""
    used = f"{request['UpdateExpression']} {request['ConditionExpression']}"
    given = {*request["ExpressionAttributeValues"], *request["ExpressionAttributeNames"]}
    named = set(re.findall(r"[#:]\w+", used))
    if given != named:
        raise AssertionError(f"given and used differ: {given ^ named}")
