"""Holding a run: the holder's writes, one at a time, and the thread that renews in between.

The lease is short and never reaches past the invocation's deadline; a save renews it, and a thread
does every third of it when no save has. A refused write means that another invocation holds the
run: from then on nothing of this one is written. The thread is joined before the run is ended: a
frozen sandbox must not wake a heartbeat later.

A save may be withheld (``cursor``). Whatever the holder writes next carries it: a later save, the
renewal, a commit, or the write at the end of the handler.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anarchon_ddb import protocol, records, transaction
from anarchon_ddb.cursor import Cursor, Progress
from anarchon_ddb.errors import LeaseLost, StoreError
from anarchon_ddb.schema import RunKey, pack_attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.records import RunRecord, Value
    from anarchon_ddb.store import Store
    from anarchon_ddb.transaction import Item

# A try of the SDK takes up to 3 s: one that starts later than this may not end in time.
PATIENCE_RESERVE_MS = 3_000
_RETRY_RENEWAL_S = 1.0


@dataclass(slots=True)
class Pace:
    """How long this run's batches and saves take, remembered over its invocations."""

    longest_batch_ms: int
    longest_save_ms: int

    def add(self, *, batch_ms: int = 0, save_ms: int = 0) -> None:
        """Take one more measurement into account."""
        self.longest_batch_ms = max(self.longest_batch_ms, batch_ms)
        self.longest_save_ms = max(self.longest_save_ms, save_ms)

    @property
    def stored(self) -> dict[str, Value]:
        """As it is stored with the run."""
        return {
            "longest_batch_ms": self.longest_batch_ms,
            "longest_save_ms": self.longest_save_ms,
        }


class Lease:
    """The lease of one attempt.

    Parameters
    ----------
    record : RunRecord
        The run as the claim returned it.
    lease_ms : int
        How long the lease is, counted from its last write.
    withheld_for_ms : int
        For how long a save may be withheld; 0 to store each.
    version : str
        The job's version, stored with each cursor; empty if it has none.
    remaining_ms : callable
        The time that the invocation has left now.
    """

    def __init__(
        self,
        store: Store,
        record: RunRecord,
        *,
        lease_ms: int,
        withheld_for_ms: int = 0,
        version: str,
        remaining_ms: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.key = RunKey(record.job, record.slot)
        self.owner = record.owner
        self.attempt = record.attempt
        self.claimed_at_ms = record.claimed_at
        self.past = records.history(record)
        self.pace = Pace(record.longest_batch_ms, record.longest_save_ms)
        self.lost: LeaseLost | StoreError | None = None
        self.seq = record.seq
        """The last one known to be stored."""
        self._sent_seq = record.seq
        self.place = records.place(record.checkpoint, record.done)
        self.has_progressed = False
        """Whether this attempt stored a new cursor."""
        self._checkpoint = record.checkpoint
        self._strikes = record.strikes
        # Nothing until this attempt has written it: what does not change is not sent again.
        self._sent_pace: dict[str, Value] = {}
        self._stored_pace: dict[str, Value] = {}
        self._withheld: Cursor | None = None
        self._withheld_for_ms = withheld_for_ms
        self._stored_up_to_ms = clock.monotonic_ms()
        """When the batch ended whose cursor is stored; at first, when the attempt began."""
        self._untold = self.past != record.attempts
        self.store = store
        self._lease_ms = lease_ms
        self._version = version
        self.until_ms = record.lease_until
        self.stop_requested: str | None = record.stop_requested
        self._told_ms = clock.monotonic_ms()
        self._remaining_ms = remaining_ms
        self._clock = clock
        # One at a time: seq must grow in the order in which the writes are sent.
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._written_ms = clock.monotonic_ms()
        self._thread = threading.Thread(target=self._beat, name="anarchon-lease", daemon=True)

    def start(self) -> None:
        """Start the heartbeat."""
        self._thread.start()

    def stop(self) -> None:
        """End the heartbeat and wait for it: nothing of this attempt runs afterwards."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def patience_ms(self) -> int:
        """Return how long a call may be tried: as long as one more try ends before the deadline."""
        return max(0, self._remaining_ms() - PATIENCE_RESERVE_MS)

    def save(self, checkpoint: str, progress: Progress, *, at_once: bool) -> None:
        """Store a cursor and renew; or withhold it, where that is allowed and it is early enough.

        Raises
        ------
        LeaseLost
            If another invocation holds the run. Nothing was stored.
        StoreError
            If it is unknown whether it was stored.
        """
        with self._lock:
            self._refuse_if_lost()
            cursor = self._given(checkpoint, progress)
            if at_once or not self._may_wait(cursor):
                self._store(cursor, self.patience_ms())
            else:
                self._withheld = cursor

    def store_withheld(self) -> None:
        """Store the cursor that the last saves withheld, if they did, and renew.

        Raises
        ------
        LeaseLost, StoreError
            As ``save``.
        """
        with self._lock:
            if self._withheld is not None:
                self._refuse_if_lost()
                self._store(self._withheld, self.patience_ms())

    def forget(self) -> None:
        """Forget the cursor, the withheld one as well, and renew.

        Raises
        ------
        LeaseLost, StoreError
            As ``save``.
        """
        with self._lock:
            self._refuse_if_lost()
            now_ms, ended_ms = self._clock.now_ms(), self._clock.monotonic_ms()
            self._store(Cursor(None, Progress(), now_ms, ended_ms), self.patience_ms())

    def commit(self, items: Sequence[Item], checkpoint: str, progress: Progress) -> None:
        """Store the user's writes and a cursor in one transaction, and renew. Never withheld.

        Raises
        ------
        LeaseLost
            If another invocation holds the run. Nothing was stored.
        CommitError
            If one of the user's own conditions did not hold, or DynamoDB could not take it.
            Nothing was stored.
        StoreError
            If it is unknown whether it was stored. This attempt then writes nothing more: to
            repeat the commit could apply it twice, while the next attempt reads which it was.
        """
        with self._lock:
            self._refuse_if_lost()
            run = {"TableName": self.store.table, "Key": self.key.wire}
            transaction.check(items, run, checkpoint)
            cursor = self._given(checkpoint, progress)
            write, values = self._saving(cursor, commits=True)
            self._transact(items, write, values)
            self._has_stored(cursor)
            self._look_for_a_stop()

    def condition_check(self) -> Item:
        """Return what holds only while this attempt has the run."""
        values: dict[str, Value] = {"owner": self.owner, "attempt": self.attempt}
        return {"ConditionCheck": self.store.action(self.key, protocol.HOLDS, values)}

    def _given(self, checkpoint: str, progress: Progress) -> Cursor:
        """Return a cursor as the handler gives it now, with what a withheld one told before it."""
        if self._withheld is not None:
            progress = progress.after(self._withheld.progress)
        return Cursor(checkpoint, progress, self._clock.now_ms(), self._clock.monotonic_ms())

    def _may_wait(self, cursor: Cursor) -> bool:
        """Tell whether a cursor may be left to a later write: a kill repeats little until then.

        Not beyond the lease's end: who was frozen so long must learn that it was overtaken.
        """
        unstored_ms = cursor.batch_ended_ms - self._stored_up_to_ms
        return unstored_ms < self._withheld_for_ms and cursor.given_at_ms < self.until_ms

    def _store(self, cursor: Cursor, patience_ms: int) -> None:
        if self._withheld is not None:
            # Without an answer this one may be stored: no older one may be written behind it.
            self._withheld = cursor
        write, values = self._saving(cursor)
        self._send(write, values, patience_ms)
        self._has_stored(cursor)

    def _has_stored(self, cursor: Cursor) -> None:
        if self._is_new(cursor):
            self.has_progressed = True
            self._strikes = 1
        self._stored_pace = self._sent_pace
        self.place = records.place(cursor.text, cursor.progress.done)
        self._checkpoint = cursor.text
        self._withheld = None
        self._stored_up_to_ms = cursor.batch_ended_ms
        self._untold = False

    def _is_new(self, cursor: Cursor) -> bool:
        return cursor.text is not None and cursor.text != self._checkpoint

    def _saving(
        self, cursor: Cursor, *, commits: bool = False
    ) -> tuple[protocol.Write, dict[str, Value]]:
        """Return the write that stores a cursor, and its values."""
        clear = cursor.text is None
        self._sent_pace = self.pace.stored
        optional: dict[str, Value | None] = {
            "checkpoint": cursor.text,
            "now": None if clear else cursor.given_at_ms,
            "done": cursor.progress.done,
            "total": cursor.progress.total,
            "version": None if clear else self._version or None,
            "attempts": pack_attempts(self.past) if self._untold else None,
        }
        shape = protocol.SaveShape(
            clear=clear,
            progressed=self._is_new(cursor) and self._strikes != 1,
            counted=cursor.progress.done is not None,
            totalled=cursor.progress.total is not None,
            versioned=optional["version"] is not None,
            history=self._untold,
            committed=commits,
            same_pace=self._sent_pace == self._stored_pace,
        )
        values = {name: value for name, value in optional.items() if value is not None}
        return protocol.save(shape), values if shape.same_pace else values | self._sent_pace

    def check(self) -> None:
        """Make sure that the lease has not run out on the way here; renew it if it has.

        Raises
        ------
        LeaseLost
            If another invocation took the run over meanwhile.
        """
        if self._clock.now_ms() >= self.until_ms:
            self.renew()

    def renew(self) -> None:
        """Prolong the lease. A refusal is remembered and raised by the holder's next step."""
        with self._lock:
            if self.lost is not None:
                return
            patience_ms = min(self.patience_ms(), self._lease_ms // 3)
            if self._withheld is not None:
                self._store(self._withheld, patience_ms)
            else:
                self._send(protocol.RENEW, {}, patience_ms)

    def _send(self, write: protocol.Write, values: dict[str, Value], patience_ms: int) -> None:
        seq, until_ms = self._fence(values)
        item = self.store.write(
            self.key, write, values, patience_ms=patience_ms, returning="ALL_NEW"
        )
        if item is None:
            raise self._overtaken(write.name)
        self._stored(seq, until_ms)
        # What a person asked for comes with the reply, at no cost.
        self._tell(item.get("stop_requested", {}).get("S"))

    def _transact(
        self, items: Sequence[Item], write: protocol.Write, values: dict[str, Value]
    ) -> None:
        seq, until_ms = self._fence(values)
        own: Item = {"Update": self.store.action(self.key, write, values)}
        token = transaction.token(self.owner, self.attempt, seq)
        try:
            reasons = self.store.transact([*items, own], token, patience_ms=self.patience_ms())
        except StoreError as error:
            if error.retryable:
                self.lost = error
            raise
        if reasons is not None and not self._is_stored(seq, reasons):
            raise transaction.refusal(reasons, items)
        self._stored(seq, until_ms)

    def _is_stored(self, seq: int, reasons: Sequence[transaction.Reason]) -> bool:
        """Tell whether a refused commit was stored by an earlier try whose reply was lost.

        No other write has its ``seq``, so the item tells.

        Raises
        ------
        LeaseLost
            If the run is not held any more.
        """
        if reasons and reasons[-1][0] != transaction.REFUSED:
            return False  # the fence held: it was the user's part that was refused
        record = self.store.read_run(self.key, patience_ms=self.patience_ms())
        if record is None or not self._holds(record):
            raise self._overtaken("commit")
        return record.seq == seq

    def _holds(self, record: RunRecord) -> bool:
        return (record.state, record.owner, record.attempt) == (
            "running",
            self.owner,
            self.attempt,
        )

    def _fence(self, values: dict[str, Value]) -> tuple[int, int]:
        """Add what every write of the holder has; return its ``seq`` and the lease's new end."""
        # Used up even if the answer stays unknown: no two writes of an attempt share one.
        self._sent_seq += 1
        until_ms = protocol.lease_until(self._clock.now_ms(), self._lease_ms, self._remaining_ms())
        values |= {
            "owner": self.owner,
            "attempt": self.attempt,
            "seq": self._sent_seq,
            "lease_until": until_ms,
        }
        return self._sent_seq, until_ms

    def _overtaken(self, name: str) -> LeaseLost:
        self.lost = LeaseLost(
            f"another invocation holds {self.key.job} {self.key.slot}: "
            f"attempt {self.attempt} was overtaken, and its {name} was not stored"
        )
        return self.lost

    def _stored(self, seq: int, until_ms: int) -> None:
        self.seq = seq
        self.until_ms = until_ms
        self._written_ms = self._clock.monotonic_ms()

    def _tell(self, stop_requested: str | None) -> None:
        self.stop_requested = stop_requested
        self._told_ms = self._clock.monotonic_ms()

    def _look_for_a_stop(self) -> None:
        """Ask for what a transaction's reply does not tell, as often as a renewal would tell it.

        The commit is stored by now: that it can't be asked is no reason to fail.
        """
        if self._clock.monotonic_ms() - self._told_ms < self._lease_ms // 3:
            return
        try:
            record = self.store.read_run(self.key)
        except StoreError:
            return
        if record is not None:
            self._tell(record.stop_requested)

    def _refuse_if_lost(self) -> None:
        if self.lost is not None:
            raise self.lost

    def _beat(self) -> None:
        """Renew when a third of the lease has passed without a write. Runs in the thread."""
        third_ms = self._lease_ms // 3
        wait_s = third_ms / 1000
        while not self._ended.wait(wait_s):
            idle_ms = self._clock.monotonic_ms() - self._written_ms
            wait_s = max(third_ms - idle_ms, 0) / 1000 or self._renew_in_thread(third_ms)

    def _renew_in_thread(self, third_ms: int) -> float:
        """Renew; return the seconds until the next look."""
        try:
            self.renew()
        except LeaseLost:
            self._ended.set()
        except StoreError as error:
            if not error.retryable:
                # Going on unprotected would be worse than failing: the next step raises it.
                self.lost = error
                self._ended.set()
            return _RETRY_RENEWAL_S
        return third_ms / 1000
