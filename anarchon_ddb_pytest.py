"""The pytest plugin of anarchon_ddb: two fixtures, and nothing loaded until one is used.

It stands beside the package, not in it: pytest imports a plugin at its start, and the package's
own import would cost 0.2 s in every test run of everyone who has it installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anarchon_ddb.store import Store
    from anarchon_ddb.testing import SettableClock


@pytest.fixture
def anarchon_clock() -> SettableClock:
    """Return a clock that stands at 2026-11-29T12:00:05Z until the test moves or sets it."""
    from anarchon_ddb.testing import SettableClock  # noqa: PLC0415

    return SettableClock("2026-11-29T12:00:05Z")


@pytest.fixture
def anarchon_table(anarchon_clock: SettableClock) -> Iterator[Store]:
    """Make the empty table, on moto, and name it in ``ANARCHON_TABLE``: as a job finds it deployed.

    moto is active for the whole test, for all services, so the test's own tables and buckets are
    moto's, too.
    """
    from anarchon_ddb.testing.table import moto_table  # noqa: PLC0415

    try:
        table = moto_table(anarchon_clock)
        with table as store:
            yield store
    except ImportError as error:
        pytest.fail(f"fixture anarchon_table: {error}", pytrace=False)
