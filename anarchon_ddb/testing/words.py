"""What was found, in words. Pure functions: kills and differences as people would tell them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from anarchon_ddb.testing.sandbox import Point

CHECKPOINTS = frozenset({"save", "commit"})

_STEPS = {
    "claim": "the run was claimed",
    "pass": "the gate was passed",
    "read": "the run was read",
    "read gate": "the gate was read",
    "renew": "the lease was renewed",
    "let_go": "the run was let go of",
    "finish": "the end of the run was stored",
    "clear": "the gate was left",
}

NOT_SAFE = "the batch is not safe to repeat"
LOST = (
    "work was lost: a checkpoint was saved before its work, the cursor skips what it should not, "
    "or something was kept in memory only"
)
DIFFERS = "what the job does depends on when it runs, or on how often it was begun"

_SHOWN = 8


def kill(points: Sequence[Point], index: int) -> str:
    """Return where a job was killed.

    Parameters
    ----------
    points : sequence of Point
        All points of the execution, in order.
    index : int
        Which of them.
    """
    point = points[index]
    saved = sum(p.phase == "after" and p.call in CHECKPOINTS and p.own for p in points[:index])
    when = "before" if point.phase == "before" else "right after"
    if point.own and point.call in CHECKPOINTS:
        if point.phase == "after":
            return f"killed right after the checkpoint of batch {saved + 1} was saved"
        if point.call == "commit":
            return f"killed before batch {saved + 1} was committed"
        return f"killed after batch {saved + 1} was done and before its checkpoint was saved"
    if point.own:
        return f"killed {when} {_STEPS.get(point.call, f'the write {point.call}')}"
    target = f" ({point.target})" if point.target else ""
    return f"killed in batch {saved + 1}, {when} {point.call} number {point.number}{target}"


def difference(expected: Any, found: Any) -> str:
    """Return how the effects differ from those of the uninterrupted run, and what that means.

    Examples
    --------
    >>> difference([1, 2, 3], [1, 2, 2, 3])
    '2 is there twice: the batch is not safe to repeat'
    >>> difference({"total": 10}, {"total": 12})
    "'total' is 12 instead of 10: the batch is not safe to repeat"
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        told = _of_mappings(expected, found)
    elif _is_collection(expected) and _is_collection(found):
        told = _of_collections(list(expected), list(found))
    else:
        told = [(f"the effects are {_short(found)} instead of {_short(expected)}", DIFFERS)]
    verdicts = {verdict for _, verdict in told}
    verdict = DIFFERS if len(verdicts) > 1 else verdicts.pop()
    return f"{'; '.join(text for text, _ in told)}: {verdict}"


def _is_collection(value: object) -> bool:
    return isinstance(value, (list, tuple, set, frozenset))


def _of_mappings(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[tuple[str, str]]:
    told = []
    missing = [key for key in expected if key not in found]
    added = [key for key in found if key not in expected]
    if missing:
        told.append((f"{listed(missing)} {_be(missing)} missing", LOST))
    if added:
        told.append((f"{listed(added)} {_be(added)} there and should not be", DIFFERS))
    changed = [key for key in expected if key in found and expected[key] != found[key]]
    for key in changed[:_SHOWN]:
        text = f"{key!r} is {_short(found[key])} instead of {_short(expected[key])}"
        told.append((text, _of_values(expected[key], found[key])))
    return told


def _of_values(expected: Any, found: Any) -> str:
    numbers = isinstance(expected, (int, float)) and isinstance(found, (int, float))
    if not numbers:
        return DIFFERS
    return NOT_SAFE if found > expected else LOST


def _of_collections(expected: list[Any], found: list[Any]) -> list[tuple[str, str]]:
    wanted, there = _counted(expected), _counted(found)
    missing = [_first(expected, key) for key in wanted if wanted[key] > there[key]]
    added = [_first(found, key) for key in there if not wanted[key]]
    again = [_first(found, key) for key in there if there[key] > wanted[key] > 0]
    told = []
    if again:
        told.append((f"{listed(again)} {_be(again)} there {_times(again, there)}", NOT_SAFE))
    if missing:
        told.append((f"{listed(missing)} {_be(missing)} missing", LOST))
    if added:
        told.append((f"{listed(added)} {_be(added)} there and should not be", DIFFERS))
    order = "the effects are the same in another order; return them sorted if that is no matter"
    return told or [(order, DIFFERS)]


def _times(again: list[Any], there: Counter[str]) -> str:
    counts = {there[repr(value)] for value in again}
    return "twice" if counts == {2} else f"up to {max(counts)} times"


def _counted(values: Iterable[Any]) -> Counter[str]:
    return Counter(map(repr, values))


def _first(values: list[Any], text: str) -> Any:
    return next(value for value in values if repr(value) == text)


def _be(values: Sequence[Any]) -> str:
    return "is" if len(values) == 1 else "are"


def listed(values: Sequence[Any]) -> str:
    """Return values as a list for people, neighbouring numbers as a range.

    Examples
    --------
    >>> listed([57, 58, 59, 60, 62])
    '57-60, 62'
    """
    if all(type(value) is int for value in values):
        parts = _ranges(sorted(values))
    else:
        parts = [_short(value) for value in values]
    shown = ", ".join(parts[:_SHOWN])
    return shown + (f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else "")


def _ranges(numbers: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
