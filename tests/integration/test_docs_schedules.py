"""What docs/schedules.md shows is true: its examples are run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "schedules.md"


def test_each_expression_of_the_page_gives_what_it_says() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 10
    assert result.failed == 0


def test_the_job_of_the_page_passes_the_test_of_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    code = "\n".join(block for block in blocks if ">>>" not in block)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)  # the page is our own
    names["test_Monday_exports_the_weekend"](monkeypatch, capsys)
