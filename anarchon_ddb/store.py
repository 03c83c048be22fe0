"""The only module that talks to the table. One function a write; no decision is taken here.

The expressions come from ``protocol``, precomputed; this module fills in the values, sends them
through pynamodb's connection, and tells three answers apart:

* granted: the write was stored;
* refused: its condition did not hold;
* unknown: throttled, unreachable, not permitted, no such table: a ``StoreError``, never a refusal.

Every read is consistent, except a query of the index, from which nothing is decided.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any, cast

import botocore
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from pynamodb.connection import Connection

from anarchon_ddb import sdk
from anarchon_ddb.clock import SYSTEM_CLOCK, Clock
from anarchon_ddb.errors import StoreError
from anarchon_ddb.gate import RULES_SHARD
from anarchon_ddb.records import (
    OPEN_SHARDS,
    OPEN_STATES,
    TERMINAL_STATES,
    Damaged,
    Head,
    RunRecord,
    check_sound,
    open_shard,
)
from anarchon_ddb.schema import (
    OPEN_RUNS_INDEX,
    TTL_ATTRIBUTE,
    HeadKey,
    RunKey,
    table_description,
    to_head,
    to_record,
    to_wire,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from anarchon_ddb.protocol import Write
    from anarchon_ddb.records import Value

TABLE_SETTING = "ANARCHON_TABLE"

# Botocore's defaults (60 s to connect, 60 s to read) can outlive any stop margin.
CONNECT_TIMEOUT_S = 1.0
READ_TIMEOUT_S = 2.0
TRIES = 3

_REFUSED = "ConditionalCheckFailedException"
TRANSIENT = frozenset(
    {
        "InternalServerError",
        "InternalFailure",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ThrottlingException",
        "LimitExceededException",
    }
)
_BATCH = 100
"""Keys in one BatchGetItem: DynamoDB takes no more."""
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)
_ADVICE = {
    "AccessDeniedException": "Grant dynamodb:{operation} on this table to the function's role",
    "ResourceNotFoundException": "No such table there: check its name and the region",
    "ValidationException": "If the keys or the index are named: the table must have the keys pk "
    "and sk, both strings, and the index open-runs. Create it from infra/table.yaml",
    "UnrecognizedClientException": "The credentials are not valid",
}


class Store:
    """The table, asked through one client with short timeouts.

    Parameters
    ----------
    table : str
        Name of the table.
    clock : Clock
        For the waits between two tries; the instants that are stored come from the caller.
    source : str
        The setting that the name came from, named in errors.

    Raises
    ------
    StoreError
        If the name is empty, or the SDK too old.

    Examples
    --------
    >>> Store("anarchon").table
    'anarchon'
    """

    def __init__(
        self, table: str, *, clock: Clock = SYSTEM_CLOCK, source: str = "the table argument"
    ) -> None:
        if not table:
            raise StoreError(
                f"no table: {source} is not set. Set it to the name of the table that "
                "infra/table.yaml creates"
            )
        sdk.check(botocore.__version__)
        self.table = table
        self.clock = clock
        self._source = source
        self._connection = Connection(
            connect_timeout_seconds=CONNECT_TIMEOUT_S,
            read_timeout_seconds=READ_TIMEOUT_S,
            max_retry_attempts=TRIES - 1,
        )

    @classmethod
    def from_environment(
        cls, *, clock: Clock = SYSTEM_CLOCK, environ: Mapping[str, str] | None = None
    ) -> Store:
        """Return the store that ``ANARCHON_TABLE`` names. Makes no call and no client.

        Raises
        ------
        StoreError
            If the variable is not set or empty.
        """
        table = (os.environ if environ is None else environ).get(TABLE_SETTING, "")
        return cls(table, clock=clock, source=TABLE_SETTING)

    @property
    def client(self) -> Any:
        """The one botocore client of the handler's path, made on first use.

        Raises
        ------
        StoreError
            If it can't be made: no region is set.
        """
        try:
            return self._connection.client
        except BotoCoreError as error:
            raise self._explained("client", error) from error

    @property
    def session(self) -> Any:
        """The botocore session behind it, for what else must be called."""
        return self._connection.session

    def create_table(self) -> None:
        """Create the table and index of ``infra/table.yaml``: for tests and the local cloud."""
        self._call("CreateTable", table_description(self.table))
        self.client.get_waiter("table_exists").wait(TableName=self.table, WaiterConfig={"Delay": 1})
        ttl = {"AttributeName": TTL_ATTRIBUTE, "Enabled": True}
        try:
            self._call(
                "UpdateTimeToLive", {"TableName": self.table, "TimeToLiveSpecification": ttl}
            )
        except StoreError as fault:
            if fault.code != "UnknownOperationException":  # a local server without TTL
                raise

    def write(
        self,
        key: RunKey | HeadKey,
        write: Write,
        values: Mapping[str, Value],
        *,
        patience_ms: int = 0,
        returning: str = "NONE",
    ) -> dict[str, Any] | None:
        """Send one conditional write.

        Parameters
        ----------
        key : RunKey or HeadKey
            The item.
        write : Write
            Its expressions.
        values : mapping
            What each ``:name`` of the expressions stands for.
        patience_ms : int
            How long to go on trying while the answer is unknown, beyond the SDK's own tries.
        returning : str
            DynamoDB's ReturnValues.

        Returns
        -------
        dict or None
            The attributes as DynamoDB gave them; None if the write was refused.

        Raises
        ------
        StoreError
            If it is unknown whether it was stored.
        """
        named = {
            f":{name}": to_wire(value) for name, value in {**write.constants, **values}.items()
        }
        request = {
            "TableName": self.table,
            "Key": key.wire,
            "UpdateExpression": write.update,
            "ConditionExpression": write.condition,
            "ExpressionAttributeNames": write.names,
            "ExpressionAttributeValues": named,
            "ReturnValues": returning,
        }
        reply = self._patiently("UpdateItem", request, patience_ms)
        return None if reply is None else reply.get("Attributes", {})

    def claim(
        self, key: RunKey, write: Write, values: Mapping[str, Value], *, patience_ms: int = 0
    ) -> RunRecord | None:
        """Send a claim; return the run as it stands now, or None if it was refused."""
        values = {**values, "shard": open_shard(key.job, key.slot)}
        item = self.write(key, write, values, patience_ms=patience_ms, returning="ALL_NEW")
        return None if item is None else self._record(item)

    def read_run(self, key: RunKey, *, patience_ms: int = 0) -> RunRecord | None:
        """Read a run, consistently; None if there is none.

        Raises
        ------
        StoreError
            If the table does not answer, or the item is damaged.
        """
        item = self._read(key, patience_ms)
        return None if item is None else self._record(item)

    def write_head(
        self, job: str, write: Write, values: Mapping[str, Value], *, patience_ms: int = 0
    ) -> Head | None:
        """Send a write of a job's gate; return it as it stands now, or None if refused."""
        item = self.write(HeadKey(job), write, values, patience_ms=patience_ms, returning="ALL_NEW")
        return None if item is None else self._head(job, item)

    def read_head(self, job: str, *, patience_ms: int = 0) -> Head:
        """Read a job's gate, consistently; an open one if there is none yet."""
        item = self._read(HeadKey(job), patience_ms)
        return Head(job) if item is None else self._head(job, item)

    def _read(self, key: RunKey | HeadKey, patience_ms: int) -> dict[str, Any] | None:
        request = {"TableName": self.table, "Key": key.wire, "ConsistentRead": True}
        reply = self._patiently("GetItem", request, patience_ms)
        item: dict[str, Any] | None = reply.get("Item") if reply else None
        return item

    def open_runs(self, due_before_ms: int) -> Iterator[RunKey]:
        """List open runs that may be due, from the index: candidates, nothing to decide on."""
        for shard in range(OPEN_SHARDS):
            yield from self._in_index(str(shard), due_before_ms)

    def jobs_of_rules(self) -> list[str]:
        """List the jobs that rules fire, from the index: candidates, nothing to decide on."""
        return [key.job for key in self._in_index(RULES_SHARD, 0)]

    def _in_index(self, shard: str, due_before_ms: int) -> Iterator[RunKey]:
        request: dict[str, Any] = {
            "TableName": self.table,
            "IndexName": OPEN_RUNS_INDEX,
            "KeyConditionExpression": "#open = :shard AND #due <= :due",
            "ExpressionAttributeNames": {"#open": "open", "#due": "due"},
            "ExpressionAttributeValues": {
                ":shard": to_wire(shard),
                ":due": to_wire(due_before_ms),
            },
        }
        return map(RunKey.of, self._items(request))

    def slots_between(self, job: str, first: str, last: str) -> set[str]:
        """List the slots of a job that have a run, both ends included. Consistent."""
        request = self._range(job, first, last) | {"ProjectionExpression": "#pk, #sk"}
        return {RunKey.of(item).slot for item in self._items(request)}

    # --- for people: lists over many items, where a damaged one is shown and does not stop ---

    def query_runs(
        self, job: str, *, first: str, last: str, states: Collection[str] = (), page: int = 0
    ) -> Iterator[RunRecord | Damaged]:
        """Read the runs of a job, newest first, consistently, page after page.

        Parameters
        ----------
        first, last : str
            Slots, as they are stored; both are included.
        states : collection of str
            Only runs in these, and items whose state is none at all.
        page : int
            Items to look at in one call; 0 for as many as DynamoDB gives.
        """
        request = self._range(job, first, last) | {"ScanIndexForward": False}
        if states:
            _add_state_filter(request, states)
        if page:
            request["Limit"] = page
        yield from map(_record_or_damage, self._items(request))

    def read_runs(self, keys: Sequence[RunKey]) -> Iterator[RunRecord | Damaged]:
        """Read runs, consistently, a hundred in a call; those that don't exist are left out."""
        yield from map(_record_or_damage, self._read_many(keys))

    def read_heads(self, jobs: Sequence[str]) -> dict[str, Head | Damaged]:
        """Read the gates of jobs, consistently, a hundred in a call."""
        found: dict[str, Head | Damaged] = {job: Head(job) for job in jobs}
        for item in self._read_many([HeadKey(job) for job in jobs]):
            job = item["pk"]["S"].removeprefix("job#")
            try:
                found[job] = to_head(job, item)
            except ValueError as error:
                found[job] = Damaged(job, "", str(error))
        return found

    def replicas(self) -> list[str]:
        """Return the other regions that the table is written in: a claim is granted in each."""
        reply = self._call("DescribeTable", {"TableName": self.table}) or {}
        return [one["RegionName"] for one in reply["Table"].get("Replicas") or ()]

    def _read_many(self, keys: Sequence[RunKey | HeadKey]) -> Iterator[dict[str, Any]]:
        for start in range(0, len(keys), _BATCH):
            wanted = [key.wire for key in keys[start : start + _BATCH]]
            for pause_s in (*_PAUSES_S, 0):
                asked = {self.table: {"Keys": wanted, "ConsistentRead": True}}
                reply = self._patiently("BatchGetItem", {"RequestItems": asked}, 0) or {}
                yield from reply.get("Responses", {}).get(self.table, ())
                wanted = reply.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys", ())
                if not wanted:
                    break
                self.clock.sleep(pause_s)
            else:
                raise StoreError(
                    f"table {self.table!r}: {len(wanted)} items were not read: DynamoDB throttles",
                    retryable=True,
                )

    def _range(self, job: str, first: str, last: str) -> dict[str, Any]:
        return {
            "TableName": self.table,
            "ConsistentRead": True,
            "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :first AND :last",
            "ExpressionAttributeNames": {"#pk": "pk", "#sk": "sk"},
            "ExpressionAttributeValues": {
                ":pk": RunKey(job, first).wire["pk"],
                ":first": RunKey(job, first).wire["sk"],
                ":last": RunKey(job, last).wire["sk"],
            },
        }

    def _items(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        while True:
            reply = self._patiently("Query", request, 0) or {}
            yield from reply.get("Items", ())
            if "LastEvaluatedKey" not in reply:
                return
            request["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    def _record(self, item: dict[str, Any]) -> RunRecord:
        try:
            return to_record(item)
        except ValueError as error:
            raise StoreError(f"table {self.table!r}: {error}") from None

    def _head(self, job: str, item: dict[str, Any]) -> Head:
        try:
            return to_head(job, item)
        except ValueError as error:
            raise StoreError(f"table {self.table!r}: {error}") from None

    def _patiently(
        self, operation: str, request: dict[str, Any], patience_ms: int
    ) -> dict[str, Any] | None:
        """Call; while the answer is unknown and there is time, wait with jitter and call again."""
        until_ms = self.clock.monotonic_ms() + patience_ms
        for pause_s in _PAUSES_S:
            try:
                return self._call(operation, request)
            except StoreError as fault:
                wait_s = pause_s * random.random()  # noqa: S311  spread, not secrecy
                if not fault.retryable or self.clock.monotonic_ms() + wait_s * 1000 >= until_ms:
                    raise
            self.clock.sleep(wait_s)
        return self._call(operation, request)

    def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Call DynamoDB once, with the SDK's tries; None if a condition refused the write."""
        try:
            # A copy, since the connection adds to what it is given.
            return self._connection.dispatch(operation, dict(request))
        except (ClientError, BotoCoreError) as error:
            if _code(error) == _REFUSED:
                return None
            raise self._explained(operation, error) from error

    def _explained(self, operation: str, error: Exception) -> StoreError:
        code = _code(error)
        advice = _ADVICE.get(code, "").format(operation=operation)
        region = self._region()
        transient = code in TRANSIENT or isinstance(error, HTTPClientError)
        detail = _answered(error).get("Message") or str(error)
        return StoreError(
            f"DynamoDB {operation} on table {self.table!r} (from {self._source}) in region "
            f"{region} failed: {code}: {detail}" + (f". {advice}" if advice else ""),
            retryable=transient,
            code=code,
        )

    def _region(self) -> str:
        setting = "AWS_DEFAULT_REGION"
        if os.environ.get(setting):
            return f"{os.environ[setting]} (from {setting})"
        return str(self.session.get_config_variable("region") or f"unknown (set {setting})")


def _add_state_filter(request: dict[str, Any], states: Collection[str]) -> None:
    """Let DynamoDB leave out what is not asked for, but not what has no state of ours."""
    every = sorted(OPEN_STATES | TERMINAL_STATES)
    names = {state: f":{state}" for state in every}
    wanted = ", ".join(names[state] for state in sorted(states))
    known = ", ".join(names.values())
    request["FilterExpression"] = f"#state IN ({wanted}) OR NOT #state IN ({known})"
    request["ExpressionAttributeNames"]["#state"] = "state"
    request["ExpressionAttributeValues"] |= {name: to_wire(state) for state, name in names.items()}


def _record_or_damage(item: dict[str, Any]) -> RunRecord | Damaged:
    key = RunKey.of(item)
    try:
        record = to_record(item)
        check_sound(record)
    except ValueError as error:
        return Damaged(key.job, key.slot, str(error))
    return record


def _answered(error: Exception) -> dict[str, str]:
    """Return the error that the service answered; empty if it did not answer at all."""
    answer: Mapping[str, Any] = error.response if isinstance(error, ClientError) else {}
    return cast("dict[str, str]", answer.get("Error", {}))


def _code(error: Exception) -> str:
    return _answered(error).get("Code") or type(error).__name__
