"""Sending a run on its way: an asynchronous invocation of the function that works on its job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anarchon_ddb.schema import RunKey
    from anarchon_ddb.store import Store


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a function could not be invoked."""

    code: str
    text: str

    @property
    def is_gone(self) -> bool:
        """True if there is no such function any more."""
        return self.code == "ResourceNotFoundException"

    def __str__(self) -> str:
        return self.text


def resume_payload(key: RunKey) -> dict[str, Any]:
    """Return the event that makes a function go on with a run."""
    return {"job": key.job, "slot": key.slot, "cause": "resume"}


def send(store: Store, function: str, key: RunKey) -> Fault | None:
    """Invoke a function for an open run; return what went wrong, or None.

    It never raises: what could not be sent stays open, and the resumer sends it a minute later.
    """
    return invoke(store, function, resume_payload(key))


def invoke(store: Store, function: str, event: Mapping[str, Any]) -> Fault | None:
    """Invoke a function asynchronously; return what went wrong, or None.

    The client is made here, after the lease was let go of: it is not on the way to a first batch.
    """
    try:
        client = store.other_client("lambda")
        client.invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode()
        )
    except (BotoCoreError, ClientError) as error:
        answer = error.response if isinstance(error, ClientError) else {}
        code = answer.get("Error", {}).get("Code") or type(error).__name__
        return Fault(code, str(error))
    return None
