"""Mistakes planted into a template that has none: each is found, on its line, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anarchon_ddb.doctor import checkup, reading
from anarchon_ddb.template.source import parse

FOLDER = Path(__file__).parents[1] / "data/templates"
BASE = (FOLDER / "base.yaml").read_text()
NOW = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)


@dataclass
class Planted:
    title: str
    text: str
    expected: Counter[tuple[int, str]]

    @property
    def rule(self) -> str:
        return self.title.partition(":")[0]


def read_planted() -> list[Planted]:
    sections = (FOLDER / "planted.txt").read_text().split("\n== ")[1:]
    return [planted(*section.split("\n", 1)) for section in sections]


def planted(title: str, patch: str) -> Planted:
    lines = BASE.splitlines()
    for old, new in hunks(patch):
        start = next((at for at in range(len(lines)) if lines[at : at + len(old)] == old), None)
        assert start is not None, f"{title}: base.yaml has no {old}"
        lines[start : start + len(old)] = new
    rule = title.partition(":")[0]
    expected: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(lines, 1):
        _, mark, names = line.partition("#!")
        if mark:
            expected.update((number, name) for name in names.split() or [rule])
    return Planted(title, "\n".join(lines), expected)


def hunks(patch: str) -> list[tuple[list[str], list[str]]]:
    found: list[tuple[list[str], list[str]]] = []
    last = "+"
    for line in patch.splitlines():
        if not line:
            continue
        if line[0] == "-" and last == "+":
            found.append(([], []))
        found[-1][line[0] == "+"].append(line[2:])
        last = line[0]
    return found


PLANTED = read_planted()


def findings(text: str) -> list[tuple[int, str, str]]:
    model = reading.model_of(parse(text, FOLDER / "planted.yaml"))
    model.now = NOW
    return [(one.line, one.rule, one.what) for one in checkup.examine(model).findings]


def test_the_template_that_they_are_planted_into_has_no_fault() -> None:
    assert findings(BASE) == []


@pytest.mark.parametrize("case", PLANTED, ids=[case.title for case in PLANTED])
def test_a_planted_mistake_is_found_on_its_line_and_nothing_else(case: Planted) -> None:
    found = findings(case.text)
    assert Counter({(line, rule) for line, rule, _ in found}) == case.expected, found


def test_there_are_enough_of_them_and_each_rule_has_one() -> None:
    assert len(PLANTED) >= 40
    seen = {name for case in PLANTED for _, name in case.expected}
    # Findings in a handler's file have a test of their own.
    assert {rule.id for rule in checkup.RULES} - seen == {"decorator"}


def test_an_option_that_the_decorator_refuses_is_found_in_the_handlers_file() -> None:
    model = reading.model_of(
        parse(BASE.replace("jobs.export", "jobs.slip"), FOLDER / "planted.yaml")
    )
    found = [one for one in checkup.examine(model).findings if one.rule == "decorator"]
    assert [(one.path.name, one.line) for one in found] == [("jobs.py", 16)]


def test_each_rule_says_why_it_hurts_and_what_to_do() -> None:
    ids = [rule.id for rule in checkup.RULES]
    assert len(ids) == len(set(ids))
    for rule in checkup.RULES:
        assert rule.title
        assert rule.why.endswith(".")
        assert len(rule.fix) > 10
