"""dynalite, started for the tests and stopped by its process id: conditional writes that are
atomic between processes, and no item returned on a refusal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from anarchon_ddb.store import Store

HERE = Path(__file__).parent


class Dynalite:
    """One server on loopback."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [shutil.which("node") or "node", str(HERE / "dynalite_server.js")],
            cwd=HERE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), line
        self.endpoint = f"http://127.0.0.1:{line.split()[-1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_DYNAMODB": self.endpoint,
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Point the SDK of this process to the server."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environ.items():
                patch.setenv(name, value)
            yield

    def new_table(self) -> Store:
        """Make a table of its own for a test; its client is made here, too."""
        with self.environment():
            store = Store(f"anarchon-{uuid.uuid4().hex[:8]}")
            store.create_table()
        return store


def available() -> bool:
    return bool(shutil.which("node")) and (HERE / "node_modules" / "dynalite").exists()


def require() -> None:
    """Leave a test out where Node is missing; in CI that is a failure."""
    if not available():
        text = "dynalite needs Node >= 20 and npm: install them and run `make test`"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
