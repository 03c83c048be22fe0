"""``init``: what a stack needs, into a new or an existing project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anarchon_ddb.adopt.plan import carry_out, plan
from anarchon_ddb.adopt.stanza import new_job
from anarchon_ddb.cli.options import OpsCommand, json_option, now, yes_option
from anarchon_ddb.cli.screen import Screen
from anarchon_ddb.errors import InvalidJobError, InvalidScheduleError

if TYPE_CHECKING:
    from anarchon_ddb.adopt.plan import Plan
    from anarchon_ddb.adopt.stanza import NewJob

_EXAMPLES = """\b
Examples:
  anarchon-ddb init my-jobs --job report --schedule 'rate(1 hour)'
  anarchon-ddb init --job report --schedule 'cron(30 6 ? * MON-FRI *)' --timezone Asia/Tokyo
  anarchon-ddb init --dry-run
  anarchon-ddb init --job report --schedule 'rate(1 hour)' --apply"""


@click.command("init", cls=OpsCommand, epilog=_EXAMPLES)
@click.argument("folder", default=".", metavar="[DIR]",
                type=click.Path(file_okay=False, path_type=Path))  # fmt: skip
@click.option("--job", "name", metavar="NAME", help="Add a job of this name, with its handler.")
@click.option("--schedule", metavar="EXPRESSION", help="When it is due: cron(…), rate(…) or at(…).")
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True,
              help="On whose clock, such as Europe/Berlin.")  # fmt: skip
@click.option("--apply", is_flag=True,
              help="Add the lines to the template that is there.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@yes_option
@json_option
def init_command(
    folder: Path,
    name: str | None,
    schedule: str | None,
    timezone: str,
    apply: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Put what a stack needs into a project, or one job more.

    That is infra/, the template's shared parts, samconfig.toml and the build rule. A file that is
    there is never written over. What belongs into a template that is there is printed; --apply
    adds exactly these lines, after asking.
    """
    screen = Screen(as_json=as_json)
    made = plan(folder, _job(name, schedule, timezone))
    if not as_json:
        _tell(screen, made, apply=apply)
    if not dry_run:
        if apply and made.additions and not yes:
            _ask(f"Add these lines to {folder / made.template}?")
        carry_out(made, apply=apply)
    if as_json:
        screen.data(_as_data(made, is_applied=apply and not dry_run, is_written=not dry_run))
        return
    screen.line("Nothing was written." if dry_run else _next_steps(made, apply=apply))


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody is there to answer: in scripts, add --yes.")
    click.confirm(question, abort=True, err=True)


def _job(name: str | None, schedule: str | None, timezone: str) -> NewJob | None:
    if name is None:
        if schedule is not None:
            raise click.UsageError("--schedule belongs to a job: give --job NAME, too")
        return None
    if schedule is None:
        raise click.UsageError(f"--job {name}: when is it due? Give --schedule 'cron(0 2 * * ? *)'")
    try:
        return new_job(name, schedule, timezone, now(None))
    except (InvalidJobError, InvalidScheduleError) as error:
        raise click.UsageError(str(error)) from None


def _tell(screen: Screen, made: Plan, *, apply: bool) -> None:
    for name in made.files:
        screen.line(f"new       {made.folder / name}")
    for name in made.same:
        screen.line(f"kept      {made.folder / name}")
    for name in made.differs:
        screen.line(f"differs   {made.folder / name}: left alone; this version ships another one")
    for note in made.notes:
        screen.line(f"note      {note}")
    for section, entries in made.additions.items():
        verb = "Added" if apply else "Add"
        screen.line()
        screen.line(f"{verb} under {section}: in {made.folder / made.template}:")
        screen.line()
        for text in entries.values():
            click.echo(text + "\n")
    for name, lines in made.lines.items():
        screen.line()
        screen.line(f"Add to {made.folder / name}:")
        screen.line()
        click.echo(lines)


def _next_steps(made: Plan, *, apply: bool) -> str:
    if made.lines or (made.additions and not apply):
        return "\nAdd the lines above, then: anarchon-ddb check && sam build && sam deploy"
    return "Next: anarchon-ddb check && sam build && sam deploy"


def _as_data(made: Plan, *, is_applied: bool, is_written: bool) -> dict[str, object]:
    return {
        "folder": str(made.folder),
        "written": list(made.files) if is_written else [],
        "planned": list(made.files),
        "kept": made.same,
        "differs": made.differs,
        "template": made.template,
        "applied": is_applied,
        "additions": made.additions,
        "lines": made.lines,
        "notes": made.notes,
    }
