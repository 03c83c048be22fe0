"""A report as JSON and as SARIF 2.1.0. The keys are a promise to scripts: add, don't rename."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from anarchon_ddb.clock import iso

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anarchon_ddb.doctor.checkup import Preview, Report
    from anarchon_ddb.doctor.finding import Finding, Rule

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def place(path: Path) -> str:
    """Return a path as people and code scanning know it: from the working folder on."""
    try:
        return os.path.relpath(path).replace(os.sep, "/")
    except ValueError:  # another drive
        return path.as_posix()


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """Return reports as data."""
    return {
        "findings": [_finding(one) for report in reports for one in report.findings],
        "schedules": [_preview(one) for report in reports for one in report.schedules],
        "errors": sum(report.count("error") for report in reports),
        "warnings": sum(report.count("warning") for report in reports),
        "notes": sum(report.count("note") for report in reports),
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "file": place(one.path),
        "line": one.line,
        "rule": one.rule,
        "level": one.level,
        "what": one.what,
        "why": one.why,
        "fix": one.fix,
    }


def _preview(one: Preview) -> dict[str, Any]:
    return {
        "schedule": one.name,
        "job": one.job,
        "file": place(one.path),
        "line": one.line,
        "expression": one.expression,
        "timezone": one.timezone,
        "state": one.state,
        "in_words": one.in_words,
        "is_anchored": one.is_anchored,
        "next": [{"local": local.isoformat(), "slot": iso(slot)} for local, slot in one.slots],
    }


def as_sarif(reports: Sequence[Report], rules: Sequence[Rule], version: str) -> dict[str, Any]:
    """Return reports as code scanning takes them."""
    order = {rule.id: index for index, rule in enumerate(rules)}
    driver = {
        "name": "anarchon-ddb check",
        "version": version,
        "rules": [_sarif_rule(rule) for rule in rules],
    }
    results = [_sarif_result(one, order) for report in reports for one in report.findings]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}],
    }


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": rule.level},
    }


def _sarif_result(one: Finding, order: dict[str, int]) -> dict[str, Any]:
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": place(one.path)},
            "region": {"startLine": one.line},
        }
    }
    return {
        "ruleId": one.rule,
        "ruleIndex": order[one.rule],
        "level": one.level,
        "message": {"text": f"{one.what}. {one.why} {one.fix}"},
        "locations": [location],
    }
