"""The AWS durable execution SDK with its in-memory test runner: a step for each batch.

It makes no call over the network, which is an advantage for it. An invocation ends with a wait, as
its users split a long run; the runner's clock skips the time. Every invocation then replays all
steps before it.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner

from tests.bench.endpoint import require

OPERATIONS_LIMIT = 3_000
"""Of one execution, at AWS: a quota that the test runner does not play."""


class Durable:
    """Runs a job of so many steps, some in each invocation."""

    def __init__(self, batches: int, *, by_invocation: int) -> None:
        self.batches = batches
        self.by_invocation = by_invocation
        self.resumes_s: list[float] = []
        """For each invocation: from its begin to the first step that is not replayed."""
        self._done: list[int] = []
        self._begun_s = 0.0
        self._is_replaying = False

    def run_s(self) -> float:
        """Run it to its end; return the seconds."""
        self.resumes_s, self._done = [], []
        begin_s = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with DurableFunctionTestRunner(handler=self._invoke, execution_timeout=3600) as runner:
                result = runner.run(input="{}")
        took_s = time.perf_counter() - begin_s
        require(is_right=result.status.value == "SUCCEEDED", found=result.error)
        require(is_right=self._done == list(range(self.batches)), found=len(self._done))
        return took_s

    def _invoke(self, event: Any, context: Any) -> Any:
        self._begun_s, self._is_replaying = time.perf_counter(), True
        return durable_execution(self._work)(event, context)

    def _work(self, _event: Any, context: DurableContext) -> int:
        for number in range(self.batches):
            if number and number % self.by_invocation == 0:
                context.wait(Duration.from_seconds(1), name=f"pause-{number}")
            context.step(lambda _step, number=number: self._batch(number), name=f"batch-{number}")
        return self.batches

    def _batch(self, number: int) -> int:
        if self._is_replaying:
            self.resumes_s.append(time.perf_counter() - self._begun_s)
            self._is_replaying = False
        self._done.append(number)
        return number
