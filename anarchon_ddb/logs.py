"""The package's log: JSON by Powertools, on a logger of its own.

Powertools' ``Logger`` puts a filter on the root logger's handlers when it configures a logger
itself. A library must not: so the parent is configured here, and Powertools is given a child of it.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from typing import IO

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

NAME = "anarchon"


class _StdoutHandler(logging.StreamHandler[IO[str]]):
    """Write to what ``sys.stdout`` is at the time of writing: a test may have replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stdout
        super().emit(record)


@cache
def logger() -> Logger:
    """Return the package's logger. Its level is that of ``POWERTOOLS_LOG_LEVEL``."""
    parent = logging.getLogger(NAME)
    handler = _StdoutHandler(sys.stdout)
    handler.setFormatter(LambdaPowertoolsFormatter(utc=True, use_rfc3339=True, service=NAME))
    parent.addHandler(handler)
    # In Lambda the root logger has a handler of the runtime's: each line would come twice.
    parent.propagate = "AWS_LAMBDA_RUNTIME_API" not in os.environ
    # Where a Powertools child looks for its parent's handler.
    parent.powertools_handler = handler  # type: ignore[attr-defined]
    return Logger(service=NAME, child=True)
