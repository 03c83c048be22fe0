"""Lambda's Runtime API and Invoke API for one function at a time, and the processes that it runs.

AWS's own runtime client asks for the next invocation here and posts its result, as on Lambda. The
code comes from an artifact alone: the interpreter gets no site-packages, only the artifact and
what Lambda's runtime has.
"""

from __future__ import annotations

import json
import queue
import re
import select
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote
from uuid import uuid4

# What AWS's Python image holds: its runtime client, and boto3 with what it needs.
SDK = ("boto3", "botocore", "s3transfer", "urllib3", "jmespath", "dateutil", "six.py")
CLIENT = ("awslambdaric", "runtime_client*", "simplejson", "snapshot_restore_py*")
_INVOKE = re.compile(r"/2015-03-31/functions/([^/]+)/invocations")
_ANSWER = re.compile(r"/2018-06-01/runtime/(?:invocation/[^/]+|init)/(response|error)")


def runtime_directory(root: Path, sdk: Path | None = None) -> Path:
    """Make a directory with what Lambda's image has, and nothing else of this environment."""
    installed = Path(sysconfig.get_path("purelib"))
    directory = root / "runtime"
    directory.mkdir()
    for patterns, source in ((CLIENT, installed), (SDK, sdk or installed)):
        for pattern in patterns:
            for found in source.glob(pattern):
                (directory / found.name).symlink_to(found)
    return directory


class RuntimeApi:
    """Both APIs on a free loopback port; use it as a context manager."""

    def __init__(self) -> None:
        self.events: queue.Queue[tuple[dict[str, Any], float, str]] = queue.Queue()
        self.answers: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.invoked: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.closing = threading.Event()
        self.deadline_s = 0.0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=partial(self._server.serve_forever, poll_interval=0.05), daemon=True
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def send(self, event: dict[str, Any], *, timeout_s: float, function: str) -> None:
        """Give the next invocation to whoever asks."""
        self.events.put((event, timeout_s, function))

    def answer(self) -> tuple[str, Any]:
        """Return the next ``response`` or ``error``, and what was posted with it."""
        return self.answers.get(timeout=60)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, api: RuntimeApi, *args: Any) -> None:
        self.api = api
        super().__init__(*args)

    def do_GET(self) -> None:
        if not self.path.endswith("/invocation/next"):  # a call of Lambda's own API
            gone = {"x-amzn-ErrorType": "ResourceNotFoundException"}
            self._reply(404, {"Message": "nothing is set"}, gone)
            return
        while not self.api.closing.is_set() and not self._is_gone():
            try:
                event, timeout_s, function = self.api.events.get(timeout=0.05)
            except queue.Empty:
                continue
            if self._is_gone():
                self.api.events.put((event, timeout_s, function))
                break
            self.api.deadline_s = time.time() + timeout_s  # a function's time begins now
            self._reply(
                200,
                event,
                {
                    "Lambda-Runtime-Aws-Request-Id": str(uuid4()),
                    "Lambda-Runtime-Deadline-Ms": str(round(self.api.deadline_s * 1000)),
                    "Lambda-Runtime-Invoked-Function-Arn": function,
                },
            )
            return
        self.close_connection = True

    def _is_gone(self) -> bool:
        """Tell whether who asks was killed: it must not be given the next invocation."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        path = unquote(self.path)
        if found := _INVOKE.fullmatch(path):
            self.api.invoked.put((found[1], body))
        elif found := _ANSWER.fullmatch(path):
            self.api.answers.put((found[1], body))
        self._reply(202, None, {})

    def _reply(self, status: int, body: Any, headers: dict[str, str]) -> None:
        content = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def start(
    api: RuntimeApi, artifact: Path, runtime: Path, log: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start AWS's runtime client on an artifact, as Lambda's image does."""
    handler = environment["_HANDLER"]
    with log.open("ab") as out:
        return subprocess.Popen(
            # -S: no site-packages.
            [sys.executable, "-S", "-m", "awslambdaric", handler],
            env={
                **environment,
                "AWS_LAMBDA_RUNTIME_API": api.address,
                "LAMBDA_TASK_ROOT": str(artifact),
                "PYTHONDONTWRITEBYTECODE": "1",  # /var/task can't be written
                "PYTHONPATH": f"{artifact}:{runtime}",
            },
            cwd=artifact,
            stdout=out,
            stderr=out,
        )
