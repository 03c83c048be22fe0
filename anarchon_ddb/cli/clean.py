"""Text from the table, before it reaches a terminal: nothing in it may steer one."""

from __future__ import annotations

import unicodedata

_SPACES = str.maketrans({"\n": " ", "\r": " ", "\t": " "})


def clean(text: str) -> str:
    r"""Strip control characters, and those that reorder the text around them.

    Examples
    --------
    >>> clean("boom\x1b[31m\nnext\u202eline")
    'boom[31m nextline'
    """
    plain = text.translate(_SPACES)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(char for char in plain if unicodedata.category(char) not in _UNSAFE)


_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
