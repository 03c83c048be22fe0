"""A look at the queues of a stack that takes nothing out of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from moto.sqs.models import sqs_backends

from anarchon_ddb.local.stack import ACCOUNT, REGION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def held(name: str) -> list[dict[str, Any]]:
    """Return the messages that a queue holds, oldest first: body and attributes."""
    queue = sqs_backends[ACCOUNT][REGION].queues.get(name)
    return [
        {
            "body": message.body,
            "attributes": {
                key: value.get("StringValue")
                for key, value in sorted(message.message_attributes.items())
            },
        }
        for message in (queue.messages if queue is not None else ())
    ]


def write(names: Iterable[str], directory: Path) -> dict[str, dict[str, Any]]:
    """Write what each queue holds to a file of its own; return how much it is, and where."""
    told = {}
    for name in names:
        messages = held(name)
        path = directory / f"{name}.jsonl"
        if messages:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(one) + "\n" for one in messages), encoding="utf-8")
        told[name] = {"messages": len(messages), "file": str(path) if messages else None}
    return told
