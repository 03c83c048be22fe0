"""Lambda's Invoke API over HTTP, for ``continuation: self``, the resumer and users' own calls.

``POST /2015-03-31/functions/NAME-OR-ARN/invocations``, and the two reads of a function that the
package makes. Everything else of Lambda's API is refused.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from anarchon_ddb.local.functions import CloudClosedError, TooManyRequestsError
from anarchon_ddb.local.lineage import LONGEST_CHAIN, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from anarchon_ddb.local.functions import Ended, Function
    from anarchon_ddb.local.sandboxes import Sandbox

_INVOCATIONS = re.compile(r"/2015-03-31/functions/([^/]+)/invocations/?")
_INVOKE_CONFIG = re.compile(r"/2019-09-25/functions/([^/]+)/event-invoke-config/?")
_CONFIGURATION = re.compile(r"/2015-03-31/functions/([^/]+)/configuration/?")

Reply = tuple[int, bytes, dict[str, str]]


class InvokeApi:
    """The application: answers one request at a time, in the thread that brings it.

    Parameters
    ----------
    functions : mapping
        By name.
    """

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[..., Any], caller: Sandbox | None
    ) -> Iterable[bytes]:
        """Answer a request that a sandbox made, or somebody outside (None)."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        status, answer, headers = self._answer(environ, body, caller)
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(answer))}
        start_response(f"{status} {HTTPStatus(status).phrase}", list(headers.items()))
        return [answer]

    def _answer(self, environ: Mapping[str, Any], body: bytes, caller: Sandbox | None) -> Reply:
        path, method = unquote(environ["PATH_INFO"]), environ["REQUEST_METHOD"]
        for pattern, wanted in ((_INVOCATIONS, "POST"), (_INVOKE_CONFIG, "GET"),
                                (_CONFIGURATION, "GET")):  # fmt: skip
            match = pattern.fullmatch(path)
            if match is None or method != wanted:
                continue
            function = self._functions.get(name_of(match[1]))
            if function is None:
                text = f"Function not found: {match[1]}"
                return _refusal(404, "ResourceNotFoundException", text)
            if pattern is _INVOCATIONS:
                return self._invoke(function, environ, body, caller)
            described = _invoke_config if pattern is _INVOKE_CONFIG else _configuration
            return 200, json.dumps(described(function)).encode(), {}
        return _refusal(404, "UnknownOperationException", f"not played here: {method} {path}")

    def _invoke(
        self, function: Function, environ: Mapping[str, Any], body: bytes, caller: Sandbox | None
    ) -> Reply:
        try:
            event = json.loads(body) if body else {}
        except ValueError as error:
            text = f"Could not parse request body into json: {error}"
            return _refusal(400, "InvalidRequestContentException", text)
        kind = environ.get("HTTP_X_AMZN_INVOCATION_TYPE") or environ.get(
            "HTTP_X_AMZ_INVOCATION_TYPE", "RequestResponse"
        )
        if kind == "DryRun":
            return 204, b"", {}
        if kind not in {"Event", "RequestResponse"}:
            return _refusal(400, "InvalidParameterValueException", f"InvocationType {kind!r}")
        trace = Trace.parse(environ.get("HTTP_X_AMZN_TRACE_ID", ""))
        trace = trace.through(function.spec.name) if trace is not None else None
        if trace is not None and _is_loop(trace, function):
            return self._cut(function, event, kind)
        if kind == "Event":
            return 202, b"", {"x-amzn-RequestId": function.send(event, trace)}
        return self._wait_for(function, event, trace, caller)

    def _cut(self, function: Function, event: Any, kind: str) -> Reply:
        """Stop a chain that went through one function too often."""
        why = f"RecursiveInvocationException after {LONGEST_CHAIN} invocations"
        request_id = function.drop(event, why)
        if kind == "Event":
            return 202, b"", {"x-amzn-RequestId": request_id}
        text = "Recursive invocation detected and stopped"
        return _refusal(400, "RecursiveInvocationException", text)

    def _wait_for(
        self, function: Function, event: Any, trace: Trace | None, caller: Sandbox | None
    ) -> Reply:
        try:
            ended = function.invoke(event, trace, caller)
        except CloudClosedError:
            return _refusal(503, "ServiceException", "the local cloud is being closed")
        except TooManyRequestsError:
            return _refusal(429, "TooManyRequestsException", "Rate Exceeded.")
        return 200, json.dumps(ended.payload).encode(), _headers(ended)


def _is_loop(trace: Trace, function: Function) -> bool:
    return not function.spec.may_recurse and trace.times(function.spec.name) >= LONGEST_CHAIN


def _headers(ended: Ended) -> dict[str, str]:
    headers = {"x-amzn-RequestId": ended.request_id, "X-Amz-Executed-Version": "$LATEST"}
    if ended.end != "returned":
        headers["X-Amz-Function-Error"] = "Unhandled"
    return headers


def _invoke_config(function: Function) -> dict[str, Any]:
    return {
        "FunctionArn": function.spec.arn,
        "MaximumRetryAttempts": function.spec.retries,
        "MaximumEventAgeInSeconds": function.spec.max_event_age_s,
    }


def _configuration(function: Function) -> dict[str, Any]:
    spec = function.spec
    return {
        "FunctionName": spec.name,
        "FunctionArn": spec.arn,
        "Handler": spec.handler,
        "Timeout": round(spec.timeout_s),
        "MemorySize": spec.memory_mb,
        "Environment": {"Variables": dict(spec.environment)},
    }


def _refusal(status: int, code: str, message: str) -> Reply:
    body = json.dumps({"Type": "User", "Message": message}).encode()
    return status, body, {"x-amzn-ErrorType": code}


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
