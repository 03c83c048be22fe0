"""What a handler sees of its run.

A handler works in batches and saves a cursor after each. ``save`` stores it, renews the lease, and
raises ``StopEarly`` when the time that is left would not do for another batch; the next invocation
goes on from the cursor. A batch may be repeated after a kill, so it must be safe to repeat.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from anarchon_ddb import codec, pagination, protocol
from anarchon_ddb.advice import Advice
from anarchon_ddb.clock import from_ms
from anarchon_ddb.cursor import Progress, encode
from anarchon_ddb.errors import (
    Cancelled,
    CheckpointError,
    InvalidScheduleError,
    LeaseLost,
    Stop,
    StopEarly,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aws_lambda_powertools import Logger

    from anarchon_ddb.clock import Clock
    from anarchon_ddb.lease import Lease
    from anarchon_ddb.records import RunRecord
    from anarchon_ddb.schedule import Schedule
    from anarchon_ddb.transaction import Item

T = TypeVar("T")


class Run:
    """One attempt at the work of one slot.

    Attributes
    ----------
    job : str
        The job, or the instance of it: ``export:tenant-a``.
    slot : datetime
        The instant at which the work was due: aware, UTC, the same on every attempt. Use it
        wherever you would be tempted to use the clock.
    attempt, fencing_token : int
        1, 2, 3 …: a later attempt has a greater one. A sink that refuses smaller ones is fenced.
    checkpoint : object
        The cursor given to ``save`` last; None on a run that saved nothing yet.
    checkpoint_at : datetime or None
        When that was.
    params : mapping
        What the delivery brought; the same on every attempt.
    logger : Logger
        Powertools' logger, with job, slot and attempt in every line.

    Examples
    --------
    >>> def handler(run: Run) -> None:
    ...     after = run.checkpoint
    ...     while batch := customers_after(after, limit=200):
    ...         export_batch(batch)
    ...         after = batch[-1].id
    ...         run.save(after)
    """

    def __init__(
        self,
        record: RunRecord,
        lease: Lease,
        *,
        stop_margin_ms: int,
        deadline_ms: int,
        remaining_ms: Callable[[], int],
        clock: Clock,
        logger: Logger,
    ) -> None:
        self.job = record.job
        self.slot = datetime.fromisoformat(record.slot).astimezone(UTC)
        self.attempt = record.attempt
        self.params: Mapping[str, Any] = codec.loads(record.params) if record.params else {}
        self.checkpoint: Any = None
        self.checkpoint_at: datetime | None = None
        if record.checkpoint is not None:
            self.checkpoint = codec.loads(record.checkpoint)
            self.checkpoint_at = from_ms(record.checkpoint_at or 0)
        self.logger = logger
        self.stopped_by: Stop | None = None
        """Why the work has to end here; set even if a handler swallows it."""
        self._done = record.done or 0
        self._schedule_arn = record.schedule
        self._lease = lease
        self._stop_margin_ms = stop_margin_ms
        self._deadline_ms = deadline_ms
        self._remaining_ms = remaining_ms
        self._clock = clock
        self._batches = 0
        self._batch_started_ms = clock.monotonic_ms()
        self._advice = Advice(logger, stop_margin_ms)

    @property
    def fencing_token(self) -> int:
        """The attempt: a number that grows with each claim of this run."""
        return self.attempt

    @property
    def scheduled_at(self) -> datetime:
        """The slot in the schedule's own zone: the same instant, as the wall clock there shows it.

        Raises
        ------
        InvalidScheduleError, StoreError
            As ``window``.

        Examples
        --------
        >>> def handler(run: Run) -> None:
        ...     day = run.scheduled_at.date()  # in Tokyo 2 January, while UTC still has the 1st
        """
        return self._schedule.local(self.slot)

    @property
    def window(self) -> tuple[datetime, datetime]:
        """The slot before this one, and this one: what is new since the last slot. Aware, UTC.

        The schedule is read from EventBridge when a handler first asks, once per sandbox; a run
        that does not ask makes no call. It is the schedule as it stands now: where it was changed
        since the slot, the window is the one that the new expression gives.

        Raises
        ------
        InvalidScheduleError
            If no schedule is known of this run, or it has no slot before this one (``at``).
        StoreError
            If EventBridge can't be asked, with the permission or the name that is missing.

        Examples
        --------
        >>> def handler(run: Run) -> None:
        ...     start, end = run.window
        ...     export(orders_between(start, end))  # start included, end not
        """
        return self._schedule.window(self.slot)

    @cached_property
    def _schedule(self) -> Schedule:
        if self._schedule_arn is None:
            raise InvalidScheduleError(
                f"{self._name}: no schedule is known, since the event that began it named none. "
                'Add "schedule":"<aws.scheduler.schedule-arn>" to the Input of its schedule; for '
                "a run by hand, add the ARN of the schedule to the event"
            )
        from anarchon_ddb import registry  # noqa: PLC0415  a handler that never asks pays nothing

        return registry.schedule_of(self._lease.store, self._schedule_arn, self.slot)

    @property
    def is_resuming(self) -> bool:
        """True if there is a checkpoint to go on from."""
        return self.checkpoint is not None

    @property
    def remaining(self) -> float:
        """Seconds that the invocation has left, as Lambda says at this moment."""
        return self._remaining_ms() / 1000

    @property
    def should_stop(self) -> bool:
        """True if another batch should not be started.

        A handler that has seen it and returns leaves the run to the next invocation.
        """
        if self.stopped_by is None:
            self.stopped_by = self._reason_to_stop()
        return self.stopped_by is not None

    def raise_if_stopping(self) -> None:
        """Raise what ``should_stop`` means.

        Raises
        ------
        StopEarly
            Time is short, the job was paused, or the run used up its timeout.
        Cancelled
            A person cancelled the run.
        LeaseLost
            Another invocation holds the run.
        StoreError
            The lease can't be renewed, for a reason that only a person can mend.
        """
        self._raise_if_lost()
        if self.should_stop and self.stopped_by is not None:
            if isinstance(self.stopped_by, StopEarly):  # after it the cursor is stored
                self._lease.store_withheld()
            raise self.stopped_by

    def save(self, cursor: object, *, done: int | None = None, total: int | None = None) -> None:
        """Store the cursor after a finished batch, renew the lease, and stop if time is short.

        Under ``checkpoint_interval`` a cursor that follows a stored one soon is stored by a later
        save, the heartbeat, or the end of the handler. A kill before that repeats its batch, and
        only then ``LeaseLost`` is found out. What is wrong with the cursor is raised at once.

        Parameters
        ----------
        cursor : object
            Whatever says where to go on: ``codec.dumps`` lists the types. Not None.
        done, total : int, optional
            How much is done, and of how much; shown to people.

        Raises
        ------
        CheckpointError
            If the cursor would not come back as it is, with the path of the offending value. The
            stored one stays.
        StopEarly, LeaseLost, StoreError
            As ``raise_if_stopping``. After ``StopEarly`` the cursor is stored.
        """
        self._store(cursor, Progress(done, total))
        self.raise_if_stopping()

    def commit(
        self,
        items: Iterable[Item],
        cursor: object,
        *,
        done: int | None = None,
        total: int | None = None,
    ) -> None:
        """Write to DynamoDB and save the cursor in one transaction: each effect exactly once.

        Either all of it is stored or nothing, and only while this attempt holds the run. So a batch
        that can't be repeated, such as one that adds to a counter, is safe all the same. Costs
        twice as much as the same writes and a ``save``.

        Parameters
        ----------
        items : iterable of dict
            Up to 99 actions and 4 MB, as ``TransactWriteItems`` of the low-level client takes them:
            ``{"Update": {"TableName": "totals", "Key": …, "UpdateExpression": …}}``. Any table of
            the run's account and region.
        cursor, done, total
            As ``save``.

        Raises
        ------
        CommitError
            For too many items or bytes, before any call; or if a condition of the items did not
            hold: it names the item. Nothing was stored.
        LeaseLost
            If another invocation holds the run. Nothing was stored.
        StoreError
            If it is unknown whether it was stored. This attempt ends; the next one reads which.
        CheckpointError, StopEarly, Cancelled
            As ``save``. After ``StopEarly`` it is stored.

        Examples
        --------
        >>> def handler(run: Run) -> None:
        ...     after = run.checkpoint
        ...     while payments := payments_after(after, limit=50):
        ...         after = payments[-1].id
        ...         run.commit([addition(payment) for payment in payments], after)
        """
        self._store(cursor, Progress(done, total), tuple(items))
        self.raise_if_stopping()

    def condition_check(self) -> Item:
        """Return the fence for a transaction of your own: a ``ConditionCheck`` of the run.

        The transaction is stored only while this attempt holds the run; the checkpoint is not
        part of it. Put it beside your own actions; its refusal means that the lease is lost. The
        function's role needs ``dynamodb:ConditionCheckItem`` on the table.

        Examples
        --------
        >>> def handler(run: Run) -> None:
        ...     writes = [{"Put": {"TableName": "reports", "Item": report(run.slot)}}]
        ...     dynamodb.transact_write_items(TransactItems=[run.condition_check(), *writes])
        """
        return self._lease.condition_check()

    def restart(self) -> None:
        """Forget the cursor, for one that can't be used any more, such as an expired page token.

        The work begins anew in this attempt, with ``checkpoint`` None; slot and attempt stay.
        """
        self._raise_if_lost()
        self._lease.forget()
        self.checkpoint = self.checkpoint_at = None
        self._done = 0
        self._batch_started_ms = self._clock.monotonic_ms()
        self.logger.info("The checkpoint was forgotten; the run begins anew")

    def batches(self, fetch: Callable[[Any], tuple[T, object] | None]) -> Iterator[T]:
        """Yield batch after batch, and save after the body of each.

        Parameters
        ----------
        fetch : callable
            Called with the cursor (None at first), returns the batch and the cursor behind it.
            A cursor of None says that this batch is the last one; returning None instead says
            that there is none any more. An empty batch with a cursor is a batch like any other.

        Raises
        ------
        StopEarly, LeaseLost, CheckpointError, StoreError
            As ``save``, out of the loop.

        Examples
        --------
        >>> def handler(run: Run) -> None:
        ...     for customers in run.batches(fetch_page):
        ...         export_batch(customers)
        """
        cursor = self.checkpoint
        while True:
            self.raise_if_stopping()
            found = fetch(cursor)
            if found is None:
                return
            batch, following = _pair(found)
            yield batch
            if following is None:
                return
            if following == cursor:
                raise CheckpointError(f"fetch gave the same cursor twice: {self._name} never ends")
            cursor = following
            self.save(cursor)

    def paginate(self, client: Any, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of any boto3 paginator, and save after the body of each.

        The checkpoint is the operation's own token, such as ``{"ExclusiveStartKey": …}``; ``{}``
        after the last page. A resumed run reads no finished page again. In the body of the loop
        ``checkpoint`` is still the token that the page was asked for with.

        Parameters
        ----------
        client : boto3 client
            Of any service.
        operation : str
            A method of it that has a paginator, such as ``"scan"``.
        **arguments
            The arguments of every call, such as ``TableName`` and ``Limit``.

        Raises
        ------
        StopEarly, LeaseLost, CheckpointError, StoreError
            As ``save``, out of the loop.

        Examples
        --------
        >>> def handler(run: Run) -> None:
        ...     for page in run.paginate(dynamodb, "scan", TableName="planes", Limit=200):
        ...         export_batch(page["Items"])
        """
        self.raise_if_stopping()
        start = self.checkpoint
        for page, token, count in pagination.pages(client, operation, arguments, start):
            yield page
            self._store(token, Progress(self._done + count))
            if token:  # behind the last page there is nothing to stop before
                self.raise_if_stopping()

    def _store(
        self, cursor: object, progress: Progress, items: Sequence[Item] | None = None
    ) -> None:
        self._raise_if_lost()
        text = encode(cursor, self._name)
        started_ms = self._clock.monotonic_ms()
        self._lease.pace.add(batch_ms=started_ms - self._batch_started_ms)
        if items:
            self._lease.commit(items, text, progress)
        else:
            self._lease.save(text, progress, at_once=items is not None)
        ended_ms = self._clock.monotonic_ms()
        self._lease.pace.add(save_ms=ended_ms - started_ms)
        self._batch_started_ms = ended_ms
        self._batches += 1
        self._done = self._done if progress.done is None else progress.done
        # As a later attempt would get it: no object of the handler's is shared.
        self.checkpoint, self.checkpoint_at = codec.loads(text), from_ms(self._clock.now_ms())
        self._advice.after_save(text, self._lease.pace.longest_batch_ms)

    @property
    def _name(self) -> str:
        return f"job {self.job!r}, slot {self.slot:%Y-%m-%dT%H:%M:%SZ}"

    def _raise_if_lost(self) -> None:
        lost = self._lease.lost
        if isinstance(lost, LeaseLost):
            self.stopped_by = lost
        if lost is not None:
            raise lost

    def _reason_to_stop(self) -> Stop | None:
        if isinstance(self._lease.lost, LeaseLost):
            return self._lease.lost
        asked = self._asked_to_stop()
        if asked is not None:
            return asked
        if not self._batches:  # an invocation always may run one batch
            return None
        pace = self._lease.pace
        needed_ms = protocol.needed_ms(
            self._stop_margin_ms, pace.longest_batch_ms, pace.longest_save_ms
        )
        remaining_ms = self._remaining_ms()
        if remaining_ms > needed_ms:
            return None
        return StopEarly(
            f"{remaining_ms / 1000:.1f} s are left, a further batch may need "
            f"{needed_ms / 1000:.1f} s"
        )

    def _asked_to_stop(self) -> Stop | None:
        """Return the stop that a person or the run's own timeout asks for, even within a batch."""
        if self._lease.stop_requested == "cancel":
            return Cancelled("the run was cancelled")
        if self._clock.now_ms() >= self._deadline_ms:
            return StopEarly("the run used up its timeout", reason="timed_out")
        if self._lease.stop_requested == "pause":
            return StopEarly("the job was paused", reason="paused")
        return None


def _pair(found: Any) -> tuple[Any, object]:
    if not isinstance(found, tuple) or len(found) != 2:
        raise TypeError(
            f"fetch must return (batch, cursor) or None, got {type(found).__name__}; "
            "the cursor of the last batch is None"
        )
    return found
