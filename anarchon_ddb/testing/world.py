"""What a sandbox shares with the world: functions that stand for a service outside of it.

A killed sandbox takes its memory with it, so a job under ``explore_crashes`` runs in a child
process, and what it appends to a list is gone when it ends. A function marked as ``outside`` is run
in the test's own process instead, as the database or the API that it stands for would be; and the
job can be killed before and after each call of it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


class Caller(Protocol):
    """How a sandbox has a function called in the test's process."""

    def call_outside(
        self, index: int, name: str, args: tuple[object, ...], named: dict[str, object]
    ) -> object:
        """Call the function of that index; return or raise what it does."""
        ...


FUNCTIONS: list[Callable[..., object]] = []
"""Every function that was marked, by its index: the same one on both sides of a fork."""

_caller: Caller | None = None


def enter_sandbox(caller: Caller) -> None:
    """Have every marked function called through ``caller`` from now on: in a child process."""
    global _caller  # noqa: PLW0603  a sandbox is a process
    _caller = caller


def outside(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function as a service outside of the sandbox.

    Arguments and result cross a pipe: they must be picklable. Outside of a sandbox the function is
    called as it is.

    Parameters
    ----------
    function : callable
        Whatever the handler calls to have an effect, or to read what it works on.

    Examples
    --------
    >>> sent = []
    >>> send = outside(sent.append)
    >>> send("N10156")
    >>> sent
    ['N10156']
    """
    index = len(FUNCTIONS)
    FUNCTIONS.append(function)
    name = getattr(function, "__name__", type(function).__name__)

    @functools.wraps(function, updated=())
    def call(*args: P.args, **named: P.kwargs) -> R:
        if _caller is None:
            return function(*args, **named)
        return cast("R", _caller.call_outside(index, name, args, named))

    return call
