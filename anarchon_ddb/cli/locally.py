"""``local``: the user's own template, played on this machine."""

from __future__ import annotations

import re
import secrets
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from anarchon_ddb.cli.options import Address, Moment, json_option, now
from anarchon_ddb.cli.screen import Screen
from anarchon_ddb.clock import iso
from anarchon_ddb.errors import AnarchonError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from types import FrameType

    from anarchon_ddb.local.chaos import Chaos
    from anarchon_ddb.local.play import Play
    from anarchon_ddb.local.stack import Stack

_EXAMPLES = """\b
Examples:
  anarchon-ddb local
  anarchon-ddb local --speed 60
  anarchon-ddb local --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z
  anarchon-ddb local --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z \\
      --chaos kill=0.2,duplicate=0.1,late=0.1,throttle=0.05,lost-reply=0.02 --seed 7
  anarchon-ddb local --setup fill_tables.py --check compare.py --json

\b
Exit codes:
  0    every promise held, every slot was worked on
  1    a promise was broken, a run failed, a function can't be imported, or the check failed
  2    wrong usage
  130  interrupted with Ctrl-C; 143 with SIGTERM

\b
The other commands work on it, with the address that it prints:
  anarchon-ddb jobs --stack local --endpoint-url http://127.0.0.1:PORT
"""


_MOST_NAMED = 5


class Pairs(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """``NAME=VALUE``, the value perhaps a span of time."""

    name = "pair"

    def __init__(self, *, seconds: bool = False) -> None:
        self._seconds = seconds

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Split it."""
        if isinstance(value, tuple):
            return value
        name, equals, given = str(value).partition("=")
        if not equals or not name:
            self.fail(f"{value!r}: write NAME=VALUE", param, ctx)
        if not self._seconds:
            return name, given
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|)", given)
        if found is None or not re.fullmatch(r"[a-z0-9-]+:\w+", name):
            self.fail(f"{value!r}: write service:Operation=SPAN, as s3:PutObject=250ms", param, ctx)
        return name, float(found[1]) * {"ms": 0.001, "m": 60}.get(found[2], 1)


@click.command("local", epilog=_EXAMPLES)
@click.option("--template", type=click.Path(path_type=Path), default=Path("template.yaml"),
              show_default=True, help="The template to play, nested ones included.")  # fmt: skip
@click.option("--stack", default="local", show_default=True, metavar="NAME",
              help="The name of the stack.")  # fmt: skip
@click.option("--parameter", "parameters", type=Pairs(), multiple=True, metavar="NAME=VALUE",
              help="A parameter of the template. May be given more than once.")  # fmt: skip
@click.option("--from", "start", type=Moment(), metavar="TIME",
              help="Begin there, on a simulated clock, as fast as possible.")  # fmt: skip
@click.option(
    "--to",
    "end",
    type=Moment(span=True, ahead=True),
    metavar="TIME",
    help="End there; then what was due is judged. A span, such as 2h, is from now.",
)
@click.option("--speed", type=click.FloatRange(min=0, min_open=True), metavar="N",
              help="Simulated seconds in a real one, at most.")  # fmt: skip
@click.option("--chaos", default="", metavar="KIND=CHANCE,…",
              help="What goes wrong: kill, duplicate, late, throttle, lost-reply.")  # fmt: skip
@click.option("--seed", type=int, help="Of the chaos: the same one gives the same history.")
@click.option("--latency", type=Pairs(seconds=True), multiple=True,
              metavar="SERVICE:OPERATION=SPAN",
              help="Time that a call takes, as s3:PutObject=250ms.")  # fmt: skip
@click.option("--setup", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A Python script that runs first: it fills tables, say.")  # fmt: skip
@click.option("--check", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A Python script that runs last: its exit code counts.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65_535), default=0, metavar="N",
              help="Of the embedded AWS; any that is free if not given.")  # fmt: skip
@click.option("--endpoint-url", "--endpoint", type=Address(), metavar="URL",
              help="Another local DynamoDB in place of the embedded one.")  # fmt: skip
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path),
              default=Path(".anarchon/local"), show_default=True,
              help="Where logs and history go, a directory for each play.")  # fmt: skip
@json_option
def local_command(as_json: bool, **given: Any) -> int:
    """Play a template on this machine, with chaos on demand.

    Its functions, tables, buckets, queues and schedules, and AWS around them. No Docker, and no AWS
    account. Each sandbox is a process, killed at its deadline. Without --to
    it plays until Ctrl-C. A change of the code is picked up by the next invocation.
    """
    _require_extras()
    from anarchon_ddb.local import reader  # noqa: PLC0415 - not for --help
    from anarchon_ddb.local.play import Plan, Play  # noqa: PLC0415

    chaos = _chaos(given["chaos"], given["seed"])
    stack = reader.read(
        given["template"], name=given["stack"], parameters=dict(given["parameters"])
    )
    if not stack.schedules:
        left_out = "".join(f"; {one}" for one in stack.unplayed[:_MOST_NAMED])
        raise AnarchonError(f"{given['template']}: no schedule fires a function{left_out}")
    start = _start(given["start"], given["speed"])
    if start is None and given["end"] is not None and given["end"] <= now(None):
        raise click.UsageError(
            f"--to {iso(given['end'])} is over: give --from too, to play it on a simulated clock"
        )
    if start is not None and given["end"] is not None and given["end"] <= start:
        raise click.UsageError(f"--to {iso(given['end'])} is not after --from {iso(start)}")
    plan = Plan(
        directory=given["logs"] / now(None).strftime("%Y%m%dT%H%M%S.%fZ"),
        start=start,
        end=given["end"],
        speed=given["speed"],
        chaos=chaos,
        latency_s=dict(given["latency"]),
        port=given["port"],
        dynamodb_url=_endpoint(given["endpoint_url"]),
        setup=given["setup"],
        check=given["check"],
    )
    return _play(Screen(as_json=as_json), stack, plan, Play)


def _require_extras() -> None:
    """Say what to install, before anything of it is missed half-way."""
    for name in ("flask", "flask_cors", "moto", "rich", "time_machine", "yaml"):
        if find_spec(name) is None:
            raise AnarchonError(
                f"anarchon-ddb local needs {name}: pip install 'anarchon_ddb[cli,local]'"
            )


def _play(screen: Screen, stack: Stack, plan: Any, play_of: Callable[..., Play]) -> int:
    from rich.console import Console  # noqa: PLC0415

    from anarchon_ddb.local import report  # noqa: PLC0415
    from anarchon_ddb.local.view import View  # noqa: PLC0415

    console = Console(
        stderr=screen.as_json, markup=False, highlight=False, emoji=False,
        width=None if (sys.stderr if screen.as_json else sys.stdout).isatty() else 160,
    )  # fmt: skip
    with _Signals() as signals, play_of(stack, plan, signals.is_over) as play:
        report.introduce(console, play)
        with View(play, console):
            play.run()
        summary = play.summary()
    if screen.as_json:
        screen.data(summary)
    else:
        report.show(console, summary)
    if signals.received:
        return 128 + signals.received
    return 1 if summary["failures"] else 0


class _Signals:
    """Takes Ctrl-C and SIGTERM as the wish to end; a second one ends at once."""

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def is_over(self) -> bool:
        """Tell whether one came."""
        return self.received != 0

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number


def _chaos(text: str, seed: int | None) -> Chaos:
    from anarchon_ddb.local.chaos import Chaos, ChaosError  # noqa: PLC0415

    try:
        return Chaos.parse(
            text, secrets.randbelow(1_000_000) if seed is None and text else seed or 0
        )
    except ChaosError as error:
        raise click.BadParameter(str(error), param_hint="--chaos") from None


def _start(start: datetime | None, speed: float | None) -> datetime | None:
    """Return where a simulated clock begins; None for the machine's clock."""
    if start is None and speed is not None:
        return now(None).replace(microsecond=0)
    return start


def _endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    if "amazonaws.com" in url:
        raise click.BadParameter(
            "this is AWS itself: a play would kill functions that write to real tables",
            param_hint="--endpoint-url",
        )
    return url.rstrip("/")
