"""The resumer: fired each minute, it sends open runs that nobody holds on their way again.

It takes candidates from the index and decides on the base table: each run is read consistently,
and claimed by the function that is invoked, never here. Two passes at once do no harm.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from anarchon_ddb import dispatch, gate, logs, metrics, protocol, records
from anarchon_ddb.clock import SYSTEM_CLOCK, Clock
from anarchon_ddb.errors import StoreError
from anarchon_ddb.schema import RunKey
from anarchon_ddb.worker import store_of, warm_up

if TYPE_CHECKING:
    from anarchon_ddb.records import RunRecord
    from anarchon_ddb.store import Store

STOP_MARGIN_MS = 5_000

REDISPATCH_MS = 50_000
"""Not sent again within this: less than the minute between two passes, so none is left out."""


def handler(event: object, context: Any) -> dict[str, int]:  # noqa: ARG001  the event is a tick
    """Run one pass; return what it did.

    Raises
    ------
    StoreError
        If the index can't be read. A run that can't be is reported, and the others go on.
    """
    clock: Clock = getattr(context, "clock", SYSTEM_CLOCK)
    store = store_of(clock)
    now_ms = clock.now_ms()
    counts = {"open": 0, "sent": 0, "faults": 0}
    oldest_ms = now_ms
    for key in store.open_runs(now_ms):
        if context.get_remaining_time_in_millis() <= STOP_MARGIN_MS:
            break  # what is left is done in the next minute
        counts["open"] += 1
        try:
            started_ms = _resume(store, key, now_ms, counts)
        except StoreError as fault:
            counts["faults"] += 1
            logs.logger().error(
                "A run could not be looked at: %s", fault, extra={"job": key.job, "slot": key.slot}
            )
        else:
            oldest_ms = min(oldest_ms, started_ms or now_ms)
    metrics.emit(
        {
            "ResumerPasses": 1,
            "OpenRuns": counts["open"],
            "OldestOpenRunAge": (now_ms - oldest_ms) / 1000,
        }
    )
    return counts


def _resume(store: Store, key: RunKey, now_ms: int, counts: dict[str, int]) -> int | None:
    """Send a run on its way if nobody holds it; return when it was claimed, None if it ended."""
    record = store.read_run(key)
    if record is None or not records.is_open(record):
        return None
    if not protocol.is_claimable(record, now_ms) or not _may_pass(store, record, now_ms):
        return record.claimed_at
    marked = store.write(
        key,
        protocol.DISPATCH,
        {
            "attempt": record.attempt,
            "now": now_ms,
            "dispatched_before": now_ms - REDISPATCH_MS,
        },
    )
    if marked is not None:
        fault = dispatch.send(store, record.function, key)
        counts["faults" if fault else "sent"] += 1
        if fault:
            logs.logger().error(
                "The function of a run could not be invoked: %s",
                fault,
                extra={"job": key.job, "slot": key.slot, "function": record.function},
            )
    return record.claimed_at


def _may_pass(store: Store, record: RunRecord, now_ms: int) -> bool:
    """Tell whether sending a run makes sense: a pause or another run at the gate refuses it."""
    head = store.read_head(record.job)
    if gate.is_paused(head, now_ms):
        return False
    if record.slot not in head.waiting or head.active_slot is None:
        return True
    active = store.read_run(RunKey(record.job, head.active_slot))
    # The gate was left by a run that has ended: who waits is sent to hand it on.
    return active is None or not records.is_open(active)


if "AWS_LAMBDA_RUNTIME_API" in os.environ:
    warm_up()
