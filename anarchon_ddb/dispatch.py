"""Sending a run on its way: an asynchronous invocation of the function that works on its job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from anarchon_ddb.schema import RunKey
    from anarchon_ddb.store import Store

_CONFIG = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 3})


def resume_payload(key: RunKey) -> dict[str, Any]:
    """Return the event that makes a function go on with a run."""
    return {"job": key.job, "slot": key.slot, "cause": "resume"}


def send(store: Store, function: str, key: RunKey) -> str | None:
    """Invoke a function for a run; return what went wrong, or None.

    It never raises: what could not be sent stays open, and the resumer sends it a minute later.
    The client is made here, after the lease was let go of: it is not on the way to a first batch.
    """
    try:
        client = store.session.create_client("lambda", config=_CONFIG)
        client.invoke(
            FunctionName=function,
            InvocationType="Event",
            Payload=json.dumps(resume_payload(key)).encode(),
        )
    except (BotoCoreError, ClientError) as error:
        return str(error)
    return None
