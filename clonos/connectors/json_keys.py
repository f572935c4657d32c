"""Keys of JSON objects: a key that an object has twice is an error of its record, whose value would lack the first.

A parser does not say so. Colons do: each key has one, so that a text has more of them than its value if a key is lost.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import msgspec

from clonos.connectors.value_depth import NotAValue
from clonos.kernels.texts import keys_max

_ESCAPED: Final = "\\u003"
"""How an escaped colon begins, which the text of the value has as a colon."""

_encoder: Final = msgspec.json.Encoder()
_DICT: Final = frozenset({dict})


def check_keys(text: str, value: Any) -> None:
    """Checks a JSON text of at most 64 levels, which has this value.

    Raises: NotAValue: an object has a key twice.
    """
    if not have_all_keys([text], [value]):
        json.loads(text, object_pairs_hook=unique)


def have_all_keys(lines: list[str], values: list[Any]) -> bool:
    """Returns whether the values of lines have all keys; False if that cannot be told at once."""
    keys = keys_max(lines)
    if not keys or (_DICT.issuperset(map(type, values)) and sum(map(len, values)) == keys):
        return True
    text = "\n".join(lines)
    if "\\" in text and _ESCAPED in text:
        return False
    try:
        return _encoder.encode_lines(values).count(b":") == text.count(":")
    except UnicodeEncodeError:  # a lone surrogate
        return False


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of its keys and values.

    Raises: NotAValue: a key is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise NotAValue(f"an object has the key {name!r} twice")
    return found
