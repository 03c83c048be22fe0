"""Results as JSON has them. The keys are a promise to scripts: add, but do not rename."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anarchon_ddb import gate, history, records
from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.records import Damaged, Head

if TYPE_CHECKING:
    from anarchon_ddb.explain import Story
    from anarchon_ddb.history import Row
    from anarchon_ddb.listing import Registered
    from anarchon_ddb.overview import JobRow, Upcoming
    from anarchon_ddb.records import RunRecord
    from anarchon_ddb.timeline import Bar, Timeline
    from anarchon_ddb.watching import Look


def instant(at_ms: int | None) -> str | None:
    """Return an instant as ISO 8601 in UTC, with milliseconds; None for none."""
    if not at_ms:
        return None
    return f"{from_ms(at_ms):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03}Z"


def row(one: Row, now_ms: int) -> dict[str, Any]:
    """Return a run, or what is left of a damaged one."""
    if isinstance(one, Damaged):
        return {"job": one.job, "slot": one.slot, "state": "damaged", "problem": one.problem}
    return _run(one, now_ms)


def _run(one: RunRecord, now_ms: int) -> dict[str, Any]:
    return {
        "job": one.job,
        "slot": one.slot,
        "state": one.state,
        "condition": history.condition(one, now_ms),
        "reason": one.reason,
        "cause": one.cause,
        "attempt": one.attempt,
        "strikes": one.strikes,
        "is_held": history.is_held(one, now_ms),
        "lease_until": instant(one.lease_until),
        "first_claimed_at": instant(history.first_claimed_at(one)),
        "claimed_at": instant(one.claimed_at),
        "finished_at": instant(one.finished_at),
        "done": one.done,
        "total": one.total,
        "checkpoint": one.checkpoint,
        "checkpoint_at": instant(one.checkpoint_at),
        "params": one.params,
        "error": one.error,
        "stop_requested": one.stop_requested,
        "function": one.function,
        "request_id": one.request_id,
        "expires_at": instant(one.expires_at * 1000 if one.expires_at else None),
        "attempts": [_attempt(attempt) for attempt in records.history(one)],
    }


def _attempt(attempt: records.Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "claimed_at": instant(attempt.claimed_at_ms),
        "ended_at": instant(attempt.ended_at_ms),
        "end": attempt.end,
        "place": attempt.place,
    }


def job_row(one: JobRow, now_ms: int) -> dict[str, Any]:
    """Return a job at a glance."""
    policy = one.policy
    return {
        "job": one.job,
        "schedules": [schedule(entry) for entry in one.entries],
        "next_slot": None if one.next_slot is None else iso(one.next_slot),
        "last_run": None if one.last is None else row(one.last, now_ms),
        "open_runs": [row(run, now_ms) for run in one.open],
        "policy": None
        if policy is None
        else {
            "overlap": policy.overlap,
            "catch_up": policy.catch_up,
            "catch_up_window_s": policy.window_ms // 1000,
            "timeout_s": policy.timeout_ms // 1000,
            "retention_s": policy.retention_ms // 1000,
        },
        "pause": pause(one.head, now_ms),
        "problem": one.head.problem if isinstance(one.head, Damaged) else None,
    }


def pause(head: Head | Damaged, now_ms: int) -> dict[str, Any] | None:
    """Return a job's pause; None if it is not paused now."""
    if isinstance(head, Damaged) or not gate.is_paused(head, now_ms):
        return None
    until = None if head.paused_until >= gate.FOREVER_MS else instant(head.paused_until)
    return {"since": instant(head.paused_from), "until": until, "note": head.pause_note}


def schedule(entry: Registered) -> dict[str, Any]:
    """Return a schedule of the registry."""
    return {
        "name": entry.name,
        "expression": entry.schedule.expression,
        "timezone": entry.schedule.timezone,
        "in_words": entry.schedule.describe(),
        "is_enabled": entry.is_enabled,
        "function": entry.function,
        "params": dict(entry.params),
    }


def upcoming(one: Upcoming) -> dict[str, Any]:
    """Return a coming slot, or a local time that does not exist."""
    return {
        "slot": None if one.slot is None else iso(one.slot),
        "local": one.local.isoformat(),
        "timezone": one.zone,
        "schedule": one.schedule,
        "note": one.note,
    }


def story(one: Story, now_ms: int) -> dict[str, Any]:
    """Return the story of a slot."""
    return {
        "job": one.job,
        "slot": one.slot,
        "headline": one.headline,
        "told": list(one.told),
        "comes_next": list(one.comes_next),
        "commands": list(one.commands),
        "run": None if one.row is None else row(one.row, now_ms),
    }


def look(one: Look) -> dict[str, Any]:
    """Return an open run as it goes on."""
    return row(one.row, one.now_ms) | {
        "rate_per_s": one.rate_per_s,
        "eta_s": None if one.eta_ms is None else one.eta_ms / 1000,
        "lease_left_s": None if one.lease_left_ms is None else one.lease_left_ms / 1000,
    }


def timeline(one: Timeline) -> dict[str, Any]:
    """Return runs and attempts over time."""
    return {
        "job": one.job,
        "since": instant(one.since_ms),
        "until": instant(one.now_ms),
        "counts": one.counts,
        "runs": [_bar(bar) for bar in one.bars],
    }


def _bar(bar: Bar) -> dict[str, Any]:
    return {
        "slot": bar.slot,
        "state": bar.state,
        "condition": bar.told,
        "progress": bar.progress,
        "error": bar.error,
        "attempts": [
            {
                "number": segment.number,
                "start": instant(segment.start_ms),
                "end": instant(segment.end_ms),
                "outcome": segment.outcome,
                "place": segment.place,
            }
            for segment in bar.segments
        ],
    }
