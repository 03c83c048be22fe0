"""The two families of errors are what a handler's ``except`` clauses rely on."""

import pytest

from anarchon_ddb import errors


@pytest.mark.parametrize("stop", [errors.StopEarly, errors.LeaseLost, errors.Cancelled])
def test_a_stop_is_not_caught_by_except_exception(stop: type[errors.Stop]) -> None:
    with pytest.raises(stop):
        try:
            raise stop("time is short")
        except Exception:
            pytest.fail("swallowed")


def test_every_error_has_one_root() -> None:
    leaves = [errors.InvalidEventError, errors.CheckpointTooLargeError, errors.StoreError]
    assert all(issubclass(leaf, errors.AnarchonError) for leaf in leaves)
