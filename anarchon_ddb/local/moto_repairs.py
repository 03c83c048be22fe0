"""What is changed in moto while the embedded AWS runs, and undone when it stops.

* The time at which a schedule was created is that of the cloud's clock.
* A conditional write is one step. moto checks and writes in two, so two threads may both win.
* A page of items is answered quickly. moto looks up every attribute of every item by all names it
  might have in a Python object, about 0.5 ms an item; here most are on the wire's form already.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from moto.core.serialize import BaseJSONSerializer
from moto.dynamodb.responses import DynamoHandler
from moto.scheduler import models as scheduler_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anarchon_ddb.clock import Clock


@contextmanager
def repaired(clock: Clock) -> Iterator[None]:
    """Change moto for the time of the context."""
    with (
        # A second earlier: of a slot at the very moment of its creation nobody can say it was due.
        _replaced(
            scheduler_models, "unix_time", lambda _original: lambda: clock.now_ms() / 1000 - 1
        ),
        _replaced(DynamoHandler, "call_action", _one_at_a_time),
        _replaced(BaseJSONSerializer, "_serialize_type_structure", _quick),
    ):
        yield


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _one_at_a_time(call_action: Callable[[Any], Any]) -> Callable[[Any], Any]:
    lock = threading.Lock()

    def locked(handler: Any) -> Any:
        with lock:
            return call_action(handler)

    return locked


def _quick(structure: Callable[..., None]) -> Callable[..., None]:
    def serialize(self: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
        if key and shape.name == "AttributeValue" and _is_plain(value):
            serialized[key] = value
        else:
            structure(self, serialized, value, shape, key)

    return serialize


def _is_plain(value: Any) -> bool:
    """Tell whether a value is a string or a number as DynamoDB's JSON has it."""
    if type(value) is not dict or len(value) != 1:
        return False
    kind, content = next(iter(value.items()))
    return kind in {"S", "N"} and type(content) is str
