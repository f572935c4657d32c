"""Why keys of columns are compared in rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def key_reason(keys: Sequence[str], schema: Any) -> str:
    """Returns why a step that compares these columns works on rows for columns of these types; "" if it does not."""
    from clonos.operators.columnar.running.stored_keys import are_keys

    return _reason(keys, schema, lambda key: are_keys(schema, (key,)))


def packed_key_reason(keys: Sequence[str], schema: Any) -> str:
    """Returns the same for windows, which have more types of keys."""
    from clonos.kernels.packed_keys import key_types

    return _reason(keys, schema, lambda key: key_types([schema.field(key).type]) is not None)


def _reason(keys: Sequence[str], schema: Any, is_key: Callable[[str], bool]) -> str:
    for key in keys:
        if key not in schema.names:
            return f"there is no column {key!r}"
        if not is_key(key):
            return f"a key of the type {schema.field(key).type} works on rows"
    return ""
