"""The table in a test: moto's, each of its calls in one step."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.store import Store

TABLE = "anarchon"
REGION = "eu-west-1"

_ELSEWHERE = ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_S3")


@contextmanager
def moto_table(clock: Clock) -> Iterator[Store]:
    """Start moto, make the table, and name it in the environment; undo it all at the end.

    moto checks a condition and writes in two steps, so two threads may both win; here each call
    is one step.

    Raises
    ------
    ImportError
        If moto is not installed.
    """
    try:
        from moto import mock_aws  # noqa: PLC0415  only for those who use the table
        from moto.dynamodb.responses import DynamoHandler  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"the table of anarchon_ddb.testing is moto's, which can't be imported ({error}): "
            "pip install 'moto[dynamodb]'"
        ) from error
    from anarchon_ddb import worker  # noqa: PLC0415
    from anarchon_ddb.store import TABLE_SETTING, Store  # noqa: PLC0415

    original, lock = DynamoHandler.call_action, threading.RLock()

    def one_at_a_time(handler: Any) -> Any:
        with lock:
            return original(handler)

    kept, kept_store = dict(os.environ), vars(worker)["_store"]
    DynamoHandler.call_action = one_at_a_time  # type: ignore[method-assign]
    try:
        for name in _ELSEWHERE:
            os.environ.pop(name, None)
        os.environ |= {TABLE_SETTING: TABLE, "AWS_DEFAULT_REGION": REGION}
        # A client that was made before moto started would go to the network.
        vars(worker)["_store"] = None
        with mock_aws():
            store = Store.from_environment(clock=clock)
            store.create_table()
            yield store
    finally:
        DynamoHandler.call_action = original  # type: ignore[method-assign]
        vars(worker)["_store"] = kept_store
        _restore(kept)


def _restore(kept: dict[str, str]) -> None:
    for name in set(os.environ) - set(kept):
        del os.environ[name]
    os.environ |= kept
