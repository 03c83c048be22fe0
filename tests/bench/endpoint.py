"""What both sides talk to: dynalite over HTTP, or a tape of its replies; and the meter.

The tape lies below everything that costs CPU: the request is serialised and signed, the reply is
parsed. Only the socket is left out, on both sides.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import botocore.client
import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from anarchon_ddb.clock import iso
from anarchon_ddb.store import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, TRIES
from tests.dynalite import Dynalite

WRITES = frozenset({"UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems"})
READS = frozenset({"GetItem", "Query", "TransactGetItems"})


class WrongContentError(Exception):
    """A side left something else than it had to: its time means nothing."""


def require(*, is_right: bool, found: object) -> None:
    if not is_right:
        raise WrongContentError(found)


@contextlib.contextmanager
def server() -> Iterator[Dynalite]:
    """Start dynalite and point this process's SDK to it."""
    with Dynalite() as dynalite, dynalite.environment():
        yield dynalite


def client() -> Any:
    """Return a bare botocore client with the timeouts and tries that ours has."""
    retries: Any = {"total_max_attempts": TRIES}
    config = Config(connect_timeout=CONNECT_TIMEOUT_S, read_timeout=READ_TIMEOUT_S, retries=retries)
    return botocore.session.get_session().create_client("dynamodb", config=config)


def make_table(made: Any, table: str, *keys: str) -> None:
    """Create a peer's table with string keys, unless it is there."""
    schema = [
        {"AttributeName": key, "KeyType": kind}
        for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)
    ]
    with contextlib.suppress(made.exceptions.ResourceInUseException):
        made.create_table(
            TableName=table,
            KeySchema=schema,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
        )
    made.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})


def new_slots() -> Iterator[str]:
    """Yield slots, each a second after the one before, all of them in the past."""
    first = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=24)
    return (iso(first + timedelta(seconds=number)) for number in count())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Send the log to where it costs no terminal; it is still made and written."""
    with Path(os.devnull).open("w", encoding="utf-8") as sink, contextlib.redirect_stdout(sink):
        yield


class Tape:
    """The endpoint's replies to one client, recorded in order and played again without a socket.

    Parameters
    ----------
    made : client
        Of botocore or boto3.
    """

    def __init__(self, made: Any) -> None:
        self._session = made._endpoint.http_session
        self._replies: dict[str, list[tuple[dict[str, str], bytes]]] = defaultdict(list)
        self._played: Counter[str] = Counter()
        self._is_recording = self._is_playing = False
        self._latency_s = 0.0
        made.meta.events.register("before-send.dynamodb", self._send)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Take down every reply; what was recorded before is forgotten."""
        self._replies.clear()
        self._is_recording = True
        try:
            yield
        finally:
            self._is_recording = False

    @contextlib.contextmanager
    def playing(self, latency_s: float = 0.0) -> Iterator[None]:
        """Answer each operation with its recorded replies in turn, each after so many seconds."""
        self._played.clear()
        self._is_playing, self._latency_s = True, latency_s
        try:
            yield
        finally:
            self._is_playing = False
        counts = {operation: len(replies) for operation, replies in self._replies.items()}
        require(is_right=dict(self._played) == counts, found=(self._played, counts))

    @contextlib.contextmanager
    def repeating(self) -> Iterator[None]:
        """Answer at once, each time with the last reply that was recorded."""
        for replies in self._replies.values():
            del replies[:-1]
        self._is_playing, self._latency_s = True, 0.0
        try:
            yield
        finally:
            self._is_playing = False

    def _send(self, request: Any, **_: object) -> AWSResponse | None:
        if not (self._is_playing or self._is_recording):
            return None
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        if self._is_playing:
            return self._play(operation, request.url)
        answered: AWSResponse = self._session.send(request)
        self._replies[operation].append((answered.headers, answered.content))
        return answered

    def _play(self, operation: str, url: str) -> AWSResponse:
        if self._latency_s:
            time.sleep(self._latency_s)
        replies = self._replies[operation]
        headers, body = replies[self._played[operation] % len(replies)]
        self._played[operation] += 1
        return _response(url, headers, body)


def _response(url: str, headers: Any, body: bytes) -> AWSResponse:
    response = AWSResponse(url, 200, headers, None)
    response._content = body
    return response


@dataclass
class Metered:
    """What was called, and what it consumed."""

    calls: Counter[str] = field(default_factory=Counter)
    units: float = 0.0

    @property
    def writes(self) -> int:
        return sum(self.calls[operation] for operation in WRITES)


@contextlib.contextmanager
def metering() -> Iterator[Metered]:
    """Count every call of every botocore client, and the units that DynamoDB says it consumed."""
    metered = Metered()
    original = botocore.client.BaseClient._make_api_call

    def counted(self: Any, operation: str, arguments: Any) -> Any:
        metered.calls[operation] += 1
        if operation in WRITES | READS:
            arguments = {**arguments, "ReturnConsumedCapacity": "TOTAL"}
        reply = original(self, operation, arguments)
        metered.units += _units(reply.get("ConsumedCapacity"))
        return reply

    botocore.client.BaseClient._make_api_call = counted
    try:
        yield metered
    finally:
        botocore.client.BaseClient._make_api_call = original


def _units(consumed: Any) -> float:
    parts = consumed if isinstance(consumed, list) else [consumed] if consumed else []
    return sum(part["CapacityUnits"] for part in parts)


def python(*arguments: str) -> list[str]:
    """Return the command line of another process of the same interpreter."""
    return [sys.executable, *arguments]
