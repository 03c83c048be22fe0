"""What happened, in order: one JSON line an event, the same bytes when a simulation is repeated.

Nothing of it comes from the machine: no process ids, no ports, no durations but the cloud's. What
handlers were given and what they returned stays in their logs; of the package's own answers the
outcome is told.
"""

from __future__ import annotations

import hashlib
import json
import threading
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

from anarchon_ddb.clock import from_ms, iso
from anarchon_ddb.local.delivery import Delivered, Undelivered
from anarchon_ddb.local.functions import Ended, GivenUp, Killed, Started
from anarchon_ddb.local.traffic import Struck

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from anarchon_ddb.clock import Clock

Line = dict[str, Any]


class History:
    """Writes what is told, and hands each line on.

    Parameters
    ----------
    path : Path
        The file, made anew.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.readers: list[Callable[[Line], None]] = []
        self._clock = clock
        self._digest = hashlib.sha256()
        self._lock = threading.Lock()  # chaos on the machine's clock tells from many threads
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", buffering=1)  # readable while it plays

    @property
    def digest(self) -> str:
        """A number of all lines so far: equal histories have equal ones."""
        return self._digest.hexdigest()[:16]

    def listen(self, event: object) -> None:
        """Take what the cloud tells."""
        line = self._line(event)
        if line is not None:
            self.add(line)

    def add(self, line: Line) -> None:
        """Write a line, with the time on the cloud's clock."""
        line = {"at": moment(self._clock.now_ms()), **line}
        text = json.dumps(line) + "\n"
        with self._lock:
            self._digest.update(text.encode())
            self._file.write(text)
        for read in self.readers:
            read(line)

    def close(self) -> None:
        """Write what is left."""
        self._file.close()

    @singledispatchmethod
    def _line(self, event: object) -> Line | None:  # noqa: ARG002
        return None

    @_line.register
    def _delivered(self, event: Delivered) -> Line:
        return {
            "event": "delivered",
            "schedule": event.schedule,
            "slot": iso(event.slot),
            "delivery": event.delivery,
            "late_s": event.late_s,
            "function": event.function,
            "request": event.request_id,
        }

    @_line.register
    def _undelivered(self, event: Undelivered) -> Line:
        return {
            "event": "undelivered",
            "schedule": event.schedule,
            "slot": iso(event.slot),
            "why": event.why,
            "queue": event.queue,
            "function": event.function,
        }

    @_line.register
    def _started(self, event: Started) -> Line:
        return {
            "event": "started",
            "function": event.function,
            "request": event.request_id,
            "try": event.attempt,
        }

    @_line.register
    def _ended(self, event: Ended) -> Line:
        line = {
            "event": "ended",
            "function": event.function,
            "request": event.request_id,
            "end": event.end,
            "cold": event.cold,
            "calls": event.calls,
            "duration_s": round(event.duration_s, 3),
        }
        if event.end != "returned":
            return {**line, "error": str(event.payload.get("errorType"))}
        told = event.payload if isinstance(event.payload, dict) else {}
        names = ("job", "slot", "attempt", "outcome", "reason")
        return line | {name: told[name] for name in names if _is_short(told.get(name))}

    @_line.register
    def _killed(self, event: Killed) -> Line:
        return {
            "event": f"killed {event.when}",
            "function": event.function,
            "request": event.request_id,
        }

    @_line.register
    def _given_up(self, event: GivenUp) -> Line:
        return {
            "event": "given up",
            "function": event.function,
            "request": event.request_id,
            "why": event.why,
        }

    @_line.register
    def _struck(self, event: Struck) -> Line:
        return {
            "event": event.verdict.value,
            "function": event.function,
            "request": event.request_id,
            "call": event.number,
            "operation": event.operation,
        }


def moment(epoch_ms: int) -> str:
    """Return an instant to the millisecond."""
    return from_ms(epoch_ms).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _is_short(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= 200)
