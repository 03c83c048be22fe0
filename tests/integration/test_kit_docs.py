"""The examples in the testing kit's docstrings, and those of commit, are run as they stand."""

from __future__ import annotations

import doctest
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from anarchon_ddb import Run, job, transaction
from anarchon_ddb.store import Store
from anarchon_ddb.testing import outside, scheduler_event, words
from tests.conftest import SLOT

MODULES = ("context", "driving", "crashes", "events", "execution", "words", "world")
ORDER = (
    "the effects are the same in another order; return them sorted if that is no matter: "
    + words.DIFFERS
)
exported: dict[int, int] = {}


@outside
def customers_after(after: int | None, limit: int) -> list[Any]:
    return [SimpleNamespace(id=n) for n in range(1, 451) if n > (after or 0)][:limit]


@outside
def export_batch(batch: list[Any]) -> None:
    exported.update((customer.id, customer.id) for customer in batch)


@job("export")
def handler(run: Run) -> None:
    after = run.checkpoint
    while batch := customers_after(after, limit=200):
        export_batch(batch)
        after = batch[-1].id
        run.save(after)


@job("export")
def small(run: Run) -> None:
    export_batch(customers_after(440, limit=200))


@pytest.mark.parametrize("name", [*MODULES, ""])
def test_the_examples_work(anarchon_table: Store, name: str) -> None:
    module = importlib.import_module(f"anarchon_ddb.testing.{name}".rstrip("."))
    names = {
        "handler": small if name == "crashes" else handler,
        "rows": lambda: list(exported),
        "clear": exported.clear,
    }
    found = doctest.testmod(module, extraglobs=names)
    assert found.failed == 0
    assert found.attempted > 0


def test_the_examples_of_a_transaction_work() -> None:
    assert doctest.testmod(transaction) == (0, 2)


def test_the_example_of_commit_works(anarchon_table: Store, context: Any, clock: Any) -> None:
    """As the docstring has it; only the names it takes for granted are given."""
    example = doctest.DocTestFinder().find(Run.commit, "commit")[0].examples[0]
    names: dict[str, Any] = {
        "Run": Run,
        "payments_after": lambda after, limit: customers_after(max(after or 0, 390), limit),
        "addition": lambda customer: {
            "Put": {
                "TableName": "anarchon",
                "Item": {"pk": {"S": "payment"}, "sk": {"S": str(customer.id)}},
            }
        },
    }
    exec(example.source, names)
    assert job("export")(names["handler"])(scheduler_event("export", SLOT), context())
    record = anarchon_table.client.query(
        TableName="anarchon",
        Select="COUNT",
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": "payment"}},
    )
    assert record["Count"] == 60


@pytest.mark.parametrize(
    ("expected", "found", "told"),
    [
        ([1, 2], [2, 1], ORDER),
        ([1, 2, 3], [1, 1, 1, 2, 2], f"1-2 are there up to 3 times; 3 is missing: {words.DIFFERS}"),
        ([], ["a"], f"'a' is there and should not be: {words.DIFFERS}"),
        ({"a": 2}, {"a": 1}, f"'a' is 1 instead of 2: {words.LOST}"),
        ({"a": "x"}, {"a": "y"}, f"'a' is 'y' instead of 'x': {words.DIFFERS}"),
        (5, 6, f"the effects are 6 instead of 5: {words.DIFFERS}"),
        ({1, 2}, {1}, f"2 is missing: {words.LOST}"),
        (list("abcdefghijk"), [], "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h' and 3 more are missing: "
         + words.LOST),
    ],
)  # fmt: skip
def test_a_difference_is_told_in_words(expected: Any, found: Any, told: str) -> None:
    assert words.difference(expected, found) == told
