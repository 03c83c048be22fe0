"""The trace header that tells Lambda of recursion: how often each function took part in a chain.

AWS SDKs pass the header on to the calls that a function makes, and Lambda stops a chain that went
through one function about 16 times, unless its ``RecursiveLoop`` is ``Allow``.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_CHAIN = 16


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a chain of invocations began, and through which functions it went."""

    root: str
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def fresh(cls, request_id: str) -> Trace:
        """Return the trace of an event that no function sent."""
        digits = request_id.replace("-", "")
        return cls(f"1-{digits[:8]}-{digits[8:32]:0<24}")

    @classmethod
    def parse(cls, header: str) -> Trace | None:
        """Return the trace of a header that an SDK passed on; None if there is none.

        Examples
        --------
        >>> Trace.parse("Root=1-a-b;Parent=c;Sampled=0;Lineage=1:a87bd80c:2").counts
        {'a87bd80c': 2}
        """
        fields = dict(part.split("=", 1) for part in header.split(";") if "=" in part)
        if "Root" not in fields:
            return None
        counts = {}
        for entry in filter(None, fields.get("Lineage", "").split("|")):
            *_, name, count = entry.split(":")
            if count.isdigit():
                counts[name] = int(count)
        return cls(fields["Root"], counts)

    def through(self, function: str) -> Trace:
        """Return the trace of an invocation of a function by this chain."""
        name = _short(function)
        return replace(self, counts={**self.counts, name: self.counts.get(name, 0) + 1})

    def times(self, function: str) -> int:
        """Return how often the chain went through a function."""
        return self.counts.get(_short(function), 0)

    def header(self) -> str:
        """Return the value of ``X-Amzn-Trace-Id``."""
        lineage = "|".join(f"1:{name}:{count}" for name, count in self.counts.items())
        parent = f"{zlib.crc32(self.root.encode()):016x}"
        return f"Root={self.root};Parent={parent};Sampled=0" + (
            f";Lineage={lineage}" if lineage else ""
        )


def _short(function: str) -> str:
    return f"{zlib.crc32(function.encode()):08x}"
