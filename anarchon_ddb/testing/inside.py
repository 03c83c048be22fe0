"""The child process of a sandbox: the job runs here, and asks before it touches the world.

A fork of the test's process is a sandbox as Lambda has it after its init: the modules are loaded,
and whatever the job puts into memory dies with it. Every call of an AWS client and of a function
marked as ``outside`` is announced before and after, and is carried out by the test's process. So a
kill falls at a point that is known, and nothing that was done is lost with the child.

Nothing here is undone: the process is thrown away.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.client
import botocore.endpoint
from botocore.awsrequest import AWSResponse, HeadersDict

from anarchon_ddb.clock import from_ms
from anarchon_ddb.errors import InvalidEventError, InvalidJobError, Stop
from anarchon_ddb.lease import Lease
from anarchon_ddb.run import Run
from anarchon_ddb.store import Store
from anarchon_ddb.testing import wall, world
from anarchon_ddb.testing.context import LambdaContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from anarchon_ddb.job import Job
    from anarchon_ddb.testing.clock import SettableClock


@dataclass(frozen=True, slots=True)
class Order:
    """One invocation that the child is to make."""

    event: dict[str, Any]
    now_ms: int
    timeout_ms: int
    stops: bool
    """Leave no time for a second batch."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an invocation."""

    outcome: str
    """As the invocation answered; ``failed``, ``killed`` or ``killed at its timeout``."""
    error: str | None = None
    traceback: str = ""
    stops: int = 0
    """How often ``StopEarly`` or another stop was raised: more than once if it was swallowed."""
    invalid: bool = False
    """The event or the job itself is not usable: to try again would not help."""


class Channel:
    """The child's end of the pipe. One question at a time, each with the time on both clocks."""

    def __init__(self, connection: Connection, clock: SettableClock) -> None:
        self.connection = connection
        self.naming: list[str] = []
        """The writes of the package that are being sent, by the protocol's names."""
        self.stops = 0
        self.context: LambdaContext | None = None
        self.stops_each_batch = False
        self._clock = clock
        self._lock = threading.RLock()

    def ask(self, kind: str, *payload: object) -> Any:
        """Ask, and wait for the answer: for ever, if this is where the sandbox is killed."""
        with self._lock:
            self.connection.send((kind, self._clock.now_ms(), payload))
            now_ms, answer = self.connection.recv()
        self._clock.set(from_ms(now_ms))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def between(self, name: str, target: str, call: Callable[[], Any], *, own: bool) -> Any:
        """Make a call, announced before and after."""
        self.ask("before", name, target, own)
        try:
            return call()
        finally:
            self.ask("after", name, target, own)

    def call_outside(
        self, index: int, name: str, args: tuple[object, ...], named: dict[str, object]
    ) -> object:
        """Have a function called in the test's process."""
        return self.between(name, "", lambda: self.ask("outside", index, args, named), own=False)


def serve(connection: Connection, job: Job, clock: SettableClock, *, quiet: bool) -> None:
    """Make the invocations that are ordered, until the pipe is closed. The child's whole life."""
    gc.freeze()  # what was inherited is not looked through: its pages stay shared
    channel = Channel(connection, clock)
    if quiet:
        _be_quiet()
    _announce_calls(channel)
    _announce_writes(channel)
    _send_through(channel)
    _watch_stops(channel)
    world.enter_sandbox(channel)
    wall.follow(clock, job)
    _replace(Lease, "start", _start_nothing)
    while True:
        order: Order = connection.recv()
        outcome = _invoke(channel, job, order, clock)
        connection.send(("done", clock.now_ms(), (outcome,)))


def _invoke(channel: Channel, job: Job, order: Order, clock: SettableClock) -> Outcome:
    clock.set(from_ms(order.now_ms))
    channel.stops = 0
    channel.stops_each_batch = order.stops
    channel.context = LambdaContext(
        clock=clock, remaining_ms=order.timeout_ms, function_name=job.name
    )
    try:
        answer = job(order.event, channel.context)
    except BaseException as error:  # noqa: BLE001  told to the test's process
        return Outcome(
            "failed",
            f"{type(error).__name__}: {error}",
            traceback.format_exc(),
            channel.stops,
            isinstance(error, (InvalidEventError, InvalidJobError)),
        )
    return Outcome(str(answer["outcome"]), stops=channel.stops)


def _replace(owner: type, name: str, function: Callable[..., Any]) -> None:
    setattr(owner, name, function)


def _be_quiet() -> None:
    logging.disable(logging.CRITICAL)
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _start_nothing(_lease: Lease) -> None:
    """Stand in for the heartbeat: time moves only where the test or the job moves it."""


def _announce_calls(channel: Channel) -> None:
    """Announce each call of any AWS client, boto3's and the package's own."""
    client_class: Any = botocore.client.BaseClient
    original = client_class._make_api_call  # noqa: SLF001  there is no public place for it

    def call(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        name = channel.naming[-1] if channel.naming else operation
        return channel.between(
            name,
            _target(parameters),
            lambda: original(client, operation, parameters),
            own=bool(channel.naming),
        )

    _replace(client_class, "_make_api_call", call)


def _target(parameters: dict[str, Any]) -> str:
    """Return what a call is about, for people: a table, or a bucket and its key."""
    named = (parameters.get(name) for name in ("TableName", "Bucket", "QueueUrl", "TopicArn"))
    found = [str(value) for value in named if value]
    if isinstance(parameters.get("Key"), str):
        found.append(parameters["Key"])
    return "/".join(found)


def _announce_writes(channel: Channel) -> None:
    """Name the package's own calls as the protocol does."""
    write, transact = Store.write, Store.transact
    read_run, read_head = Store.read_run, Store.read_head

    def named(name: str, call: Callable[[], Any]) -> Any:
        channel.naming.append(name)
        try:
            return call()
        finally:
            channel.naming.pop()

    def write_named(self: Store, key: Any, sent: Any, values: Any, **rest: Any) -> Any:
        return named(sent.name, lambda: write(self, key, sent, values, **rest))

    def transact_named(self: Store, items: Any, token: str, **rest: Any) -> Any:
        return named("commit", lambda: transact(self, items, token, **rest))

    def read_run_named(self: Store, key: Any, **rest: Any) -> Any:
        return named("read", lambda: read_run(self, key, **rest))

    def read_head_named(self: Store, job: str, **rest: Any) -> Any:
        return named("read gate", lambda: read_head(self, job, **rest))

    _replace(Store, "write", write_named)
    _replace(Store, "transact", transact_named)
    _replace(Store, "read_run", read_run_named)
    _replace(Store, "read_head", read_head_named)


def _send_through(channel: Channel) -> None:
    """Have each request sent by the test's process: to moto there, or to the server it names."""

    def send(_endpoint: object, request: Any) -> AWSResponse:
        return _sent(channel, "", request)

    _replace(botocore.endpoint.Endpoint, "_send", send)
    stubber = sys.modules.get("moto.core.botocore_stubber")
    if stubber is None:
        return

    def stub(_stubber: object, event_name: str, request: Any, **_rest: object) -> AWSResponse:
        return _sent(channel, event_name, request)

    _replace(stubber.BotocoreStubber, "__call__", stub)


class _Raw(io.BytesIO):
    """A body, as botocore reads one."""

    def stream(self, amount: int = 65_536, **_rest: object) -> Iterator[bytes]:
        while chunk := self.read(amount):
            yield chunk


def _sent(channel: Channel, event_name: str, request: Any) -> AWSResponse:
    body = request.body.read() if hasattr(request.body, "read") else request.body
    status, headers, content = channel.ask(
        "http", event_name, request.method, request.url, list(request.headers.items()), body
    )
    return AWSResponse(request.url, status, HeadersDict(headers), _Raw(content))  # type: ignore[arg-type]


def _watch_stops(channel: Channel) -> None:
    """Count the stops that are raised; leave no time for another batch where that is ordered."""
    original = Run.raise_if_stopping

    def watched(run: Run) -> None:
        if channel.stops_each_batch and channel.context is not None:
            channel.context.remaining_ms = 1
        try:
            original(run)
        except Stop:
            channel.stops += 1
            raise

    _replace(Run, "raise_if_stopping", watched)
