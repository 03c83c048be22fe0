"""This package's side: a job that saves a number after each batch."""

from __future__ import annotations

import os
from typing import Any

from anarchon_ddb import Run, job, worker
from anarchon_ddb.clock import SYSTEM_CLOCK
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, scheduler_event
from tests.bench.endpoint import require
from tests.dynalite import Dynalite

NAME = "bench"


class Ours:
    """Runs one slot after another in a warm process.

    Parameters
    ----------
    store : Store, optional
        Of another side: a process that goes back and forth between two tables makes a new client
        each time. One of its own if not given.
    **options
        Of the job.
    """

    def __init__(self, dynalite: Dynalite, store: Store | None = None, **options: Any) -> None:
        self.store: Store = store or dynalite.new_table()
        os.environ["ANARCHON_TABLE"] = self.store.table
        self.batches = 0
        self.handler = job(NAME, **options)(self.work)

    def work(self, run: Run) -> None:
        for cursor in range((run.checkpoint or 0) + 1, self.batches + 1):
            run.save(cursor)

    def run(self, slot: str, batches: int) -> None:
        """Bring a slot from its delivery to its end."""
        self.batches = batches
        answer = self.handler(scheduler_event(NAME, slot), LambdaContext("15m"))
        require(is_right=answer["outcome"] == "succeeded", found=answer)

    @property
    def client(self) -> Any:
        """The one that the handler uses."""
        return worker.store_of(SYSTEM_CLOCK).client

    def check(self, slot: str, batches: int) -> None:
        record = self.store.read_run(RunKey(NAME, slot))
        stored = record and (record.state, record.attempt, record.checkpoint)
        wanted = ("succeeded", 1, str(batches) if batches else None)
        require(is_right=stored == wanted, found=record)
