"""The only module that talks to the table. One function a write; no decision is taken here.

The expressions come from ``protocol``, precomputed; this module fills in the values, sends them
through pynamodb's connection, and tells three answers apart:

* granted: the write was stored;
* refused: its condition did not hold;
* unknown: throttled, unreachable, not permitted, no such table: a ``StoreError``, never a refusal.

Every read is consistent, except a query of the index, from which nothing is decided.
"""

from __future__ import annotations

import gc
import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import botocore
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.connection import Connection

from anarchon_ddb import replies, sdk, transaction
from anarchon_ddb.clock import SYSTEM_CLOCK, Clock
from anarchon_ddb.errors import StoreError
from anarchon_ddb.gate import RULES_SHARD
from anarchon_ddb.records import OPEN_SHARDS, Head, RunRecord, open_shard
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
    from collections.abc import Iterator, Mapping, Sequence

    from anarchon_ddb.protocol import Write
    from anarchon_ddb.records import Value

TABLE_SETTING = "ANARCHON_TABLE"

# Botocore's defaults (60 s to connect, 60 s to read) can outlive any stop margin.
CONNECT_TIMEOUT_S = 1.0
READ_TIMEOUT_S = 2.0
TRIES = 3

# Pynamodb asks for the units that a call consumed unless it is told not to; nobody reads them.
_UNMETERED = {"ReturnConsumedCapacity": "NONE"}

PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)


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
        self._others: dict[tuple[str, str | None], Any] = {}
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
            with _collector_paused():
                return self._connection.client
        except BotoCoreError as error:
            raise self._explained("client", error) from error

    @property
    def session(self) -> Any:
        """The botocore session behind it, for what else must be called."""
        return self._connection.session

    def other_client(self, service: str, region: str | None = None) -> Any:
        """Return a client of another service, with the same short timeouts; made once.

        Raises
        ------
        BotoCoreError
            If it can't be made.
        """
        made = self._others.get((service, region))
        if made is None:
            config = Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": TRIES},
            )
            made = self.session.create_client(service, region_name=region, config=config)
            self._others[service, region] = made
        return made

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
        request = self.action(key, write, values) | {"ReturnValues": returning, **_UNMETERED}
        reply = self._patiently("UpdateItem", request, patience_ms)
        return None if reply is None else reply.get("Attributes", {})

    def action(
        self, key: RunKey | HeadKey, write: Write, values: Mapping[str, Value]
    ) -> dict[str, Any]:
        """Return a write as DynamoDB takes it, alone or as a part of a transaction.

        One that sets nothing is a ``ConditionCheck``.
        """
        named = {
            f":{name}": to_wire(value) for name, value in {**write.constants, **values}.items()
        }
        updates = {"UpdateExpression": write.update} if write.sets else {}
        return {
            "TableName": self.table,
            "Key": key.wire,
            **updates,
            "ConditionExpression": write.condition,
            "ExpressionAttributeNames": write.names,
            "ExpressionAttributeValues": named,
        }

    def transact(
        self, items: Sequence[transaction.Item], token: str, *, patience_ms: int = 0
    ) -> tuple[transaction.Reason, ...] | None:
        """Send one transaction.

        Parameters
        ----------
        items : sequence of dict
            Its actions, as ``TransactWriteItems`` takes them.
        token : str
            The ``ClientRequestToken``: DynamoDB takes a second try of it as done.

        Returns
        -------
        tuple or None
            None if it was stored; if it was refused, code and message for each item.

        Raises
        ------
        StoreError
            If it is unknown whether it was stored, or the request itself is not valid.
        """
        request = {"TransactItems": list(items), "ClientRequestToken": token, **_UNMETERED}
        try:
            self._patiently("TransactWriteItems", request, patience_ms)
        except _CancelledError as cancelled:
            return cancelled.reasons
        return None

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

    def read_mark(self, key: RunKey | HeadKey) -> str:
        """Read whose write a person's last one was, consistently; empty if there was none."""
        mark: str = (self._read(key, 0) or {}).get("mark", {}).get("S", "")
        return mark

    def _read(self, key: RunKey | HeadKey, patience_ms: int) -> dict[str, Any] | None:
        request = {"TableName": self.table, "Key": key.wire, "ConsistentRead": True, **_UNMETERED}
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
        for pause_s in PAUSES_S:
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
            if replies.code(error) == replies.REFUSED:
                return None
            reasons = replies.reasons(error)
            if any(code not in transaction.TRANSIENT | {"None"} for code, _ in reasons):
                raise _CancelledError(reasons) from error
            raise self._explained(operation, error) from error

    def _explained(self, operation: str, error: Exception) -> StoreError:
        where = f"table {self.table!r} (from {self._source}) in region {self._region()}"
        return replies.explained(operation, where, error)

    def _region(self) -> str:
        setting = "AWS_DEFAULT_REGION"
        if os.environ.get(setting):
            return f"{os.environ[setting]} (from {setting})"
        return str(self.session.get_config_variable("region") or f"unknown (set {setting})")


class _CancelledError(Exception):
    """A transaction was refused, for what a further try would not mend."""

    def __init__(self, reasons: tuple[transaction.Reason, ...]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Let no garbage collection run while the client is made.

    It reads models of 30,000 objects, of which none is garbage; the collector would look through
    them, and through everything that a handler has imported, again and again: a third of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
