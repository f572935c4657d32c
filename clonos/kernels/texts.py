"""Counts of what texts of JSON have."""

from __future__ import annotations

import re
from typing import Final

from clonos.kernels import choice

_ENDS_OF_KEYS: Final = re.compile(r'[" \t\r\n]:')


def keys_max(lines: list[str]) -> int:
    """Returns how many colons of lines follow a quote or a blank: each key has one, and few texts have others."""
    if choice.native is not None:
        return int(choice.native.keys_max(lines))
    return sum(len(_ENDS_OF_KEYS.findall(line)) for line in lines)
