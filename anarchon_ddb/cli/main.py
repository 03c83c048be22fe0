"""The commands, what an error looks like, and the exit codes.

A command's module is imported when it is asked for: ``--help`` loads neither the AWS SDK nor rich.
A further command is a line in ``COMMANDS`` and a module.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

from anarchon_ddb.cli.clean import clean
from anarchon_ddb.clock import SYSTEM_CLOCK
from anarchon_ddb.errors import AnarchonError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anarchon_ddb.clock import Clock

DONE, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130

# By section: each command, its module, and the first line of its help.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "jobs": ("looking", "List the jobs: schedule, next slot, last run, open runs, pause."),
        "next": ("looking", "List a job's coming slots, on its own clock and in UTC."),
        "runs": ("looking", "List a job's runs, newest first."),
        "open": ("looking", "List the open runs of all jobs, the oldest slot first."),
        "explain": ("looking", "Tell the story of one slot: what happened, why, what comes next."),
        "watch": ("watch", "Watch the open runs go on."),
        "timeline": ("timelines", "Draw runs and attempts as bars over time."),
    },
    "Act": {
        "run": ("acting", "Run a job by hand, now or for a slot that has no run."),
        "retry": ("acting", "Let a run begin its tries anew, from its checkpoint."),
        "cancel": (
            "acting",
            "End a run: at once if nobody holds it, else at its holder's next save.",
        ),
        "pause": ("acting", "Pause a job: nothing of it runs, whatever is deployed."),
        "unpause": ("acting", "Let a paused job run again."),
        "release": ("acting", "Take the lease from a holder that is known to be dead."),
        "rewind": ("acting", "Set the checkpoint of a run that nobody holds."),
        "backfill": ("backfilling", "Run the slots of a span of time that did not succeed."),
    },
    "Try": {
        "local": ("locally", "Play a template on this machine, with chaos on demand."),
    },
    "Adopt": {
        "init": ("adopting", "Put what a stack needs into a project, or one job more."),
        "check": ("checking", "Check a template: what will hurt, where, why, and the fix."),
    },
}
_MODULES = {name: module for section in COMMANDS.values() for name, (module, _) in section.items()}

EPILOG = """\b
Exit codes:
  0    done
  1    refused or failed: the error says what was found and what to do
  2    wrong usage
  130  interrupted with Ctrl-C

\b
At 3 in the morning:
  anarchon-ddb jobs --stack prod
  anarchon-ddb explain export last --stack prod
  anarchon-ddb retry export 2026-11-29T01:00:00Z --stack prod
"""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names, in the order of the help."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command; None if there is no such one."""
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"anarchon_ddb.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the commands by section, importing none."""
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a slip of the keys gets a suggestion."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in _MODULES:
            from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error

            near = get_close_matches(name, _MODULES, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and seldom asked for

        click.echo(f"anarchon-ddb {version('anarchon_ddb')}")
        ctx.exit()


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
              help="Show the version.")  # fmt: skip
def group() -> None:
    """See what happened to scheduled jobs, why, and what to do now.

    The table and the schedules are found by --stack, or by ANARCHON_TABLE and
    ANARCHON_SCHEDULE_GROUP. Each command has --help with examples, and --json for scripts.
    """


def main(argv: Sequence[str] | None = None, *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Run one command; return its exit code. Nothing of a person's mistake is a traceback.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        answer = group.main(arguments, "anarchon-ddb", standalone_mode=False, obj=clock)
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.Abort as abort:
        return _stopped(abort)
    except BrokenPipeError:
        # The reader of a pipe has seen enough. What is left must not be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except click.ClickException as error:
        return _failed(error.format_message())
    except (AnarchonError, OSError) as error:
        return _failed(str(error))
    except Exception as error:
        if not _is_of_aws(error):
            raise
        return _failed(str(error))
    return answer if isinstance(answer, int) else DONE


def _failed(text: str) -> int:
    click.echo(f"Error: {clean(text)}", err=True)
    return REFUSED


def _stopped(abort: click.Abort) -> int:
    """Tell a no, or the end of the input, from Ctrl-C."""
    if isinstance(abort.__cause__ or abort.__context__, KeyboardInterrupt):
        click.echo("Interrupted: what was sent goes on by itself.", err=True)
        return INTERRUPTED
    click.echo("Stopped: nothing was done.", err=True)
    return REFUSED


def _is_of_aws(error: Exception) -> bool:
    return type(error).__module__.split(".", maxsplit=1)[0] == "botocore"
