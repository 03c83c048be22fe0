"""Any boto3 paginator, resumed from the operation's own token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.loaders import Loader

from anarchon_ddb import AnarchonError, Run, job, pagination
from anarchon_ddb.schema import RunKey
from anarchon_ddb.store import Store
from anarchon_ddb.testing import LambdaContext, SettableClock, resume_event, scheduler_event
from tests.conftest import SLOT, read

Contexts = Callable[..., LambdaContext]


@pytest.fixture
def table(store: Store) -> str:
    """A table with keys of type N and B, 23 items."""
    store.client.create_table(
        TableName="source",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "N"},
            {"AttributeName": "sk", "AttributeType": "B"},
        ],
    )
    for number in range(23):
        item = {"pk": {"N": f"{number % 5}"}, "sk": {"B": bytes([number, 255])}}
        store.client.put_item(TableName="source", Item=item)
    return "source"


@pytest.mark.parametrize("kind", ["client", "resource"])
def test_C40_a_scan_goes_on_over_invocations_with_number_and_binary_keys(
    store: Store, table: str, clock: SettableClock, context: Contexts, calls: list[str], kind: str
) -> None:
    """One page an invocation; every item once; with Decimal and Binary keys of the resource."""
    seen: list[bytes] = []
    session = boto3.session.Session(region_name="eu-west-1")
    client = (
        session.client("dynamodb") if kind == "client" else session.resource("dynamodb").meta.client
    )

    @job("export")
    def handler(run: Run) -> None:
        for page in run.paginate(client, "scan", TableName=table, Limit=7):
            for item in page["Items"]:
                binary = item["sk"]
                seen.append(binary["B"] if kind == "client" else bytes(binary))
            clock.advance(seconds=55)

    outcomes = [handler(scheduler_event("export", SLOT), context())["outcome"]]
    while outcomes[-1] == "interrupted":
        outcomes.append(handler(resume_event("export", SLOT), context())["outcome"])
    assert outcomes == ["interrupted", "interrupted", "interrupted", "succeeded"]
    assert sorted(bytes([number, 255]) for number in range(23)) == sorted(seen)
    assert len(seen) == 23
    assert calls.count("Scan") == 4
    assert (read(store).checkpoint, read(store).done) == ("{}", 23)


def test_a_run_that_saved_its_last_page_reads_none_again(
    store: Store, table: str, context: Contexts, calls: list[str]
) -> None:
    attempts: list[int] = []

    @job("export", retry_delay="0s")
    def handler(run: Run) -> None:
        attempts.append(run.attempt)
        for _ in run.paginate(store.client, "scan", TableName=table):
            pass
        if run.attempt == 1:
            raise ValueError("after the last page")

    with pytest.raises(ValueError, match="after the last"):
        handler(scheduler_event("export", SLOT), context())
    assert handler(resume_event("export", SLOT), context())["outcome"] == "succeeded"
    assert calls.count("Scan") == 1


def test_S3_versions_take_two_tokens(store: Store, clock: SettableClock, context: Contexts) -> None:
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="versions")
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    for number in range(9):
        s3.put_object(Bucket="versions", Key=f"key{number % 3}", Body=b"x")
    seen: list[tuple[str, str]] = []
    tokens: list[Any] = []

    @job("export")
    def handler(run: Run) -> None:
        for page in run.paginate(s3, "list_object_versions", Bucket="versions", MaxKeys=4):
            seen.extend((found["Key"], found["VersionId"]) for found in page["Versions"])
            clock.advance(seconds=55)
        tokens.append(run.checkpoint)

    outcome = handler(scheduler_event("export", SLOT), context())["outcome"]
    assert outcome == "interrupted"
    assert set(__import__("json").loads(read(store).checkpoint or "")) == {
        "KeyMarker",
        "VersionIdMarker",
    }
    while outcome == "interrupted":
        outcome = handler(resume_event("export", SLOT), context())["outcome"]
    assert len(seen) == len(set(seen)) == 9


def test_IAM_takes_a_marker(store: Store, context: Contexts) -> None:
    iam = boto3.client("iam")
    for number in range(7):
        iam.create_user(UserName=f"user{number}")
    seen: list[str] = []

    @job("export")
    def handler(run: Run) -> None:
        for page in run.paginate(iam, "list_users", MaxItems=3):
            seen.extend(user["UserName"] for user in page["Users"])

    assert handler(scheduler_event("export", SLOT), context())["outcome"] == "succeeded"
    assert [f"user{number}" for number in range(7)] == sorted(seen)


class Pages:
    """A client whose pages are given; the paginator model is botocore's own."""

    def __init__(self, client: Any, pages: list[dict[str, Any]]) -> None:
        self._client = client
        self._pages: Iterator[dict[str, Any]] = iter(pages)
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def scan(self, **arguments: Any) -> dict[str, Any]:
        self.asked.append(arguments)
        return next(self._pages)


def test_an_empty_page_with_a_token_is_no_end(store: Store) -> None:
    client = Pages(store.client, [{"Items": [], "LastEvaluatedKey": {"a": {"S": "1"}}},
                                  {"Items": [1]}])  # fmt: skip
    found = list(pagination.pages(client, "scan", {"TableName": "t"}, None))
    assert [page["Items"] for page, _, _ in found] == [[], [1]]
    assert client.asked[1]["ExclusiveStartKey"] == {"a": {"S": "1"}}


def test_the_same_token_twice_is_an_error_not_an_endless_loop(store: Store) -> None:
    page = {"Items": [], "LastEvaluatedKey": {"a": {"S": "1"}}}
    with pytest.raises(AnarchonError, match="same token twice"):
        list(pagination.pages(Pages(store.client, [page] * 3), "scan", {}, None))


def test_an_operation_without_paginator_is_named(store: Store) -> None:
    with pytest.raises(AnarchonError, match="dynamodb has no paginator for 'get_item'"):
        list(pagination.pages(store.client, "get_item", {}, None))


def test_every_paginator_of_botocore_is_understood(aws: None) -> None:
    """Each model names its tokens as texts, in pairs; nothing else would be silently dropped."""
    loader = Loader()
    checked = 0
    for service in botocore.session.get_session().get_available_services():
        try:
            model = loader.load_service_model(service, "paginators-1")
        except Exception:
            continue
        for config in model["pagination"].values():
            names = pagination._listed(config["input_token"])
            outputs = pagination._listed(config["output_token"])
            assert all(isinstance(name, str) and "." not in name for name in names)
            assert len(names) == len(outputs)
            pagination._next_token({}, config)
            checked += 1
    assert checked > 1_000


def test_a_key_is_where_it_is_stored() -> None:
    assert RunKey("a", "b").wire == {"pk": {"S": "job#a"}, "sk": {"S": "run#b"}}
