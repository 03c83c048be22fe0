"""Lambda's Invoke API over HTTP, for ``continuation: self``, the resumer and users' own calls.

``POST /2015-03-31/functions/NAME-OR-ARN/invocations``; everything else of Lambda's API is refused.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from anarchon_ddb.local.functions import CloudClosedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anarchon_ddb.local.functions import Function

_log = logging.getLogger(__name__)

_PATH = re.compile(r"/2015-03-31/functions/([^/]+)/invocations/?(?:\?.*)?")


class InvokeApi:
    """The server, on a free port of the loopback.

    Parameters
    ----------
    functions : mapping
        By name. May be filled after the server was started.
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        handler = partial(_RequestHandler, functions)
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        self._thread = threading.Thread(target=serve, name="invoke-api", daemon=True)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing of a caller that is gone: it was killed while it waited."""
        if not isinstance(sys.exception(), ConnectionError):
            _log.exception("Lambda's API")


class _RequestHandler(BaseHTTPRequestHandler):
    def __init__(self, functions: Mapping[str, Function], *args: Any) -> None:
        self._functions = functions
        super().__init__(*args)

    def do_POST(self) -> None:
        """Answer one call."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match = _PATH.fullmatch(self.path)
        if match is None:
            self._refuse(404, "UnknownOperationException", f"not played here: {self.path}")
            return
        function = self._functions.get(name_of(unquote(match[1])))
        if function is None:
            text = f"Function not found: {unquote(match[1])}"
            self._refuse(404, "ResourceNotFoundException", text)
            return
        try:
            event = json.loads(body) if body else {}
        except ValueError as error:
            text = f"Could not parse request body into json: {error}"
            self._refuse(400, "InvalidRequestContentException", text)
            return
        self._invoke(function, event)

    def _invoke(self, function: Function, event: Any) -> None:
        kind = self.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        if kind == "Event":
            self._answer(202, b"", {"x-amzn-RequestId": function.send(event)})
        elif kind == "DryRun":
            self._answer(204, b"", {})
        elif kind == "RequestResponse":
            self._wait_for(function, event)
        else:
            self._refuse(400, "InvalidParameterValueException", f"InvocationType {kind!r}")

    def _wait_for(self, function: Function, event: Any) -> None:
        try:
            ended = function.invoke(event)
        except CloudClosedError:
            self._refuse(503, "ServiceException", "the local cloud is being closed")
            return
        headers = {"x-amzn-RequestId": ended.request_id, "X-Amz-Executed-Version": "$LATEST"}
        if ended.end != "returned":
            headers["X-Amz-Function-Error"] = "Unhandled"
        self._answer(200, json.dumps(ended.payload).encode(), headers)

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"Type": "User", "Message": message}).encode()
        self._answer(status, body, {"x-amzn-ErrorType": code})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def name_of(reference: str) -> str:
    """Return the name in what Lambda takes as one: a name, a partial or a full ARN.

    Examples
    --------
    >>> name_of("arn:aws:lambda:eu-west-1:123456789012:function:stack-export:live")
    'stack-export'
    >>> name_of("stack-export")
    'stack-export'
    """
    _, separator, rest = reference.rpartition("function:")
    return rest.partition(":")[0] if separator else reference.partition(":")[0]
