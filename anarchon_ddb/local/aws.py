"""The embedded AWS: moto on a port of the loopback, with DynamoDB behind one lock.

Each call is counted with who made it, can be watched, and can meet with chaos. DynamoDB may be
another endpoint, to which its calls are passed on. The server is moto's own application, repaired
for threads (``moto_repairs``), without its log line for each request.
"""

from __future__ import annotations

import io
import json
import re
import socket
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import boto3
import urllib3
from botocore.config import Config
from moto.core.base_backend import BackendDict
from moto.core.model_instances import reset_model_data
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from anarchon_ddb.local.moto_repairs import repaired
from anarchon_ddb.local.stack import REGION
from anarchon_ddb.local.traffic import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.local.invoke_api import InvokeApi
    from anarchon_ddb.local.traffic import Traffic

    Answer = tuple[str, list[tuple[str, str]], bytes]

_CREDENTIAL = re.compile(r"Credential=([^/]+)/[^/]+/([^/]+)/([^/]+)/")
_S3_OPERATIONS = {
    ("PUT", True): "PutObject",
    ("GET", True): "GetObject",
    ("HEAD", True): "HeadObject",
    ("DELETE", True): "DeleteObject",
    ("PUT", False): "CreateBucket",
    ("GET", False): "ListObjects",
}
_WRITES = {"BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"}


class PortError(OSError):
    """The port that was asked for can't be had."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the AWS API."""

    caller: str
    """The function that made it; else the access key it was signed with."""
    signer: str
    """The sandbox that made it: the cloud gives each its name as an access key."""
    service: str
    operation: str
    path: str
    body: bytes = b""
    """Of a write to DynamoDB."""
    status: int = 0
    """Of the answer, once it was served."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What calls are counted by: caller, service and operation."""
        return self.caller, self.service, self.operation

    @property
    def is_write(self) -> bool:
        """Whether it may change a table."""
        return self.service == "dynamodb" and self.operation in _WRITES


class _QuietHandler(MotoRequestHandler):
    """Handles a request without writing a line for it."""

    def log_request(self, *_: object, **__: object) -> None:
        """Write nothing."""

    def log_error(self, *_: object) -> None:
        """Say nothing of a caller that is gone: it was killed while it waited."""


class EmbeddedAws:
    """moto's server, started and stopped.

    moto's state belongs to the process, so there is one at a time.

    Parameters
    ----------
    clock : Clock
        Gives the time at which schedules are created.
    port : int
        0 for any that is free.
    dynamodb_url : str, optional
        The endpoint of another DynamoDB, in place of the embedded one.
    """

    def __init__(self, clock: Clock, *, port: int = 0, dynamodb_url: str | None = None) -> None:
        self.clock = clock
        self.calls: Counter[tuple[str, str, str]] = Counter()
        """How often each (caller, service, operation) was called."""
        self.watchers: list[Callable[[Call], None]] = []
        """Called with each call after it was served and before its answer is sent."""
        self.latency_s: dict[str, float] = {}
        """Seconds that a call of a function takes longer, by ``service:Operation``."""
        self.traffic: Traffic | None = None
        """Admits calls; all are served at once without."""
        self.api: InvokeApi | None = None
        """Answers for Lambda."""
        self._port = port
        self._dynamodb_url = dynamodb_url
        self._pool = urllib3.PoolManager(maxsize=16, retries=False)
        self._application = DomainDispatcherApplication(create_backend_app)
        self._writes = threading.Lock()  # who watches a write sees what it left, and no later one
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._repairs = ExitStack()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def endpoint(self) -> str:
        """The URL of every service."""
        return f"http://{self.address}"

    def start(self) -> None:
        """Serve, with nothing stored.

        Raises
        ------
        PortError
            If the port can't be had, or the other DynamoDB not be reached.
        """
        if self._dynamodb_url is not None:
            _reach(self._dynamodb_url)
        listener = _listen(self._port)
        _forget_all()
        self._repairs.enter_context(repaired(self.clock))
        with listener:  # the server has a socket of its own of the same port
            self._server = make_server(
                "127.0.0.1", 0, self._serve, threaded=True, request_handler=_QuietHandler,
                fd=listener.fileno(),
            )  # fmt: skip
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        self._thread = threading.Thread(target=serve, name="embedded-aws", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving; what was stored is forgotten."""
        if self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._pool.clear()
        self._repairs.close()
        _forget_all()
        self._thread = None

    def client(self, service: str, caller: str = "local") -> Any:
        """Return a boto3 client of a service that talks to this server and to nothing else."""
        session = boto3.Session(
            aws_access_key_id=caller,
            aws_secret_access_key="local",  # noqa: S106  signs for nobody
            region_name=REGION,
        )
        # Loopback is never reached through a proxy.
        config = Config(proxies={}, retries={"total_max_attempts": 2})
        make: Any = session.client
        return make(service, endpoint_url=self.endpoint, config=config)

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Serve one request: the WSGI application."""
        _move_here(environ)
        call = _call_of(environ)
        self.calls[call.key] += 1
        verdict = Verdict.SERVE if self.traffic is None else self.traffic.admit(call)
        if verdict in {Verdict.DROP, Verdict.KILL_BEFORE}:
            _hang_up(environ)
        if verdict is Verdict.THROTTLE:
            status, headers, body = _throttled(call.service)
        elif call.is_write:
            with self._writes:
                status, headers, body = self._served(environ, call)
        else:
            status, headers, body = self._served(environ, call)
        if verdict is Verdict.KILL_AFTER and self.traffic is not None:
            self.traffic.kill(call)
        if verdict in {Verdict.KILL_AFTER, Verdict.LOSE_REPLY}:
            _hang_up(environ)
        start_response(status, headers)
        return [body]

    def _served(self, environ: dict[str, Any], call: Call) -> Answer:
        if call.is_write and self.watchers:
            call = replace(call, body=_body_of(environ))
        answer = self._answer(environ, call)
        call = replace(call, status=int(answer[0][:3]))
        for watch in self.watchers:
            watch(call)
        return answer

    def _answer(self, environ: dict[str, Any], call: Call) -> Answer:
        if call.service == "dynamodb" and self._dynamodb_url is not None:
            return self._pass_on(environ)
        begun: list[Any] = []

        def begin(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            begun[:] = [status, headers]

        if call.service == "lambda" and self.api is not None:
            caller = None if self.traffic is None else self.traffic.sandbox_of(call)
            parts = self.api(environ, begin, caller)
        else:
            parts = self._application(environ, begin)
        return begun[0], begun[1], b"".join(parts)

    def _pass_on(self, environ: dict[str, Any]) -> Answer:
        """Let another DynamoDB answer."""
        headers = {
            name[5:].replace("_", "-").title(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") and name not in {"HTTP_HOST", "HTTP_CONNECTION"}
        } | {"Content-Type": environ.get("CONTENT_TYPE", "")}
        try:
            reply = self._pool.request(
                "POST", f"{self._dynamodb_url}/", body=_body_of(environ), headers=headers
            )
        except urllib3.exceptions.HTTPError as error:
            return _json("503 Service Unavailable", "ServiceUnavailable", str(error))
        kept = [(name, value) for name, value in reply.headers.items()
                if name.lower() in {"content-type", "x-amz-crc32", "x-amzn-requestid"}]  # fmt: skip
        kept.append(("Content-Length", str(len(reply.data))))
        return f"{reply.status} {reply.reason or ''}", kept, reply.data


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or str(error)
        raise PortError(
            f"port {port} of 127.0.0.1 can't be had: {why}. Choose another with --port, "
            "or leave it out for any that is free"
        ) from None
    return listener


def _reach(url: str) -> None:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=3).close()
    except OSError as error:
        raise PortError(f"no DynamoDB answers at {url}: {error.strerror or error}") from None


def _forget_all() -> None:
    BackendDict.reset()
    reset_model_data()


def _body_of(environ: dict[str, Any]) -> bytes:
    """Return the body of a request, which can still be read afterwards."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body: bytes = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _hang_up(environ: dict[str, Any]) -> NoReturn:
    """Close the connection without an answer."""
    connection: socket.socket = environ["werkzeug.socket"]
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError("the local cloud hung up")  # the server takes it as it is


def _throttled(service: str) -> Answer:
    """Return how a service says that there was too much."""
    if service == "s3":
        why = "Please reduce your request rate."
        body = f"<Error><Code>SlowDown</Code><Message>{why}</Message></Error>".encode()
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        return "503 Slow Down", headers, body
    if service == "dynamodb":
        code = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
        return _json("400 Bad Request", code, "The level of configured provisioned throughput "
                     "for the table was exceeded")  # fmt: skip
    if service == "lambda":
        return _json("429 Too Many Requests", "TooManyRequestsException", "Rate Exceeded.")
    return _json("400 Bad Request", "ThrottlingException", "Rate exceeded")


def _json(status: str, code: str, message: str) -> Answer:
    body = json.dumps({"__type": code, "message": message, "Message": message}).encode()
    headers = [
        ("Content-Type", "application/x-amz-json-1.0"),
        ("Content-Length", str(len(body))),
        ("x-amzn-ErrorType", code.rpartition("#")[2]),
    ]
    return status, headers, body


def _move_here(environ: dict[str, Any]) -> None:
    """Let a request be of the region that is played: who looks from outside may live in another."""
    signed = environ.get("HTTP_AUTHORIZATION", "")
    found = _CREDENTIAL.search(signed)
    if found is not None and found[2] != REGION:
        environ["HTTP_AUTHORIZATION"] = signed[: found.start(2)] + REGION + signed[found.end(2) :]


def _call_of(environ: Mapping[str, Any]) -> Call:
    found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    signer, service = (found[1], found[3]) if found else ("unsigned", "unknown")
    signer = environ.get("HTTP_X_ANARCHON_SANDBOX", signer)  # a fork has its parent's credentials
    path = environ.get("PATH_INFO", "")
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        operation = target.rpartition(".")[2]
    elif service == "lambda":
        operation = "Invoke" if environ.get("REQUEST_METHOD") == "POST" else "GetFunction"
    else:
        method = environ.get("REQUEST_METHOD", "")
        operation = _S3_OPERATIONS.get((method, path.strip("/").count("/") > 0), method)
    return Call(signer.partition("@")[0], signer, service, operation, path)
