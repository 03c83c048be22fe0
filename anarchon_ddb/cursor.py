"""A cursor on its way into the table, and for how long a save may leave it to a later write.

Under ``checkpoint_interval`` a save that follows the last stored cursor soon is withheld: its
cursor is kept in memory, replaced by the next one, and stored with the next write of the holder. So
many tiny batches cost few writes, and a kill repeats the batches of less than one interval. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anarchon_ddb import codec
from anarchon_ddb.errors import CheckpointError, CheckpointTooLargeError

if TYPE_CHECKING:
    from anarchon_ddb.records import RunRecord


@dataclass(frozen=True, slots=True)
class Progress:
    """How much is done, and of how much, as the handler said."""

    done: int | None = None
    total: int | None = None

    def after(self, earlier: Progress) -> Progress:
        """Return what is known once both were told: the later one wins."""
        return Progress(
            earlier.done if self.done is None else self.done,
            earlier.total if self.total is None else self.total,
        )


@dataclass(frozen=True, slots=True)
class Cursor:
    """A cursor that a handler gave, encoded; ``text`` is None to forget the stored one."""

    text: str | None
    progress: Progress
    given_at_ms: int
    """When the handler gave it: stored with it, also if it is written later."""
    batch_ended_ms: int
    """The same instant on the monotonic clock: what is done after it, a kill repeats."""


def encode(cursor: object, run: str) -> str:
    """Return a cursor as it is stored. At the handler's own line, even if it is withheld.

    Raises
    ------
    CheckpointError
        For None, and for what would not come back as it is; ``run`` names the run.
    """
    if cursor is None:
        raise CheckpointError(
            f"{run}: None is no cursor, it means that nothing was saved yet; "
            "to forget the cursor call run.restart()"
        )
    try:
        return codec.dumps(cursor)
    except CheckpointTooLargeError as error:
        raise CheckpointTooLargeError(f"{run}: {error}") from None
    except CheckpointError as error:
        raise CheckpointError(f"{run}: the cursor can't be saved: {error}") from None


def withheld_for_ms(record: RunRecord, interval_ms: int, lease_ms: int, max_attempts: int) -> int:
    """Return for how long an attempt may withhold its saves; 0 to store each.

    Never beyond a third of the lease: it is renewed that often anyway, and a save that renews it
    costs no more than a renewal. Not in the last attempt that the run has without progress: a job
    that always dies sooner than the interval would never move, where without an interval it does;
    and a batch that kills is found exactly.
    """
    if 1 < record.strikes >= max_attempts:
        return 0
    return min(interval_ms, lease_ms // 3)
