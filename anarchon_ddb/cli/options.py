"""What commands take: slots, spans, JSON, and where the table is.

A value that can't be read is a usage error which says what was found and what was expected.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from anarchon_ddb import options as job_options
from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anarchon_ddb.clock import Clock

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic for the type checker only

LAST = "last"
"""In place of a slot: the newest that left a trace."""

_INSTANCE = re.compile(r"[\w.-]+")


class JobName(_ParamType):
    """A job, or an instance of one."""

    name = "job"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the name as ``@job`` does."""
        job, colon, instance = value.partition(":")
        try:
            job_options.check_name(job)
        except InvalidJobError as error:
            self.fail(str(error), param, ctx)
        if colon and not _INSTANCE.fullmatch(instance):
            self.fail(f"{value!r}: an instance is written as export:tenant-a", param, ctx)
        return value


class Moment(_ParamType):
    """An instant with its zone; perhaps a span back from now, perhaps ``last``."""

    name = "time"

    def __init__(self, *, span: bool = False, ahead: bool = False, last: bool = False) -> None:
        self._span, self._ahead, self._last = span, ahead, last

    def convert(
        self,
        value: str | datetime,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> datetime | str:
        """Read an ISO 8601 time, in UTC and whole seconds."""
        if isinstance(value, datetime) or (self._last and value == LAST):
            return value
        if self._span and re.fullmatch(r"\d{1,6}[smhd]", value):
            back = timedelta(milliseconds=job_options.duration_ms(value, "span"))
            return now(ctx) + (back if self._ahead else -back)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time; write {self._examples()}", param, ctx)
        if moment.utcoffset() is None:
            self.fail(
                f"{value!r} has no zone, so it could be meant in two ways; write "
                f"{iso(moment.replace(tzinfo=UTC))} or {value}+01:00",
                param,
                ctx,
            )
        if moment.microsecond:
            self.fail(f"{value!r}: a slot has whole seconds", param, ctx)
        return moment.astimezone(UTC)

    def _examples(self) -> str:
        examples = ["2026-11-29T12:00:00Z", "2026-11-29T13:00:00+01:00"]
        examples += ["24h, 7d" if not self._ahead else "2h"] if self._span else []
        examples += [LAST] if self._last else []
        return " or ".join(examples)


class Json(_ParamType):
    """A value written as JSON."""

    name = "json"

    def __init__(self, *, only_object: bool = False) -> None:
        self._only_object = only_object

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Read JSON; for a cursor as text, since the codec reads it."""
        if not isinstance(value, str):
            return value
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(
                f"{value[:80]!r} is no JSON ({error}); in a shell write it in single quotes, a "
                "text with its double quotes inside: '\"abc\"'",
                param,
                ctx,
            )
        if self._only_object and not isinstance(found, dict):
            kind = type(found).__name__
            self.fail(f"expected a JSON object such as '{{\"day\": 3}}', got {kind}", param, ctx)
        return found if self._only_object else value


class Address(_ParamType):
    """The URL of an endpoint."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that the SDK can take it; what it raises for others is no sentence."""
        try:
            parts = urlsplit(value)
            is_address = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:  # a port that is none, or a bracket that is not closed
            is_address = False
        if not is_address:
            self.fail(f"{value!r}: write http://127.0.0.1:8000", param, ctx)
        return value


JOB = JobName()
SLOT = Moment(last=True)


def now(ctx: click.Context | None) -> datetime:
    """Return the time on the clock that the command line was started with."""
    clock: Clock = (ctx or click.get_current_context()).find_root().obj
    return from_ms(clock.now_ms())


class Where(click.Option):
    """An option of the connection, shown in a section of its own."""


class OpsCommand(click.Command):
    """A command whose help shows its own options first, and then those that all have."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both sections."""
        own: list[tuple[str, str]] = []
        where: list[tuple[str, str]] = []
        params = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for param in sorted(params, key=lambda param: param.name in _OF_ALL):
            record = param.get_help_record(ctx)
            if record is not None:
                (where if isinstance(param, Where) else own).append(record)
        for title, records in (("Options", own), ("Where", where)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


_OF_ALL = ("yes", "as_json", "help")
"""Shown behind a command's own options."""

_WHERE: tuple[tuple[str, str, str], ...] = (
    ("--stack", "NAME", "The stack: its table and its schedules. [env: ANARCHON_STACK]"),
    ("--table", "NAME", "The table, where no stack tells it. [env: ANARCHON_TABLE]"),
    ("--region", "NAME", "The region. [env: AWS_REGION, AWS_DEFAULT_REGION]"),
    ("--profile", "NAME", "The profile of your credentials. [env: AWS_PROFILE]"),
    ("--endpoint-url", "URL", "Another endpoint, for a local cloud. [env: AWS_ENDPOINT_URL]"),
)


def where_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where the table and the schedules are."""
    for flag, metavar, text in reversed(_WHERE):
        kind = Address() if metavar == "URL" else str
        function = click.option(flag, type=kind, metavar=metavar, help=text, cls=Where)(function)
    return function


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask, for scripts.")
