"""The local cloud: a stack, played. Everything it starts it ends, whatever happens.

It knows no job and no demo: who uses it lets time pass or delivers slots, watches what happens, and
may kill.
"""

from __future__ import annotations

import itertools
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID, uuid4

from anarchon_ddb.clock import from_ms, to_ms
from anarchon_ddb.local import resources
from anarchon_ddb.local.aws import EmbeddedAws
from anarchon_ddb.local.chaos import Chaos
from anarchon_ddb.local.clock import OffsetClock, SimulatedClock
from anarchon_ddb.local.delivery import EventBridge
from anarchon_ddb.local.engine import LiveEngine, SimulatedEngine
from anarchon_ddb.local.functions import Function, GivenUp
from anarchon_ddb.local.invoke_api import InvokeApi
from anarchon_ddb.local.sandbox import CLOCK_SETTING
from anarchon_ddb.local.stack import REGION, FunctionSpec, Stack
from anarchon_ddb.local.template import TemplateError
from anarchon_ddb.local.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from anarchon_ddb.local.chaos import Fate
    from anarchon_ddb.local.functions import Invocation

# What a child may have of this process's environment: no credentials, no settings of AWS.
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated clock: where it begins, and how fast it may be."""

    start: datetime
    speed: float | None = None
    """Simulated seconds in a real one, at most; as fast as possible if None."""


class LocalCloud:
    """A stack on this machine; use it as a context manager.

    Parameters
    ----------
    stack : Stack
        What to play.
    directory : Path
        Where the logs go: one directory for each function, one file for each invocation.
    latency_s : mapping, optional
        Seconds that a function's call of AWS takes longer, by ``service:Operation``.
    simulated : Simulated, optional
        Play on a simulated clock; on the machine's if not given.
    chaos : Chaos, optional
        What goes wrong on purpose.
    port : int
        Of the embedded AWS; 0 for any that is free.
    dynamodb_url : str, optional
        The endpoint of another DynamoDB.

    Examples
    --------
    >>> with LocalCloud(read(Path("template.yaml")), Path(".anarchon")) as cloud:
    ...     cloud.deliver("export", slot)
    """

    def __init__(
        self,
        stack: Stack,
        directory: Path,
        *,
        latency_s: Mapping[str, float] | None = None,
        simulated: Simulated | None = None,
        chaos: Chaos | None = None,
        port: int = 0,
        dynamodb_url: str | None = None,
    ) -> None:
        self.stack = stack
        self.directory = directory.resolve()
        self.chaos = chaos or Chaos()
        self.clock: OffsetClock | SimulatedClock
        self.engine: LiveEngine | SimulatedEngine
        self._closing = ExitStack()
        if simulated is None:
            self.clock = OffsetClock()
            self.engine = LiveEngine(self.clock)
        else:
            clock = SimulatedClock(self.directory / ".clock", to_ms(simulated.start))
            self.clock, self.engine = clock, SimulatedEngine(clock, simulated.speed)
        self.aws = EmbeddedAws(self.clock, port=port, dynamodb_url=dynamodb_url)
        self.aws.latency_s.update(latency_s or {})
        self.functions: dict[str, Function] = {}
        self.listeners: list[Callable[[Any], None]] = []
        """Called with each ``Told`` of the functions, of deliveries and of chaos."""
        self.event_bridge = EventBridge(
            stack.schedules, self.functions, self.engine, self.chaos,
            put=self._put, tell=self._tell,
        )  # fmt: skip
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            if isinstance(self.clock, SimulatedClock):
                undo.callback(self.clock.close)
            self.aws.start()
            undo.callback(self.aws.stop)
            resources.create(self.aws, self.stack)
            for spec in self.stack.functions.values():
                self.functions[spec.name] = self._function(spec)
                undo.callback(self.functions[spec.name].close)
            self.aws.api = InvokeApi(self.functions)
            self.aws.traffic = Traffic(
                self.functions, self.engine, self.chaos, self.aws.latency_s, self._tell
            )
            undo.callback(self.engine.stop)
            self.engine.start()
            self._closing = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    @property
    def now(self) -> datetime:
        """The time on the cloud's clock."""
        return from_ms(self.clock.now_ms())

    def start_schedules(self) -> None:
        """Let the stack's schedules and rules fire from now on."""
        created = self.now.replace(microsecond=0)
        self.engine.ask(lambda: self.event_bridge.start(created))

    def play_until(self, end: datetime, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let the simulated time pass until an instant, or until nobody wants it any more."""
        if not isinstance(self.engine, SimulatedEngine):
            raise TypeError("only a simulated clock can be let run")
        self.engine.play_until(to_ms(end), is_over)

    def deliver(self, schedule: str, slot: datetime) -> str:
        """Deliver a slot as EventBridge does; return the id of the invocation."""
        return self.event_bridge.deliver(self.stack.schedules[schedule], slot)

    def function(self, logical_id: str) -> Function:
        """Return a function by the logical id it has in the template."""
        return self.functions[self.stack.function(logical_id).name]

    def _function(self, spec: FunctionSpec) -> Function:
        if not spec.code.is_dir():
            raise TemplateError(
                f"{spec.place or self.stack.path}: the CodeUri of {spec.logical_id} is no "
                f"directory: {spec.code}"
            )
        return Function(
            spec,
            self.engine,
            environment=partial(self._environment, spec.name),
            logs=self.directory / spec.name,
            tell=self._tell,
            name_request=self._name_request,
            draw_fate=self._draw_fate,
        )

    def _environment(self, function: str, signer: str) -> dict[str, str]:
        spec = self.functions[function].spec
        clock = {CLOCK_SETTING: str(self.clock.path)} if isinstance(
            self.clock, SimulatedClock) else {}  # fmt: skip
        return environment_of(spec, endpoint=self.aws.endpoint, signer=signer) | clock

    def _name_request(self) -> str:
        if not self.engine.is_simulated:
            return str(uuid4())
        number = next(self._numbers)
        return str(UUID(bytes=self.chaos.token(16, "request", number), version=4))

    def _draw_fate(self, function: Function, invocation: Invocation) -> Fate | None:
        what = (function.spec.name, invocation.request_id, invocation.attempt)
        return self.chaos.fate(function.usual_calls, *what)

    def _put(self, queue: str, body: str, attributes: Mapping[str, str]) -> None:
        """Put a message into a queue of the stack."""
        name = queue.rpartition(":")[2]
        sqs = self.aws.client("sqs")
        sqs.send_message(
            QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"],
            MessageBody=body,
            MessageAttributes={
                key: {"DataType": "String", "StringValue": value}
                for key, value in attributes.items()
            },
        )

    def _tell(self, event: Any) -> None:
        if isinstance(event, GivenUp):
            self._to_failure_queue(event)
        for listener in self.listeners:
            listener(event)

    def _to_failure_queue(self, event: GivenUp) -> None:
        """Tell the function's own queue of an event that was given up."""
        spec = self.functions[event.function].spec
        if spec.failure_queue is not None:
            body = {
                "requestContext": {
                    "requestId": event.request_id,
                    "functionArn": f"{spec.arn}:$LATEST",
                    "condition": event.why,
                },
                "requestPayload": event.event,
            }
            self._put(spec.failure_queue, json.dumps(body), {"condition": event.why})


def environment_of(spec: FunctionSpec, *, endpoint: str, signer: str) -> dict[str, str]:
    """Return all of the environment of a function's processes.

    Parameters
    ----------
    spec : FunctionSpec
        Its own variables are added; they can't change the names that Lambda reserves.
    endpoint : str
        The URL of the embedded AWS. It also stands for Lambda's runtime API, whose presence tells
        code that it runs in Lambda: clients are made at init.
    signer : str
        The name of the sandbox: the embedded AWS tells callers apart by it.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    reserved: dict[str, Any] = {
        "AWS_ACCESS_KEY_ID": signer,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory_mb),
        "AWS_LAMBDA_FUNCTION_NAME": spec.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{spec.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "AWS_LAMBDA_RUNTIME_API": endpoint.rpartition("/")[2],
        "AWS_REGION": REGION,
        "AWS_SECRET_ACCESS_KEY": "local",
        "LAMBDA_TASK_ROOT": str(spec.code),
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        "_HANDLER": spec.handler,
    }
    played = {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "POWERTOOLS_TRACE_DISABLED": "true",  # there is no X-Ray daemon
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
    }
    return {**inherited, **played, **spec.environment, **reserved}
