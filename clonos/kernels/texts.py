"""Keys of JSON texts, and numbers in them that a float may change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clonos.kernels import choice

_ENDS_OF_KEYS: Final = re.compile(r'[" \t\r\n]:')
_LONG_NUMBERS: Final = re.compile(r"[0-9.]{16}|[0-9.][eE]-[0-9]{3}")


def keys_max(lines: list[str]) -> int:
    """Returns how many colons of lines follow a quote or a blank: each key has one, and few texts have others."""
    if choice.native is not None:
        return int(choice.native.keys_max(lines))
    return sum(len(_ENDS_OF_KEYS.findall(line)) for line in lines)


def rounds_numbers(lines: Sequence[str | bytes]) -> bool:
    """Returns whether a float may change a number of lines: it has too many digits for it, or is too
    small. Parsers refuse a number that is too large."""
    if choice.native is not None:
        return bool(choice.native.rounds_numbers(lines))
    return any(_LONG_NUMBERS.search(line if isinstance(line, str) else line.decode("latin-1")) for line in lines)
