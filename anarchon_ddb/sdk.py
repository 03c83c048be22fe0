"""Whether the AWS SDK is new enough: it comes with Lambda's runtime, not with the artifact."""

from __future__ import annotations

import re

from anarchon_ddb.errors import StoreError

MINIMUM = (1, 34)
"""Of botocore and boto3; ``pyproject.toml`` names the same one."""


def check(version: str) -> None:
    """Refuse an SDK that is too old, once and by name, before a call fails for an unclear reason.

    Parameters
    ----------
    version : str
        ``botocore.__version__``.

    Raises
    ------
    StoreError
        If it is older than what the package is tested with.

    Examples
    --------
    >>> check("1.40.4")
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise StoreError(
            f"botocore {version} is too old: at least {wanted} is needed. In Lambda it comes with "
            "the runtime: choose a newer one (parameter PythonRuntime), or look for an older "
            f"botocore in a layer. Elsewhere: pip install 'boto3>={wanted}'"
        )
