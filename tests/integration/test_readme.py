"""The README's job and the README's test of it work as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CUSTOMERS = [SimpleNamespace(id=number) for number in range(1, 451)]


def customers_after(after: int | None, limit: int) -> list[Any]:
    return [customer for customer in CUSTOMERS if customer.id > (after or 0)][:limit]


def test_the_job_and_its_test_run_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    job, test = BLOCKS
    exported: list[int] = []
    names: dict[str, Any] = {
        "customers_after": customers_after,
        "export_batch": lambda batch: exported.extend(customer.id for customer in batch),
    }
    exec(job, names)
    exec(test, names)
    names["test_the_export_succeeds"](monkeypatch)
    assert [customer.id for customer in CUSTOMERS] == exported


def test_the_files_it_points_to_exist() -> None:
    root = Path(__file__).parents[2]
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [
        link for link in links if not link.startswith("http") and not (root / link).exists()
    ] == []
