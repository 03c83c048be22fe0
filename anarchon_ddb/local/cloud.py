"""The local cloud: a stack, played. Everything it starts it ends, whatever happens.

It knows no job and no demo: who uses it delivers slots, watches what happens, and may kill.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from anarchon_ddb.local.aws import EmbeddedAws
from anarchon_ddb.local.clock import OffsetClock
from anarchon_ddb.local.functions import Ended, Function, Started
from anarchon_ddb.local.invoke_api import InvokeApi
from anarchon_ddb.local.scheduler import event_for
from anarchon_ddb.local.stack import REGION, FunctionSpec, Stack
from anarchon_ddb.local.template import TemplateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

# What a child may have of this process's environment: no credentials, no settings of AWS.
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "TMPDIR")


class LocalCloud:
    """A stack on this machine; use it as a context manager.

    Parameters
    ----------
    stack : Stack
        What to play.
    directory : Path
        Where the logs go: one directory for each function, one file for each invocation.
    latency_s : mapping, optional
        Seconds that a call of AWS takes longer, by ``service:Operation``.

    Examples
    --------
    >>> with LocalCloud(read(Path("template.yaml")), Path(".anarchon")) as cloud:
    ...     cloud.deliver("export", slot)
    """

    def __init__(
        self, stack: Stack, directory: Path, *, latency_s: Mapping[str, float] | None = None
    ) -> None:
        self.stack = stack
        self.directory = directory.resolve()
        self.clock = OffsetClock()
        self.aws = EmbeddedAws(latency_s)
        self.functions: dict[str, Function] = {}
        self.listeners: list[Callable[[Started | Ended], None]] = []
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self.aws.start()
            undo.callback(self.aws.stop)
            api = InvokeApi(self.functions)
            undo.callback(api.stop)
            api.start()
            self.aws.create(self.stack)
            for spec in self.stack.functions.values():
                function = self._function(spec, api.address)
                undo.callback(function.close)
                self.functions[spec.name] = function
            self._closing = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    def deliver(self, schedule: str, slot: datetime) -> str:
        """Deliver a slot as EventBridge Scheduler does; return the id of the invocation."""
        spec = self.stack.schedules[schedule]
        return self.functions[spec.function].send(event_for(spec, slot))

    def function(self, logical_id: str) -> Function:
        """Return a function by the logical id it has in the template."""
        return self.functions[self.stack.function(logical_id).name]

    def _function(self, spec: FunctionSpec, api: str) -> Function:
        if not spec.code.is_dir():
            raise TemplateError(
                f"{self.stack.path}: the CodeUri of {spec.logical_id} is no directory: {spec.code}"
            )
        return Function(
            spec,
            environment_of(spec, endpoint=self.aws.endpoint, api=api),
            logs=self.directory / spec.name,
            clock=self.clock,
            tell=self._tell,
        )

    def _tell(self, event: Started | Ended) -> None:
        for listener in self.listeners:
            listener(event)


def environment_of(spec: FunctionSpec, *, endpoint: str, api: str) -> dict[str, str]:
    """Return all of the environment of a function's processes.

    Parameters
    ----------
    spec : FunctionSpec
        Its own variables are added; they can't change the names that Lambda reserves.
    endpoint : str
        The URL of the embedded AWS.
    api : str
        Host and port of the Invoke API. It also stands for Lambda's runtime API, whose presence
        tells code that it runs in Lambda: clients are made at init.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    reserved: dict[str, Any] = {
        "AWS_ACCESS_KEY_ID": spec.name,  # the embedded AWS tells callers apart by it
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory_mb),
        "AWS_LAMBDA_FUNCTION_NAME": spec.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{spec.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "AWS_LAMBDA_RUNTIME_API": api,
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
        "AWS_ENDPOINT_URL_LAMBDA": f"http://{api}",
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "POWERTOOLS_TRACE_DISABLED": "true",  # there is no X-Ray daemon
        "PYTHONUNBUFFERED": "1",
    }
    return {**inherited, **played, **spec.environment, **reserved}
