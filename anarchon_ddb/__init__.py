"""Serverless cron for AWS Lambda: slot leases, checkpoints, an early stop before the timeout."""

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
