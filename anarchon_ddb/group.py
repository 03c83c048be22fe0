"""The registry: the stack's own EventBridge Scheduler group, as the resumer sees it.

A job that never fired has no item in the table, so the table can't be the list of jobs. The group
is: its schedules say what jobs exist, when they are due, and which function runs them. It is listed
in each pass; a schedule is read only when its modification date changed, and kept over warm
invocations. This module never writes.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from anarchon_ddb import registry
from anarchon_ddb.clock import from_ms
from anarchon_ddb.errors import InvalidScheduleError, StoreError
from anarchon_ddb.listing import Listing, Registered
from anarchon_ddb.schedule import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from anarchon_ddb.records import Head
    from anarchon_ddb.store import Store

GROUP_SETTING = "ANARCHON_SCHEDULE_GROUP"

LAMBDA_EVENT_AGE_S = 21_600
"""How long Lambda keeps an asynchronous event where the function sets nothing: six hours."""

# Asking again would be answered the same: it is not set, or not permitted.
_FINAL = frozenset({"ResourceNotFoundException", "AccessDeniedException"})

RULE_EVENT_AGE_S = 86_400
"""How long a rule tries to deliver where its target sets nothing."""


@dataclass(slots=True)
class _Known:
    modified: datetime | None
    """None for one that could not be read: it is asked for again in the next pass."""
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
    workers : int
        How many schedules are read at once.
    with_ages : bool
        Ask Lambda, too, how long it keeps an event for each function.
    """

    store: Store
    name: str
    workers: int = 1
    with_ages: bool = True
    _known: dict[str, _Known] = field(default_factory=dict)
    _ages_s: dict[str, int] = field(default_factory=dict)

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
        changed = {
            name: modified
            for name, modified in found.items()
            if name not in self._known or self._known[name].modified != modified
        }
        if self.workers > 1:
            with ThreadPoolExecutor(self.workers) as pool:
                read = pool.map(self._read, changed.keys(), changed.values())
                self._known |= dict(zip(changed, read, strict=True))
            return self._listing((), is_complete=True)
        for name, modified in changed.items():
            if not has_time():
                return self._listing((), is_complete=False)
            self._known[name] = self._read(name, modified)
        return self._listing((), is_complete=True)

    def rules(self, heads: Iterable[Head]) -> Listing:
        """Return the jobs that rules fire as the registry would list them.

        A rule has no modification date, so each is read anew.

        Parameters
        ----------
        heads : iterable of Head
            Of the jobs that a rule has fired once.
        """
        entries: list[Registered] = []
        faults: list[str] = []
        for head in heads:
            try:
                entries.append(self._of_rule(head))
            except (InvalidScheduleError, StoreError) as error:
                faults.append(f"the rule of job {head.job!r}: {error}")
        return Listing(tuple(entries), tuple(faults), not faults)

    def _of_rule(self, head: Head) -> Registered:
        schedule, is_enabled = registry.read_rule(self.store, head.rule)
        return Registered(
            job=head.job,
            name=head.rule.rpartition("/")[2],
            arn=head.rule,
            schedule=schedule,
            is_enabled=is_enabled,
            function=head.function,
            params={},
            since=from_ms(head.rule_since),
            flexible_s=0,
            event_age_s=RULE_EVENT_AGE_S + self._lambda_age_s(head.function),
        )

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
            fault = f"schedule {name!r} of group {self.name!r}: {error}"
            return _Known(None if isinstance(error, StoreError) else modified, None, fault)

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
        if not self.with_ages:
            return LAMBDA_EVENT_AGE_S
        if function not in self._ages_s:
            try:
                found = self._call(
                    "lambda", "get_function_event_invoke_config", FunctionName=function
                )
            except StoreError as fault:
                if fault.code not in _FINAL:
                    return LAMBDA_EVENT_AGE_S
                found = {}
            age_s = found.get("MaximumEventAgeInSeconds") or LAMBDA_EVENT_AGE_S
            self._ages_s[function] = age_s
        return self._ages_s[function]

    def _call(self, service: str, method: str, **arguments: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self.store.other_client(service), method)(**arguments)
        except (BotoCoreError, ClientError) as error:
            answered = error.response if isinstance(error, ClientError) else {}
            raise StoreError(
                f"{service}:{method} for group {self.name!r} (from {GROUP_SETTING}) failed: "
                f"{error}",
                code=answered.get("Error", {}).get("Code", type(error).__name__),
            ) from error
        return answer
