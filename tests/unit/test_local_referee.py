"""The referee of a play, fed with the writes of a sandbox and of a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import pytest

from anarchon_ddb import Run, job, operations
from anarchon_ddb.local.aws import Call
from anarchon_ddb.local.referee import Referee
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT
from tests.faults import Faults, Request

AT = datetime.fromisoformat(SLOT)


@pytest.fixture
def signers() -> list[str]:
    """Who signs the next write: the last one."""
    return ["local-export@1"]


@pytest.fixture
def referee(store: Store, clock: SettableClock, faults: Faults, signers: list[str]) -> Referee:
    """Sees each write as the embedded AWS shows it."""
    referee = Referee(store.client, frozenset({store.table}), clock)

    def watch(request: Request) -> None:
        if request.operation == "UpdateItem":
            body = json.dumps(request.body).encode()
            signer = signers[-1]
            call = Call(signer.partition("@")[0], signer, "dynamodb", "UpdateItem", "/", body, 200)
            referee.watch(call)

    faults._after.append(watch)
    return referee


def test_what_a_person_takes_from_a_dead_holder_is_no_claim_of_a_second_one(
    store: Store, context: Callable[..., LambdaContext], referee: Referee, signers: list[str]
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.save(run.attempt)
        if run.attempt == 1:
            signers.append("person")
            operations.release(store, "export", AT)
            signers.pop()

    assert handler(scheduler_event("export", SLOT), context())["outcome"] == "lost"
    assert handler(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert referee.broken == {}
    assert referee.counts["claims"] == 2
