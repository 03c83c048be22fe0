"""The registry: the stack's own EventBridge Scheduler group, as the resumer sees it.

A job that never fired has no item in the table, so the table can't be the list of jobs. The group
is: its schedules say what jobs exist, when they are due, and which function runs them. It is listed
in each pass; a schedule is read only when its modification date changed, and kept over warm
invocations. This module never writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from anarchon_ddb.errors import InvalidScheduleError, StoreError
from anarchon_ddb.schedule import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from anarchon_ddb.schedule import Schedule
    from anarchon_ddb.store import Store

GROUP_SETTING = "ANARCHON_SCHEDULE_GROUP"

LAMBDA_EVENT_AGE_S = 21_600
"""How long Lambda keeps an asynchronous event where the function sets nothing: six hours."""

_CONFIG = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 3})


@dataclass(frozen=True, slots=True)
class Registered:
    """One schedule of the group, of one job."""

    job: str
    """The job, or an instance of it."""
    name: str
    arn: str
    schedule: Schedule
    is_enabled: bool
    function: str
    """The ARN of the function that runs the job."""
    params: Mapping[str, Any]
    since: datetime
    """Created or last modified: what was due before is not known."""
    flexible_s: int
    """The width of its flexible time window."""
    event_age_s: int
    """How long Scheduler tries to deliver, and Lambda then keeps the event, together."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The group as far as it was read."""

    registered: tuple[Registered, ...] = ()
    faults: tuple[str, ...] = ()
    """What could not be read or understood, in words; the rest is listed all the same."""
    is_complete: bool = False
    """False if the list or a schedule is missing: then nothing follows from an absence."""

    def of(self, job: str) -> list[Registered]:
        """Return the schedules of a job."""
        return [entry for entry in self.registered if entry.job == job]


@dataclass(slots=True)
class _Known:
    modified: datetime
    entry: Registered | None
    fault: str | None


@dataclass(slots=True)
class ScheduleGroup:
    """The group, read anew where it changed.

    Parameters
    ----------
    store : Store
        Whose session is used.
    name : str
        The group, from ``ANARCHON_SCHEDULE_GROUP``.
    """

    store: Store
    name: str
    _known: dict[str, _Known] = field(default_factory=dict)
    _ages_s: dict[str, int] = field(default_factory=dict)
    _clients: dict[str, Any] = field(default_factory=dict)

    def refresh(self, has_time: Callable[[], bool]) -> Listing:
        """List the group, and read what changed as long as there is time.

        Parameters
        ----------
        has_time : callable
            Asked before each call. What was not read is read in the next pass.
        """
        try:
            found = self._list()
        except StoreError as fault:
            return self._listing((str(fault),), is_complete=False)
        for gone in set(self._known) - set(found):
            del self._known[gone]
        is_complete = True
        for name, modified in found.items():
            known = self._known.get(name)
            if known is None or known.modified != modified:
                if not has_time():
                    is_complete = False
                    break
                self._known[name] = self._read(name, modified)
        return self._listing((), is_complete=is_complete)

    def _listing(self, faults: tuple[str, ...], *, is_complete: bool) -> Listing:
        known = self._known.values()
        damaged = tuple(one.fault for one in known if one.fault is not None)
        entries = tuple(one.entry for one in known if one.entry is not None)
        return Listing(entries, faults + damaged, is_complete and not damaged)

    def _list(self) -> dict[str, datetime]:
        found: dict[str, datetime] = {}
        start: dict[str, str] = {}
        while True:
            page = self._call("scheduler", "list_schedules", GroupName=self.name, **start)
            found |= {one["Name"]: one["LastModificationDate"] for one in page["Schedules"]}
            if "NextToken" not in page:
                return found
            start = {"NextToken": page["NextToken"]}

    def _read(self, name: str, modified: datetime) -> _Known:
        try:
            found = self._call("scheduler", "get_schedule", GroupName=self.name, Name=name)
            return _Known(modified, self._entry(found), None)
        except (InvalidScheduleError, StoreError, KeyError, TypeError, ValueError) as error:
            return _Known(modified, None, f"schedule {name!r} of group {self.name!r}: {error}")

    def _entry(self, found: dict[str, Any]) -> Registered | None:
        """Return a schedule as an entry; None if its Input names no job, as the resumer's own."""
        target = found["Target"]
        given = json.loads(target.get("Input") or "{}")
        if not isinstance(given, dict) or not isinstance(given.get("job"), str):
            return None
        retry = target.get("RetryPolicy", {})
        return Registered(
            job=given["job"],
            name=found["Name"],
            arn=found["Arn"],
            schedule=parse(
                found["ScheduleExpression"],
                found.get("ScheduleExpressionTimezone") or "UTC",
                "scheduler",
                found.get("StartDate"),
                found.get("EndDate"),
            ),
            is_enabled=found.get("State", "ENABLED") == "ENABLED",
            function=target["Arn"],
            params=given.get("params") or {},
            since=max(found["CreationDate"], found["LastModificationDate"]),
            flexible_s=60 * found["FlexibleTimeWindow"].get("MaximumWindowInMinutes", 0),
            event_age_s=retry.get("MaximumEventAgeInSeconds", 86_400)
            + self._lambda_age_s(target["Arn"]),
        )

    def _lambda_age_s(self, function: str) -> int:
        """Return how long Lambda keeps an event for a function; its maximum if that is unknown."""
        if function not in self._ages_s:
            try:
                found = self._call(
                    "lambda", "get_function_event_invoke_config", FunctionName=function
                )
            except StoreError:
                return LAMBDA_EVENT_AGE_S
            age_s = found.get("MaximumEventAgeInSeconds") or LAMBDA_EVENT_AGE_S
            self._ages_s[function] = age_s
        return self._ages_s[function]

    def _call(self, service: str, method: str, **arguments: str) -> dict[str, Any]:
        try:
            if service not in self._clients:
                self._clients[service] = self.store.session.create_client(service, config=_CONFIG)
            answer: dict[str, Any] = getattr(self._clients[service], method)(**arguments)
        except (BotoCoreError, ClientError) as error:
            raise StoreError(
                f"{service}:{method} for group {self.name!r} (from {GROUP_SETTING}) failed: {error}"
            ) from error
        return answer
