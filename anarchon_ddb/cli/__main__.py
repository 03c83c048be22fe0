"""``python -m anarchon_ddb.cli``, and the ``anarchon-ddb`` of the shell."""

from __future__ import annotations

import sys
from typing import NoReturn


def start() -> None:
    """Run the command line and exit with its code."""
    try:
        from anarchon_ddb.cli.main import main  # noqa: PLC0415 - click may not be there
    except ModuleNotFoundError as error:
        _refuse(error)
    try:
        sys.exit(main())
    except ModuleNotFoundError as error:  # a command's module is imported when it is asked for
        _refuse(error)


def _refuse(error: ModuleNotFoundError) -> NoReturn:
    if error.name not in {"click", "rich", "yaml"}:
        raise error
    sys.exit(f"anarchon-ddb needs {error.name}: pip install 'anarchon_ddb[cli]'")


if __name__ == "__main__":
    start()
