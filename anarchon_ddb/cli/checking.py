"""``check``: the doctor for templates. Offline, except with ``--deployed``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anarchon_ddb.cli.options import OpsCommand, json_option, now
from anarchon_ddb.cli.screen import Screen, text
from anarchon_ddb.doctor import checkup, reading, report

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anarchon_ddb.doctor.checkup import Preview, Report
    from anarchon_ddb.doctor.finding import Finding, Level
    from anarchon_ddb.doctor.model import Model

_STYLES = {"error": "bold red", "warning": "yellow", "note": "blue"}
_EXAMPLES = """\b
Examples:
  anarchon-ddb check
  anarchon-ddb check template.yaml --parameter Stage=prod --region eu-west-1
  anarchon-ddb check --format sarif --output check.sarif
  anarchon-ddb check --deployed --stack anarchon-prod

\b
Exit codes: 0 no finding of level error, 1 errors were found, 2 wrong usage"""


@click.command("check", cls=OpsCommand, epilog=_EXAMPLES)
@click.argument("templates", nargs=-1, metavar="[TEMPLATE]...",
                type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@click.option("--parameter", "-p", "parameters", multiple=True, metavar="NAME=VALUE",
              help="A parameter of the template, as given to sam deploy.")  # fmt: skip
@click.option("--region", metavar="NAME", help="The value of AWS::Region.")
@click.option("--stack", metavar="NAME", help="The value of AWS::StackName.")
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), default="text",
              show_default=True, help="How findings are written.")  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write JSON or SARIF to a file, and the text to the terminal.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Warnings are errors.")
@click.option("--rules", "list_rules", is_flag=True, help="List what is looked for, and stop.")
@click.option("--deployed", is_flag=True, help="Compare with what runs, too; needs --stack.")
@json_option
def check_command(
    templates: tuple[Path, ...],
    parameters: tuple[str, ...],
    region: str | None,
    stack: str | None,
    form: str,
    output: Path | None,
    strict: bool,
    list_rules: bool,
    deployed: bool,
    as_json: bool,
) -> int:
    """Check a template: what will hurt, where, why, and the fix.

    TEMPLATE is template.yaml if not given. Nested templates are followed. Nothing is asked of AWS
    without --deployed.
    """
    screen = Screen(as_json=as_json)
    if list_rules:
        return _list_rules(screen)
    if deployed and not stack:
        raise click.UsageError("--deployed compares with a stack: give --stack NAME")
    pseudo = {"AWS::Region": region, "AWS::StackName": stack}
    given = _parameters(parameters)
    reports = []
    for path in templates or _default():
        model = reading.model(path, given, {key: value for key, value in pseudo.items() if value})
        model.now = now(None)
        reports.append(_examined(model, stack if deployed else None, region))
    _write(screen, _once(reports), "json" if as_json else form, output)
    bad = ("error", "warning") if strict else ("error",)
    return 1 if any(one.level in bad for each in reports for one in each.findings) else 0


def _default() -> tuple[Path, ...]:
    for name in ("template.yaml", "template.yml"):
        if Path(name).is_file():
            return (Path(name),)
    raise click.UsageError("there is no template.yaml here: name a template")


def _parameters(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for one in texts:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--parameter {one!r}: write NAME=VALUE")
        found[name] = value
    return found


def _examined(model: Model, stack: str | None, region: str | None) -> Report:
    made = checkup.examine(model)
    if stack is None:
        return made
    from anarchon_ddb.cli.connection import _environ  # noqa: PLC0415 - loads the SDK
    from anarchon_ddb.doctor.deployed import compare  # noqa: PLC0415

    with _environ({"AWS_DEFAULT_REGION": region} if region else {}):
        return replace(made, findings=(*made.findings, *compare(model, stack)))


def _once(reports: Sequence[Report]) -> list[Report]:
    """Leave out what was found already: a nested template that is also named by itself."""
    seen: set[tuple[Any, int, str, str]] = set()
    kept = []
    for one in reports:
        fresh = []
        for finding in one.findings:
            key = (finding.path.resolve(), finding.line, finding.rule, finding.what)
            if key not in seen:
                seen.add(key)
                fresh.append(finding)
        kept.append(replace(one, findings=tuple(fresh)))
    return kept


def _rules() -> tuple[Any, ...]:
    from anarchon_ddb.doctor.deployed import RULES  # noqa: PLC0415 - loads the AWS SDK

    return (*checkup.RULES, *RULES)


def _list_rules(screen: Screen) -> int:
    rules = _rules()
    if screen.as_json:
        screen.data([{"id": one.id, "level": one.level, "title": one.title, "why": one.why,
                      "fix": one.fix} for one in rules])  # fmt: skip
    else:
        screen.table(("RULE", "LEVEL", "WHAT"), [(one.id, one.level, one.title) for one in rules])
    return 0


def _write(screen: Screen, reports: Sequence[Report], form: str, output: Path | None) -> None:
    data: dict[str, Any] | None = None
    if form == "json":
        data = report.as_json(reports)
    elif form == "sarif":
        from importlib.metadata import version  # noqa: PLC0415 - slow, and seldom asked for

        data = report.as_sarif(reports, _rules(), version("anarchon_ddb"))
    if data is not None and output is None:
        screen.data(data)
        return
    if output is not None:
        output.write_text(json.dumps(data or report.as_json(reports), indent=2) + "\n", "utf-8")
    for one in reports:
        _draw(screen, one)


def _draw(screen: Screen, one: Report) -> None:
    for finding in one.findings:
        _draw_finding(screen, finding)
    if one.schedules:
        screen.table(
            ("SCHEDULE", "STATE", "?WHEN", "LOCAL", "UTC"),
            [row for preview in one.schedules for row in _rows(preview)],
        )
        screen.line()
    levels: tuple[Level, ...] = ("error", "warning", "note")
    counts = [(one.count(level), level) for level in levels]
    told = ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count
    )
    screen.line(f"{report.place(one.path)}: {told or 'nothing found'}")


def _draw_finding(screen: Screen, one: Finding) -> None:
    console = screen.console
    head = text(f"{report.place(one.path)}:{one.line}: ")
    head.append_text(text(one.level, _STYLES[one.level]))
    head.append_text(text(f" {one.what} ", "bold"))
    head.append_text(text(f"[{one.rule}]", "dim"))
    console.print(head, soft_wrap=True)
    console.print(text(f"    why: {one.why}"), soft_wrap=True)
    console.print(text(f"    fix: {one.fix}"), soft_wrap=True)
    console.print()


def _rows(one: Preview) -> list[tuple[str, str, str, str, str]]:
    """Return a schedule's next slots, on its own clock and in UTC (C09)."""
    first = (one.name, one.state, one.in_words)
    if not one.slots:
        return [(*first, "-", "-")]
    rows = []
    about = "" if one.is_anchored else "about "
    for index, (local, slot) in enumerate(one.slots):
        names = first if index == 0 else ("", "", "")
        zone = f"{about}{local:%a %Y-%m-%d %H:%M} {one.timezone}"
        rows.append((*names, zone, f"{slot:%Y-%m-%dT%H:%M:%SZ}"))
    return rows
