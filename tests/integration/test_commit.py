"""run.commit and run.condition_check on moto: the user's writes and the checkpoint are one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from anarchon_ddb import CommitError, LeaseLost, Run, StoreError, job, operations, transaction
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT, read
from tests.faults import Faults, Request, error_reply
from tests.integration.test_stale_holder import Holder
from tests.twin import Twin

EVENT = scheduler_event("export", SLOT)
Contexts = Callable[..., LambdaContext]
TRANSACT = "TransactWriteItems"


@pytest.fixture
def totals(store: Store) -> Callable[[], int]:
    """A table of the user's with one counter; returns what the counter says."""
    store.client.create_table(
        TableName="totals",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )

    def count() -> int:
        found = store.client.get_item(TableName="totals", Key={"id": {"S": "planes"}})
        return int(found["Item"]["sum"]["N"]) if "Item" in found else 0

    return count


def add(number: int) -> dict[str, Any]:
    return {
        "Update": {
            "TableName": "totals",
            "Key": {"id": {"S": "planes"}},
            "UpdateExpression": "SET #sum = if_not_exists(#sum, :zero) + :number",
            "ExpressionAttributeNames": {"#sum": "sum"},
            "ExpressionAttributeValues": {":zero": {"N": "0"}, ":number": {"N": str(number)}},
        }
    }


def put(name: str, **rest: Any) -> dict[str, Any]:
    return {"Put": {"TableName": "totals", "Item": {"id": {"S": name}}, **rest}}


def test_a_batch_and_its_checkpoint_are_stored_together(
    store: Store, context: Contexts, totals: Any, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.commit([add(3)], 1, done=10, total=20)
        assert (run.checkpoint, totals()) == (1, 3)
        run.commit([add(4)], 2, done=20)

    assert handler(EVENT, context())["outcome"] == "succeeded"
    record = read(store)
    assert (record.checkpoint, record.done, record.total, record.strikes) == ("2", 20, 20, 1)
    assert totals() == 7
    bodies = [request.body for request in faults.seen if request.operation == TRANSACT]
    assert len({body["ClientRequestToken"] for body in bodies}) == len(bodies) == 2
    own = bodies[0]["TransactItems"][-1]["Update"]
    assert own["ConditionExpression"] == (
        "#state = :running AND #owner = :owner AND #attempt = :attempt AND #seq < :seq"
    )
    assert "#longest_batch_ms" in own["UpdateExpression"]


def test_a_commit_of_nothing_is_a_save(store: Store, context: Contexts, calls: list[str]) -> None:
    @job("export")
    def handler(run: Run) -> None:
        calls.clear()
        run.commit([], 1)
        assert calls == ["UpdateItem"]

    assert handler(EVENT, context())["outcome"] == "succeeded"


def test_a_commit_stops_early_like_a_save_and_counts_as_progress(
    store: Store, context: Contexts, clock: SettableClock, totals: Any
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        clock.advance(seconds=55)
        run.commit([add(1)], 1)
        pytest.fail("went on")

    assert handler(EVENT, context())["outcome"] == "interrupted"
    record = read(store)
    assert (record.strikes, record.checkpoint, record.longest_batch_ms) == (0, "1", 55_000)
    assert totals() == 1


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([put(str(n)) for n in range(100)], "100 items and the checkpoint are more than the 100"),
        (
            [put(str(n), pad={"S": "é" * 30_000}) for n in range(80)],
            "bytes, more than the 4,194,304",
        ),
        ([{"Upsert": {}}], r"item 0 has Upsert, expected one of Put, Update"),
        ([{}], "item 0 has nothing"),
        ([put("a") | {"Delete": {}}], "item 0 has Put, Delete"),
        ([(1, 2)], "item 0 has tuple"),
    ],
)
def test_what_dynamodb_can_not_take_is_refused_before_the_call(
    store: Store, context: Contexts, calls: list[str], items: list[Any], told: str
) -> None:
    for item in items:
        if isinstance(item, dict) and "pad" in item.get("Put", {}):
            item["Put"]["Item"]["pad"] = item["Put"].pop("pad")

    @job("export")
    def handler(run: Run) -> None:
        run.save(7)
        calls.clear()
        with pytest.raises(CommitError, match=told):
            run.commit(items, 8)
        assert calls == []
        assert run.checkpoint == 7

    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert read(store).checkpoint == "7"


def test_ninety_nine_items_are_stored(store: Store, context: Contexts, totals: Any) -> None:
    @job("export")
    def handler(run: Run) -> None:
        run.commit((put(str(n)) for n in range(99)), 1)

    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert store.client.scan(TableName="totals", Select="COUNT")["Count"] == 99


def test_the_run_itself_is_no_item_of_a_commit(store: Store, context: Contexts) -> None:
    @job("export")
    def handler(run: Run) -> None:
        with pytest.raises(CommitError, match="item 0 is the run itself"):
            run.commit([run.condition_check()], 1)

    handler(EVENT, context())


def test_a_condition_of_the_users_that_fails_is_told_and_the_handler_may_go_on(
    store: Store, context: Contexts, totals: Any
) -> None:
    once = put("report", ConditionExpression="attribute_not_exists(id)")

    @job("export")
    def handler(run: Run) -> None:
        run.commit([once], 1)
        with pytest.raises(CommitError, match=r"item 1 \(Put on table 'totals'\) was refused") as e:
            run.commit([add(1), once], 2)
        assert (e.value.index, e.value.code) == (1, "ConditionalCheckFailed")
        assert (run.checkpoint, read(store).checkpoint, totals()) == (1, "1", 0)
        run.commit([add(5)], 2)

    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert (read(store).checkpoint, totals()) == ("2", 5)


def test_a_stale_holder_commits_nothing(
    store: Store, context: Contexts, clock: SettableClock, totals: Any
) -> None:
    stale = Holder(store, context("15m"), EVENT)
    stale.run.commit([add(1)], 1)
    clock.advance(seconds=70)
    holder = Holder(store, context("15m"), EVENT)
    before = read(store)
    for _ in range(2):
        with pytest.raises(LeaseLost, match="attempt 1 was overtaken"):
            stale.run.commit([add(10)], 2)
    assert (totals(), read(store), stale.run.checkpoint) == (1, before, 1)
    holder.run.commit([add(100)], 2)
    assert totals() == 101


@pytest.mark.parametrize("times", [1, 2])
def test_a_lost_reply_is_recognised(
    store: Store, context: Contexts, totals: Any, faults: Faults, times: int
) -> None:
    """moto knows no tokens: the SDK's own retry is refused there, and the item tells."""

    @job("export")
    def handler(run: Run) -> None:
        run.commit([add(3)], 1)
        run.commit([add(4)], 2)

    faults.lose_reply(TRANSACT, times=times)
    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert (totals(), read(store).checkpoint) == (7, "2")
    bodies = [request.body for request in faults.seen if request.operation == TRANSACT]
    tokens = [body["ClientRequestToken"] for body in bodies]
    assert len(tokens) > len(set(tokens)) == 2


def test_a_renewal_whose_reply_was_lost_is_not_taken_for_a_commit(
    store: Store, context: Contexts, totals: Any, faults: Faults
) -> None:
    holder = Holder(store, context("15m"), EVENT)
    faults.lose_reply("renew", times=99)
    with pytest.raises(StoreError):
        holder.held.lease.renew()
    holder.run.commit([add(3)], 1)
    assert (totals(), read(store).checkpoint) == (3, "1")


def test_a_commit_of_which_every_reply_is_lost_is_not_repeated_by_this_attempt(
    store: Store, context: Contexts, clock: SettableClock, totals: Any, faults: Faults
) -> None:
    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        for batch in range(run.checkpoint or 0, 2):
            try:
                run.commit([add(1)], batch + 1)
            except StoreError:
                run.commit([add(1)], batch + 1)

    faults.lose_reply(TRANSACT, times=10_000)
    with pytest.raises(StoreError):
        handler(EVENT, context())
    assert (totals(), read(store).checkpoint) == (1, "1")
    faults._after.clear()
    assert handler(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert (totals(), read(store).checkpoint) == (2, "2")


def cancelled(*codes: str) -> AWSResponse:
    reply = error_reply("TransactionCanceledException", 400)
    body = {
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "message": f"Transaction cancelled [{', '.join(codes)}]",
        "CancellationReasons": [{"Code": code} for code in codes],
    }
    reply.raw.body = json.dumps(body).encode()
    return reply


def test_a_conflict_is_tried_again(
    store: Store, context: Contexts, totals: Any, faults: Faults
) -> None:
    left = [2]

    def conflict(request: Request) -> AWSResponse | None:
        if request.operation != TRANSACT or not left[0]:
            return None
        left[0] -= 1
        return cancelled("None", "TransactionConflict")

    @job("export")
    def handler(run: Run) -> None:
        faults._before.append(conflict)
        run.commit([add(1)], 1)

    assert handler(EVENT, context())["outcome"] == "succeeded"
    assert (totals(), left) == (1, [0])


def test_a_commit_that_is_denied_leaves_the_attempt_able_to_write(
    store: Store, context: Contexts, faults: Faults
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        faults.answer(TRANSACT, "AccessDeniedException")
        with pytest.raises(StoreError, match="Grant dynamodb:UpdateItem"):
            run.commit([add(1)], 1)
        run.save(1)

    assert handler(EVENT, context())["outcome"] == "succeeded"


def test_a_stop_is_seen_after_a_third_of_the_lease(
    store: Store, context: Contexts, clock: SettableClock, totals: Any, calls: list[str]
) -> None:
    """A transaction's reply tells no item: so it is looked for, as seldom as a renewal."""

    @job("export")
    def handler(run: Run) -> None:
        for batch in range(1, 9):
            run.commit([add(1)], batch)
            if batch == 1:
                operations.cancel(store, "export", run.slot)
                calls.clear()
            clock.advance(seconds=7)

    assert handler(EVENT, context("15m"))["outcome"] == "cancelled"
    assert totals() == 4  # at 0, 7, 14 and 21 s
    assert calls[:4] == [TRANSACT, TRANSACT, TRANSACT, "GetItem"]


def test_the_fence_in_a_transaction_of_ones_own(
    store: Store, context: Contexts, clock: SettableClock, totals: Any
) -> None:
    stale = Holder(store, context("15m"), EVENT)
    items = [stale.run.condition_check(), add(1)]
    store.client.transact_write_items(TransactItems=items)
    clock.advance(seconds=70)
    holder = Holder(store, context("15m"), EVENT)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        store.client.transact_write_items(TransactItems=items)
    store.client.transact_write_items(TransactItems=[holder.run.condition_check(), add(10)])
    assert totals() == 11


def test_a_cursor_that_can_not_be_stored_commits_nothing(
    store: Store, context: Contexts, totals: Any
) -> None:
    @job("export")
    def handler(run: Run) -> None:
        for cursor in (None, float("nan")):
            with pytest.raises(Exception, match=r"None is no cursor|nan"):
                run.commit([add(1)], cursor)

    handler(EVENT, context())
    assert totals() == 0


# --- the explorer's table does with a transaction what moto does ------------------------------


def key(name: str) -> dict[str, Any]:
    return {"pk": {"S": name}, "sk": {"S": "x"}}


def counting(name: str, **rest: Any) -> dict[str, Any]:
    return {
        "Update": {
            "TableName": "anarchon",
            "Key": key(name),
            "UpdateExpression": "SET #n = if_not_exists(#n, :zero) + :one",
            "ExpressionAttributeNames": {"#n": "n"},
            "ExpressionAttributeValues": {":zero": {"N": "0"}, ":one": {"N": "1"}},
            **rest,
        }
    }


ABSENT = {
    "ConditionExpression": "attribute_not_exists(#pk)",
    "ExpressionAttributeNames": {"#pk": "pk"},
}
PUT = {"Put": {"TableName": "anarchon", "Item": key("p") | {"n": {"N": "9"}}, **ABSENT}}
SEEN = {"ConditionCheck": {"TableName": "anarchon", "Key": key("b"), **ABSENT}}
DELETE = {"Delete": {"TableName": "anarchon", "Key": key("a")}}
SEQUENCE = (
    [counting("a"), PUT],
    [counting("a"), PUT],
    [SEEN, counting("c")],
    [counting("b"), DELETE],
    [SEEN, counting("c")],
    [counting("a"), counting("c")],
)


def test_the_twin_does_with_transactions_what_moto_does(store: Store) -> None:
    twin = Twin()
    for number, items in enumerate(SEQUENCE):
        token = transaction.token("owner", 1, number)
        other = Store("anarchon")
        other._connection = twin  # type: ignore[assignment]
        assert _codes(store.transact(items, token)) == _codes(other.transact(items, token))
        found = store.client.scan(TableName="anarchon")["Items"]
        theirs = sorted((item["pk"]["S"], int(item["n"]["N"])) for item in found)
        assert theirs == sorted((pk, item["n"]) for (pk, _), item in twin.items.items())


def _codes(reasons: Any) -> Any:
    return None if reasons is None else [code for code, _ in reasons]
