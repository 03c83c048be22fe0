"""Serverless cron for AWS Lambda: slot leases, checkpoints, an early stop before the timeout.

A name is imported when it is first asked for, so that what needs none of them (the command line,
pytest's plugin) does not load the AWS SDK. ``job`` loads all that a handler's first invocation
needs: in Lambda during init.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anarchon_ddb.errors import (
        AnarchonError,
        Cancelled,
        CheckpointError,
        CheckpointTooLargeError,
        CommitError,
        InvalidEventError,
        InvalidJobError,
        InvalidScheduleError,
        LeaseLost,
        StopEarly,
        StoreError,
    )
    from anarchon_ddb.job import job
    from anarchon_ddb.run import Run

__all__ = [
    "AnarchonError",
    "Cancelled",
    "CheckpointError",
    "CheckpointTooLargeError",
    "CommitError",
    "InvalidEventError",
    "InvalidJobError",
    "InvalidScheduleError",
    "LeaseLost",
    "Run",
    "StopEarly",
    "StoreError",
    "job",
]


def __getattr__(name: str) -> object:
    """Import a public name (PEP 562); kept in the module, so that the next look finds it there."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = {"Run": "run", "job": "job"}.get(name, "errors")
    found: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package, whose ``job`` is the decorator even if the module ``job`` was imported first."""

    def __setattr__(self, name: str, value: object) -> None:
        # An import ends with the submodule put into its package.
        is_module = name == "job" and isinstance(value, ModuleType)
        super().__setattr__(name, value.job if is_module else value)  # type: ignore[attr-defined]


sys.modules[__name__].__class__ = _Package
