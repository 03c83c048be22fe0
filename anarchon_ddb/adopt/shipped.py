"""The files that this repository deploys, as they come with the package: one source, no copies."""

from __future__ import annotations

from pathlib import Path

from anarchon_ddb.errors import AnarchonError

FILES = (
    "template.yaml",
    "samconfig.toml",
    "infra/alarms.yaml",
    "infra/build.mk",
    "infra/dashboard.yaml",
    "infra/resumer.yaml",
    "infra/table.yaml",
)
"""In a wheel they are in ``anarchon_ddb/scaffold``; in a clone of the repository at its root."""


def read(name: str) -> str:
    """Return a shipped file.

    Raises
    ------
    AnarchonError
        If the installation is not complete.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "scaffold", package.parent):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise AnarchonError(f"{name} is not part of this installation: install anarchon_ddb anew")
