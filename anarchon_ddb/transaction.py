"""A commit as a value: the user's writes and the checkpoint in one transaction.

DynamoDB stores all of them or none. The checkpoint's part is a save (``protocol``), so the fence is
the same one; but a repeat must be refused instead of let through, since the user's part, such as
an addition, may not be repeatable. No I/O.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from anarchon_ddb.errors import CommitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT_ITEMS = 100
"""Actions in one transaction, the checkpoint's included (AWS: TransactWriteItems)."""

LIMIT_BYTES = 4 * 1024 * 1024
"""Size of all items in one transaction (AWS: TransactWriteItems)."""

ACTIONS = ("Put", "Update", "Delete", "ConditionCheck")

TRANSIENT = frozenset({"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"})
"""Reasons for which a cancelled transaction is sent again: none of it was stored."""

REFUSED = "ConditionalCheckFailed"

Item = dict[str, Any]
"""One action as ``TransactWriteItems`` takes it: ``{"Put": {"TableName": …, "Item": …}}``."""

Reason = tuple[str, str]
"""Why one action was refused: DynamoDB's code and message; code ``None`` if it was not."""


def token(owner: str, attempt: int, seq: int) -> str:
    """Return the ``ClientRequestToken``: one for each commit, the same on each try of it.

    DynamoDB answers a second try of the same token with success, for ten minutes. An owner is
    never used twice and an attempt gives no ``seq`` to two writes, so no two commits share one.

    Examples
    --------
    >>> len(token("5f0c", 2, 17))
    36
    """
    return hashlib.sha256(f"{owner} {attempt} {seq}".encode()).hexdigest()[:36]


def check(items: Sequence[Item], run: Mapping[str, Any], checkpoint: str) -> None:
    """Refuse what DynamoDB would refuse, before the call.

    Parameters
    ----------
    items : sequence of dict
        The user's actions.
    run : mapping
        ``TableName`` and ``Key`` of the run: the commit writes it itself.
    checkpoint : str
        The encoded cursor, which counts in the size.

    Raises
    ------
    CommitError
        For too many items, too many bytes, another form than the low-level client's, or an item
        of the user's that is the run itself.
    """
    if len(items) >= LIMIT_ITEMS:
        raise CommitError(
            f"{len(items)} items and the checkpoint are more than the {LIMIT_ITEMS} that DynamoDB "
            f"stores in one transaction: make the batch smaller, {LIMIT_ITEMS - 1} at most"
        )
    size = len(checkpoint.encode())
    for index, item in enumerate(items):
        action = _action(index, item)
        if {name: action.get(name) for name in run} == dict(run):
            raise CommitError(
                f"item {index} is the run itself: commit writes and fences it already; "
                "condition_check() is for transactions of your own",
                index=index,
            )
        size += size_bytes(action.get("Item", action))
    if size > LIMIT_BYTES:
        raise CommitError(
            f"the items and the checkpoint have {size:,} bytes, more than the {LIMIT_BYTES:,} that "
            "DynamoDB stores in one transaction: make the batch smaller"
        )


def _action(index: int, item: Item) -> Mapping[str, Any]:
    kinds = list(item) if isinstance(item, dict) else [type(item).__name__]
    if len(kinds) != 1 or kinds[0] not in ACTIONS:
        raise CommitError(
            f"item {index} has {', '.join(map(str, kinds)) or 'nothing'}, expected one of "
            f"{', '.join(ACTIONS)} as the low-level client takes it: "
            '{"Put": {"TableName": "planes", "Item": {"id": {"S": "N10156"}}}}',
            index=index,
        )
    action: Mapping[str, Any] = item[kinds[0]]
    return action


def size_bytes(value: object) -> int:
    """Return about how many bytes DynamoDB counts: UTF-8 of names and values.

    Examples
    --------
    >>> size_bytes({"id": {"S": "é"}})
    5
    """
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, dict):
        return sum(size_bytes(name) + size_bytes(part) for name, part in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return sum(map(size_bytes, value))
    return 1


def refusal(reasons: Sequence[Reason], items: Sequence[Item]) -> CommitError:
    """Return the error for a transaction that one of the user's own conditions cancelled."""
    index = next((i for i, reason in enumerate(reasons) if reason[0] not in {"None", ""}), 0)
    code, message = reasons[index] if reasons else ("unknown", "")
    kind, action = next(iter(items[index].items())) if index < len(items) else ("checkpoint", {})
    where = f"{kind} on table {action.get('TableName')!r}" if action else kind
    return CommitError(
        f"item {index} ({where}) was refused: {code}: {message}. Nothing of the commit was stored, "
        "and the checkpoint is where it was",
        index=index,
        code=code,
    )
