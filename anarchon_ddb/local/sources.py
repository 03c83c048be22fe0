"""Whether the code of a function was changed: what it is looked at by."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_NOT_CODE = {"__pycache__", "node_modules", "site-packages"}
_MOST_FILES = 5_000

Fingerprint = frozenset[tuple[str, int, int]]


def fingerprint(directory: Path) -> Fingerprint:
    """Return path, time and size of each Python file below a directory.

    Hidden directories, such as virtual environments mostly are, and installed packages are not
    looked into.
    """
    found: list[tuple[str, int, int]] = []
    for root, directories, files in os.walk(directory):
        directories[:] = [
            name for name in directories if not name.startswith(".") and name not in _NOT_CODE
        ]
        for name in files:
            if name.endswith(".py") and len(found) < _MOST_FILES:
                path = Path(root, name)
                with suppress(OSError):  # removed meanwhile
                    status = path.stat()
                    found.append((str(path), status.st_mtime_ns, status.st_size))
    return frozenset(found)
