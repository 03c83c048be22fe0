"""Where a command looks: the table, the group of schedules, the region and the credentials.

A flag wins over the environment. What the AWS SDK reads from the environment is set there while the
command runs, so that each client, whoever makes it, is of the same region and person.
"""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from anarchon_ddb.cli.options import LAST, OpsCommand, json_option, where_options
from anarchon_ddb.cli.screen import Screen
from anarchon_ddb.errors import StoreError
from anarchon_ddb.group import GROUP_SETTING, ScheduleGroup
from anarchon_ddb.history import latest_slot
from anarchon_ddb.local.stack import REGION
from anarchon_ddb.overview import WORKERS
from anarchon_ddb.reading import ReadingStore
from anarchon_ddb.records import Head
from anarchon_ddb.store import TABLE_SETTING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.listing import Listing, Registered

STACK_SETTING = "ANARCHON_STACK"
_CONFIG = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 3})


@dataclass(slots=True)
class Connection:
    """The table and the registry of one stack.

    Attributes
    ----------
    table, stack : str or None
        As given by flags.
    """

    clock: Clock
    screen: Screen
    table: str | None
    stack: str | None
    _settings: dict[str, str] | None = None
    _store: ReadingStore | None = None
    _listing: Listing | None = field(default=None)

    @property
    def store(self) -> ReadingStore:
        """The table.

        Raises
        ------
        StoreError
            If nothing names it.
        """
        if self._store is None:
            if self.table:
                name, source = self.table, "--table"
            elif self._stack_settings():
                name, source = self._stack_settings().get(TABLE_SETTING, ""), f"stack {self.stack}"
            else:
                name, source = os.environ.get(TABLE_SETTING, ""), TABLE_SETTING
            if not name:
                raise StoreError(
                    f"no table: give --stack, or --table, or set {STACK_SETTING} or {TABLE_SETTING}"
                )
            self._store = ReadingStore(name, clock=self.clock, source=source)
        return self._store

    @property
    def group(self) -> str | None:
        """The group of schedules, which is the registry; None if nothing names it."""
        if os.environ.get(GROUP_SETTING) and not self.stack:
            return os.environ[GROUP_SETTING]
        return self._stack_settings().get(GROUP_SETTING)

    def listing(self) -> Listing:
        """Return all schedules of the registry.

        Raises
        ------
        StoreError
            If nothing names the group, or it can't be read.
        """
        if self._listing is None:
            if not self.group:
                raise StoreError(
                    "the schedules are not known: give --stack, or set "
                    f"{STACK_SETTING} or {GROUP_SETTING} to the stack's schedule group"
                )
            _ = self.store.client  # made before threads ask for it
            group = ScheduleGroup(self.store, self.group, workers=WORKERS, with_ages=False)
            heads = self.store.read_heads(self.store.jobs_of_rules()).values()
            rules = group.rules(head for head in heads if isinstance(head, Head))
            listing = group.refresh(lambda: True).with_more(rules)
            if not listing.registered and listing.faults:
                raise StoreError(listing.faults[0])
            self._listing = listing
        return self._listing

    def entries(self, job: str) -> tuple[Registered, ...]:
        """Return a job's schedules."""
        return tuple(self.listing().of(job))

    def entries_if_known(self, job: str) -> tuple[Registered, ...] | None:
        """Return a job's schedules; None, with a warning, where the registry does not answer."""
        if not self.group:
            return None
        try:
            return self.entries(job)
        except StoreError as error:
            self.screen.warn(str(error))
            return None

    def slot(self, job: str, given: datetime | str) -> datetime:
        """Return the slot that was meant: ``last`` is the newest that left a trace."""
        from datetime import datetime  # noqa: PLC0415 - the name above is for the type checker

        if given == LAST:
            return datetime.fromisoformat(latest_slot(self.store, job))
        assert isinstance(given, datetime)  # noqa: S101 - the parameter's type gives no other
        return given

    def _stack_settings(self) -> dict[str, str]:
        """Return what the stack's resumer runs with: no second truth about a stack."""
        if self._settings is None:
            if not self.stack and (
                os.environ.get(TABLE_SETTING) or self.table or not os.environ.get(STACK_SETTING)
            ):
                return {}
            self.stack = self.stack or os.environ[STACK_SETTING]
            self._settings = _settings_of(self.stack)
        return self._settings


def _settings_of(stack: str) -> dict[str, str]:
    from botocore.session import Session  # noqa: PLC0415 - only where a stack is named

    function = f"{stack}-resumer"
    try:
        client: Any = Session().create_client("lambda", config=_CONFIG)
        found = client.get_function_configuration(FunctionName=function)
    except (BotoCoreError, ClientError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        advice = {
            "ResourceNotFoundException": "Is it the stack's name, and is it this region and "
            "account? A stack of anarchon_ddb has a function of that name",
            "AccessDeniedException": "You need lambda:GetFunctionConfiguration on it",
        }.get(code, "Or give --table, and set ANARCHON_SCHEDULE_GROUP")
        raise StoreError(
            f"stack {stack!r} can't be looked up by its function {function}: {error}. {advice}"
        ) from None
    variables: dict[str, str] = found.get("Environment", {}).get("Variables", {})
    if TABLE_SETTING not in variables:
        raise StoreError(f"function {function} has no {TABLE_SETTING}: give --table")
    return {GROUP_SETTING: stack} | variables


def _environment(
    region: str | None, profile: str | None, endpoint_url: str | None
) -> dict[str, str]:
    """Return what the AWS SDK is to find in the environment."""
    region = region or os.environ.get("AWS_REGION")
    settings = {
        "AWS_DEFAULT_REGION": region,
        "AWS_PROFILE": profile,
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ENDPOINT_URL_DYNAMODB": endpoint_url,
    }
    return _of_this_machine(endpoint_url or "") | {
        name: value for name, value in settings.items() if value
    }


def _of_this_machine(endpoint_url: str) -> dict[str, str]:
    """Return what the SDK asks for and nothing on this machine does: a region, and credentials."""
    if urlsplit(endpoint_url).hostname not in {"127.0.0.1", "localhost", "::1"}:
        return {}
    assumed = {}
    if not {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} & os.environ.keys():
        assumed["AWS_DEFAULT_REGION"] = REGION
    files = (
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        os.environ.get("AWS_CONFIG_FILE", "~/.aws/config"),
    )
    known = {"AWS_ACCESS_KEY_ID", "AWS_PROFILE"} & os.environ.keys()
    if not known and not any(Path(file).expanduser().exists() for file in files):
        assumed |= {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    return assumed


@contextmanager
def _environ(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def connected(name: str, *, examples: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function a command that is given a connection, and has ``--json``.

    Parameters
    ----------
    examples : str
        One a line, shown below the help.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def invoke(
            *,
            as_json: bool,
            stack: str | None,
            table: str | None,
            region: str | None,
            profile: str | None,
            endpoint_url: str | None,
            **given: Any,
        ) -> int | None:
            clock: Clock = click.get_current_context().find_root().obj
            with _environ(_environment(region, profile, endpoint_url)):
                screen = Screen(as_json=as_json)
                return function(Connection(clock, screen, table, stack), **given)

        shown = "\n".join(f"  {line.strip()}" for line in examples.strip().splitlines())
        wrapped = json_option(where_options(invoke))
        decorator = click.command(name, cls=OpsCommand, epilog=f"\b\nExamples:\n{shown}")
        return decorator(wrapped)

    return decorate
