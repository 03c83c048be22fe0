"""A person's writes, as values: each on the condition of what was read.

The same rules as in ``protocol``: one conditional ``UpdateItem``, the expressions precomputed.
"""

from __future__ import annotations

from functools import cache

from anarchon_ddb.protocol import OUT_OF_INDEX, Write

AS_READ = ("#state = :read_state", "#attempt = :read_attempt", "#lease_until = :read_lease_until")

# Told to a live holder by the reply to its next save or renewal.
STOP = Write(
    name="stop",
    sets=("#stop_requested = :stop",),
    requires=("#state = :read_state", "#attempt = :read_attempt"),
)

CANCEL = Write(
    name="cancel",
    sets=(
        "#state = :cancelled",
        "#reason = :reason",
        "#finished_at = :now",
        "#expires_at = :expires_at",
    ),
    removes=(*OUT_OF_INDEX, "#stop_requested"),
    requires=AS_READ,
    constants={"cancelled": "cancelled"},
)

# Raises the attempt, so that a holder that is not dead after all stays fenced.
RELEASE = Write(
    name="release",
    sets=(
        "#state = :interrupted",
        "#attempt = :next_attempt",
        "#lease_until = :zero",
        "#due = :now",
        "#attempts = :attempts",
    ),
    requires=(*AS_READ, "#owner = :read_owner"),
    constants={"interrupted": "interrupted", "zero": 0},
)


# A pause finds an open run that nobody holds: its own clock stops, too.
REST = Write(
    name="rest",
    sets=("#used_ms = :used_ms",),
    removes=("#started_at",),
    requires=(*AS_READ, "attribute_exists(#started_at)"),
)


@cache
def retry(*, from_start: bool) -> Write:
    """Return a person's retry: the run begins its tries anew, through claim and gate as any."""
    cursor = ("#checkpoint", "#checkpoint_at", "#done", "#total", "#version")
    ended = ("#reason", "#error", "#finished_at", "#expires_at", "#stop_requested", "#started_at",
             "#used_ms")  # fmt: skip
    return Write(
        name="retry",
        sets=(
            "#state = :pending",
            "#cause = :retry",
            "#strikes = :zero",
            "#lease_until = :zero",
            "#open = :shard",
            "#due = :now",
        ),
        removes=(*ended, *(cursor if from_start else ())),
        requires=AS_READ,
        constants={"pending": "pending", "retry": "retry", "zero": 0},
    )
