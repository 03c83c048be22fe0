"""``python -m anarchon_ddb.cli``, and the ``anarchon-ddb`` of the shell."""

from __future__ import annotations

import sys


def start() -> None:
    """Run the command line and exit with its code."""
    try:
        from anarchon_ddb.cli.main import main  # noqa: PLC0415 - click may not be there
    except ModuleNotFoundError as error:
        if error.name not in {"click", "rich"}:
            raise
        sys.exit(f"anarchon-ddb needs {error.name}: pip install 'anarchon_ddb[cli]'")
    sys.exit(main())


if __name__ == "__main__":
    start()
