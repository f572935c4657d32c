"""Counts of what texts of JSON have."""

from __future__ import annotations

import re
from typing import Final

from clonos.kernels import choice

_ENDS_OF_KEYS: Final = re.compile(r'[" \t\r\n]:')


def keys_max(lines: list[str]) -> int:
    """Returns how many colons of lines follow a quote or a blank: each key has one, and few texts have others."""
    count = getattr(choice.native, "keys_max", None)  # None also in an extension that was built before it
    if count is not None:
        return int(count(lines))
    return sum(len(_ENDS_OF_KEYS.findall(line)) for line in lines)
