"""The embedded AWS: moto on a free port of the loopback, with DynamoDB behind one lock.

Each call is counted with who made it, can be slowed, and can be watched. The server is moto's own
application, repaired for threads (``moto_repairs``), without its log line for each request.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
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
from anarchon_ddb.local.stack import ACCOUNT, REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from anarchon_ddb.local.stack import Stack

_CREDENTIAL = re.compile(r"Credential=([^/]+)/[^/]+/[^/]+/([^/]+)/")
_S3_OPERATIONS = {
    ("PUT", True): "PutObject",
    ("GET", True): "GetObject",
    ("HEAD", True): "HeadObject",
    ("DELETE", True): "DeleteObject",
    ("PUT", False): "CreateBucket",
    ("GET", False): "ListObjects",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the AWS API."""

    caller: str
    """The access key it was signed with: the cloud gives each function its name as one."""
    service: str
    operation: str
    path: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What calls are counted by: caller, service and operation."""
        return self.caller, self.service, self.operation


class _QuietHandler(MotoRequestHandler):
    """Handles a request without writing a line for it."""

    def log_request(self, *_: object, **__: object) -> None:
        """Write nothing."""


class EmbeddedAws:
    """moto's server, started and stopped.

    moto's state belongs to the process, so there is one at a time.

    Parameters
    ----------
    latency_s : mapping, optional
        Seconds to wait before a call is served, by ``service:Operation``, as
        ``{"s3:PutObject": 0.2}``.
    """

    def __init__(self, latency_s: Mapping[str, float] | None = None) -> None:
        self.latency_s = dict(latency_s or {})
        self.calls: Counter[tuple[str, str, str]] = Counter()
        """How often each (caller, service, operation) was called."""
        self.watchers: list[Callable[[Call], None]] = []
        """Called with each call after it was served and before its answer is sent."""
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._repairs = ExitStack()

    @property
    def endpoint(self) -> str:
        """The URL of every service."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Serve, with nothing stored."""
        _forget_all()
        self._repairs.enter_context(repaired())
        self._server = make_server(
            "127.0.0.1", 0, self._serve, threaded=True, request_handler=_QuietHandler
        )
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

    def create(self, stack: Stack) -> None:
        """Create the tables, buckets and queues of a stack, exactly as its template has them."""
        dynamodb = self.client("dynamodb")
        for table in stack.tables:
            dynamodb.create_table(TableName=table.name, **table.arguments)
            if table.ttl_attribute is not None:
                specification = {"AttributeName": table.ttl_attribute, "Enabled": True}
                dynamodb.update_time_to_live(
                    TableName=table.name, TimeToLiveSpecification=specification
                )
        for bucket in stack.buckets:
            self.client("s3").create_bucket(
                Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION}
            )
        for queue in stack.queues:
            self.client("sqs").create_queue(QueueName=queue)
        self._register(stack)

    def _register(self, stack: Stack) -> None:
        """Create the schedules: the registry that `run.window` and the resumer read."""
        scheduler = self.client("scheduler")
        for group in sorted({schedule.group for schedule in stack.schedules.values()}):
            if group != "default":
                scheduler.create_schedule_group(Name=group)
        for schedule in stack.schedules.values():
            target = {
                "Arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{schedule.function}",
                "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/scheduler",
            }
            scheduler.create_schedule(
                Name=schedule.name,
                GroupName=schedule.group,
                ScheduleExpression=schedule.expression,
                ScheduleExpressionTimezone=schedule.timezone,
                FlexibleTimeWindow={"Mode": "OFF"},
                Target=target | ({"Input": schedule.input} if schedule.input else {}),
            )

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Serve one request: the WSGI application."""
        call = _call_of(environ)
        self.calls[call.key] += 1
        if wait_s := self.latency_s.get(f"{call.service}:{call.operation}"):
            time.sleep(wait_s)
        answer: Iterable[bytes] = self._application(environ, start_response)
        for watch in self.watchers:
            watch(call)
        return answer


def _forget_all() -> None:
    BackendDict.reset()
    reset_model_data()


def _call_of(environ: Mapping[str, Any]) -> Call:
    found = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    caller, service = (found[1], found[2]) if found else ("unsigned", "unknown")
    path = environ.get("PATH_INFO", "")
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        operation = target.rpartition(".")[2]
    else:
        method = environ.get("REQUEST_METHOD", "")
        operation = _S3_OPERATIONS.get((method, path.strip("/").count("/") > 0), method)
    return Call(caller, service, operation, path)
