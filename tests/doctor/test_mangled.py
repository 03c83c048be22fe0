"""Mangled templates: findings or one clear error, never a traceback. 5,000 of them at night."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from anarchon_ddb.doctor import checkup, reading, report
from anarchon_ddb.template.source import Map, Seq, Source, Tagged, TemplateError, parse
from tests import sam

FOLDER = Path(__file__).parents[1] / "data/templates"
SOURCES = [
    FOLDER / "base.yaml",
    sam.ROOT / "template.yaml",
    *(sam.ROOT / name for name in sam.NESTED if "dashboard" not in name),
    *sorted((FOLDER / "shapes").iterdir()),
]
TEXTS = [(path, path.read_text()) for path in SOURCES]
PIECES = (
    "!Ref X", "!GetAtt", "!Sub ${", "!If [A, B]", "!If [IsProd, a, b]", "!Select [9, []]", "[]",
    "{}", "null", "~", "true", "-1", "1e999", "0x", "2026-99-01", "2026-01-01", "'", "\"", "*a",
    "&a ", ": ", "- ", "!FindInMap [A]", "!Join [',', 3]", "!Split ['', x]", "cron()",
    "rate(99999999999 days)", "at(9999-12-31T23:59:59)", "\t", "\u0000", "\u202e", "é" * 50,
    "{{resolve:x}}", "Fn::ForEach::A: 1", "? ", "<<: 1", "!!binary x", "!!set {a}", "% ", "---\n",
    ".inf", ".nan", "!Equals [a]", "!Not 1", "!ToJsonString .nan", "9" * 400, "[" * 30,
    "!Sub ['', 1]", "!Sub [[], {}]", "!GetAtt [1, 2]",
)  # fmt: skip


VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 10**30, 1.5, float("nan"), "", "*", b"x", date(2026, 1, 1), set(),
    Map(1), Seq(1), Tagged("Ref", None, 1), Tagged("Ref", 3, 1), Tagged("Ref", Seq(1), 1),
    Tagged("GetAtt", 5, 1), Tagged("GetAtt", "Table", 1), Tagged("Sub", Map(1), 1),
    Tagged("Sub", "${", 1), Tagged("Sub", "${}", 1), Tagged("Sub", "${Export}${Table.Arn}", 1),
    Tagged("If", "x", 1), Tagged("Select", Seq(1), 1), Tagged("Nonsense", "x", 1),
    Tagged("Ref", "AWS::NoValue", 1), Tagged("Ref", "Export", 1), Tagged("ImportValue", "x", 1),
    Tagged("ToJsonString", Map(1), 1), Tagged("Equals", None, 1), Tagged("Split", Seq(1), 1),
)  # fmt: skip


def mangled(seed: int) -> tuple[Path, str]:
    """Change some lines: drop, double, swap, cut, indent, or put something else in."""
    chance = random.Random(seed)
    path, text = TEXTS[seed % len(TEXTS)]
    lines = text.splitlines()
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(lines))
        line = lines[at]
        key, colon, _ = line.partition(":")
        lines[at] = chance.choice(
            [
                "",
                f"{line}\n{line}",
                lines[chance.randrange(len(lines))],
                line[: chance.randint(0, len(line))],
                " " * chance.randint(1, 5) + line,
                line.strip(),
                f"{key}{colon} {chance.choice(PIECES)}",
                line.replace(" ", chance.choice(PIECES), 1),
                line + chance.choice(PIECES),
                line.replace(chance.choice("ae:[{'"), "", 1),
            ]
        )
    return path, "\n".join(lines)


def twisted(seed: int) -> Source:
    """Put something else in place of some values: YAML in order, a template out of order."""
    chance = random.Random(seed)
    path, text = TEXTS[seed % len(TEXTS)]
    source = parse(text, path)
    for _ in range(chance.randint(1, 6)):
        places = list(slots(source.data))
        holder, key = chance.choice(places)
        other, other_key = chance.choice(places)
        holder[key] = chance.choice([*VALUES, other[other_key], chance.choice(PIECES)])
    return source


def slots(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a value that can be given another one; not too deep, it may be a ring."""
    if isinstance(value, Tagged):
        yield from slots(value.argument, depth)
    keys = value if isinstance(value, Map) else range(len(value)) if isinstance(value, Seq) else ()
    for key in keys if depth < 12 else ():
        if (depth, key) != (0, "Resources"):
            yield value, key
        yield from slots(value[key], depth + 1)


def made(seed: int) -> Source | None:
    """Return a template, by turns mangled as text and as data; None if it is refused as one."""
    if seed % 2:
        return twisted(seed)
    path, text = mangled(seed)
    try:
        return parse(text, path)
    except TemplateError as error:
        return None if str(path) in str(error) else pytest.fail(f"no file in {error}")


def outcome(seed: int) -> str:
    """Check a mangled template, and write the report in each form."""
    source = made(seed)
    if source is None:
        return "refused"
    model = reading.model_of(source)
    model.now = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)
    told = checkup.examine(model)
    json.dumps(report.as_json([told]))
    json.dumps(report.as_sarif([told], checkup.RULES, "0"))
    assert all(one.line >= 1 for one in told.findings)
    return "found" if told.findings else "sound"


def outcomes(first: int, count: int) -> set[str]:
    found = set()
    for seed in range(first, first + count):
        try:
            found.add(outcome(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    return found


def test_mangled_templates_give_findings_or_one_clear_error() -> None:
    assert outcomes(0, 500) == {"refused", "found", "sound"}


@pytest.mark.nightly
@pytest.mark.skipif("NIGHTLY" not in os.environ, reason="run by make nightly")
@pytest.mark.timeout(1200)
def test_5000_mangled_templates_give_findings_or_one_clear_error() -> None:
    first = int(os.environ.get("FIRST_SEED", "10000"))
    assert outcomes(first, 5000) == {"refused", "found", "sound"}
