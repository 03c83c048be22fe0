"""Faults at the wire, below the SDK: its own retries see them, as they would in the cloud."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from moto.core.botocore_stubber import BotocoreStubber


@dataclass(frozen=True)
class Request:
    """A request as it goes out."""

    operation: str
    body: dict[str, Any]

    @property
    def write(self) -> str:
        """The protocol's name of a write, told by its expressions."""
        update = self.body.get("UpdateExpression", "")
        if "if_not_exists(#attempt" in update:
            return "claim"
        if (
            "#active_slot" in update
            or "#waiting" in update
            or "#active_slot" in str(self.body.get("ConditionExpression"))
        ):
            return "gate"
        if "#checkpoint" in update:
            return "save"
        if "#dispatched_at" in update:
            return "dispatch"
        if "#finished_at" in update:
            return "finish"
        if "#state = :state" in update:
            return "let_go"
        return "renew" if "#lease_until" in update else self.operation


Hook = Callable[[Request], AWSResponse | None]


class Faults:
    """Installed around moto: drop a reply, answer with an error, or call a function."""

    def __init__(self) -> None:
        self._before: list[Hook] = []
        self._after: list[Callable[[Request], None]] = []
        self.seen: list[Request] = []

    def __enter__(self) -> Self:
        self._original = BotocoreStubber.__call__
        faults = self

        def call(stubber: BotocoreStubber, event_name: str, request: Any, **rest: Any) -> Any:
            return faults._send(stubber, event_name, request, rest)

        BotocoreStubber.__call__ = call  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        BotocoreStubber.__call__ = self._original  # type: ignore[method-assign]

    def _send(self, stubber: Any, event_name: str, raw: Any, rest: dict[str, Any]) -> Any:
        target = raw.headers.get("X-Amz-Target", b"")
        target = target.decode() if isinstance(target, bytes) else target
        if not target.startswith("DynamoDB"):
            return self._original(stubber, event_name, raw, **rest)
        request = Request(target.partition(".")[2], json.loads(raw.body))
        self.seen.append(request)
        for hook in list(self._before):
            answer = hook(request)
            if answer is not None:
                return answer
        reply = self._original(stubber, event_name, raw, **rest)
        for after in list(self._after):
            after(request)
        return reply

    def lose_reply(self, write: str, times: int = 1) -> None:
        """Apply the write at the server and drop its reply."""
        self.lose_reply_of(lambda request: request.write == write, times)

    def lose_reply_of(self, is_meant: Callable[[Request], bool], times: int = 1) -> None:
        """Apply the writes that are meant at the server and drop their replies."""
        left = [times]

        def drop(request: Request) -> None:
            if left[0] and is_meant(request):
                left[0] -= 1
                raise ReadTimeoutError(endpoint_url="https://dynamodb.test")

        self._after.append(drop)

    def answer(self, write: str, code: str, status: int = 400, times: int = 1) -> None:
        """Answer with an error instead of the server; the write is not applied."""
        left = [times]

        def refuse(request: Request) -> AWSResponse | None:
            if request.write != write or not left[0]:
                return None
            left[0] -= 1
            return error_reply(code, status)

        self._before.append(refuse)

    def before(self, write: str, do: Callable[[], None]) -> None:
        """Call a function once, just before a write arrives."""
        done: list[bool] = []

        def hook(request: Request) -> None:
            if request.write == write and not done:
                done.append(True)
                do()

        self._before.append(hook)


class _Raw:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self, *_: object, **__: object) -> Any:
        yield self.body


def error_reply(code: str, status: int) -> AWSResponse:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": code})
    headers = {"x-amzn-requestid": "0", "content-type": "application/x-amz-json-1.0"}
    return AWSResponse("https://dynamodb.test", status, headers, _Raw(body.encode()))
