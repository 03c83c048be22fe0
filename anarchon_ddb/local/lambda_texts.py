"""What Lambda answers and logs at the end of an invocation; the texts are AWS's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from anarchon_ddb.clock import from_ms

if TYPE_CHECKING:
    from pathlib import Path

End = Literal["returned", "raised", "timed_out", "exited"]
Fault = dict[str, Any]


def timed_out(now_ms: int, request_id: str, timeout_s: float) -> str:
    """Return what is said of an invocation that was killed at its deadline."""
    now = from_ms(now_ms).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
    return f"{now}Z {request_id} Task timed out after {timeout_s:.2f} seconds"


def exited(request_id: str, code: int) -> Fault:
    """Return what is answered for a sandbox that ended without an answer."""
    how = f"signal: {-code}" if code < 0 else f"exit status {code}"
    if code == -9:
        how = "signal: killed"
    text = f"RequestId: {request_id} Error: Runtime exited with error: {how}"
    return {"errorType": "Runtime.ExitError", "errorMessage": text}


def told(fault: Fault) -> str:
    """Return an error in words, on a line.

    Examples
    --------
    >>> told({"errorType": "ValueError", "errorMessage": "no such plane"})
    'ValueError: no such plane'
    """
    kind, text = str(fault.get("errorType")), str(fault.get("errorMessage"))
    named = text if kind.startswith(("Runtime.", "Sandbox.")) else f"{kind}: {text}"
    return " ".join(named.split())


def report(request_id: str, end: str, payload: Any, duration_s: float) -> str:
    """Return the last lines of an invocation's log."""
    lines = [f"END RequestId: {request_id}"]
    if end in {"timed_out", "exited"}:
        lines.insert(0, str(payload["errorMessage"]))
    lines.append(f"REPORT RequestId: {request_id}\tDuration: {duration_s * 1000:.2f} ms")
    lines.append(f"RESULT {end} {json.dumps(payload)}")
    return "\n".join(lines) + "\n"


def write(log: Path, text: str) -> None:
    """Append to a log."""
    with log.open("a", encoding="utf-8") as file:
        file.write(text)
