"""What is stored of a run, as values, and what can be told from it alone.

No I/O, no clock, no environment: the bottom of the protocol.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = str | int | frozenset[str]
"""What an attribute may hold."""

State = Literal[
    "pending", "running", "interrupted", "retrying",
    "succeeded", "failed", "skipped", "cancelled", "missed",
]  # fmt: skip
Released = Literal["pending", "interrupted", "retrying"]
Terminal = Literal["succeeded", "failed", "skipped", "cancelled", "missed"]

OPEN_STATES = frozenset({"pending", "running", "interrupted", "retrying"})
TERMINAL_STATES = frozenset({"succeeded", "failed", "skipped", "cancelled", "missed"})

OPEN_SHARDS = 4
"""Partitions of the index of open runs: writes to one are limited to 1,000 a second."""

HISTORY_LIMIT = 5
"""Attempts kept with a run. Writes are billed by the size of the item."""

ERROR_TEXT_LIMIT = 300
"""Characters of a handler's error kept with a run. The traceback stays in the log."""

AttemptEnd = Literal[
    "succeeded", "interrupted", "failed", "lost", "cancelled", "released", "waited", "skipped"
]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as the history of its run tells it."""

    number: int
    claimed_at_ms: int
    ended_at_ms: int
    end: AttemptEnd
    seq: int
    """Writes of the run so far; equal in two neighbours when nothing was stored between."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as it was read, decoded. ``checkpoint`` and ``params`` are still encoded text."""

    job: str
    slot: str
    state: State
    attempt: int
    owner: str
    lease_until: int
    strikes: int
    seq: int
    cause: str
    claimed_at: int
    previous_claimed_at: int
    started_at: int
    """When the run's own clock began; 0 while it stands still."""
    used_ms: int
    """How much of the run's own timeout was used before its clock stood still."""
    finished_at: int | None
    reason: str | None
    error: str | None
    checkpoint: str | None
    checkpoint_at: int | None
    done: int | None
    total: int | None
    longest_batch_ms: int
    longest_save_ms: int
    params: str | None
    schedule: str | None
    """The ARN of the schedule or rule that fired it, where its first delivery named one."""
    function: str
    request_id: str
    dispatched_at: int | None
    expires_at: int | None
    stop_requested: str | None
    version: str
    former_state: str
    attempts: tuple[Attempt, ...]


def open_shard(job: str, slot: str) -> str:
    """Return the index partition of a run: spread evenly, the same on every machine."""
    return str(zlib.crc32(f"{job}|{slot}".encode()) % OPEN_SHARDS)


def is_open(record: RunRecord) -> bool:
    """Tell whether a run may still be claimed, now or later."""
    return record.state in OPEN_STATES


def history(record: RunRecord) -> tuple[Attempt, ...]:
    """Return the attempts before this one, the killed ones named ``lost``.

    Every attempt writes its own end, except one that was killed. So numbers between the last
    recorded attempt and the present one were lost. The start is known only of the direct
    predecessor; what was lost before that is told as starting there, too.
    """
    last_known = record.attempts[-1].number if record.attempts else 0
    first_kept = max(last_known + 1, record.attempt - HISTORY_LIMIT)
    lost = (
        Attempt(number, record.previous_claimed_at, record.claimed_at, "lost", record.seq)
        for number in range(first_kept, record.attempt)
    )
    return (*record.attempts, *lost)[-HISTORY_LIMIT:]


def with_attempt(past: Sequence[Attempt], latest: Attempt) -> tuple[Attempt, ...]:
    """Return the history with one more attempt, trimmed to what is kept.

    An attempt that only waited for the gate is told by the next one: there may be many.
    """
    return (*(attempt for attempt in past if attempt.end != "waited"), latest)[-HISTORY_LIMIT:]


@dataclass(frozen=True, slots=True)
class Head:
    """The gate of a job as it was read: which slot may pass, who waits, and the pause."""

    job: str
    active_slot: str | None = None
    active_attempt: int = 0
    waiting: frozenset[str] = frozenset()
    rev: int = 0
    paused_until: int = 0
    """Epoch milliseconds; 0 if not paused."""
    paused_from: int = 0
    """When the pause, or the last one, began; epoch milliseconds."""
    unpaused_at: int = 0
    """When the last pause was ended by a person."""
    pause_note: str = ""
    checked_until: int = 0
    """Up to which slot the resumer found a trace of each, or left one; epoch milliseconds."""
    rule: str = ""
    """The ARN of the rule that fires the job, if one does."""
    rule_since: int = 0
    """The first delivery of a rule, epoch milliseconds."""
    function: str = ""
    """The function that the rule fires."""
    policy: str = ""
    """What the resumer must know of the job's policy; empty for the defaults."""
