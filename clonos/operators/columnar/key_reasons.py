"""Why keys of columns are compared in rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def key_reason(keys: Sequence[str], schema: Any) -> str:
    """Returns why a step that compares these columns works on rows for columns of these types; "" if it does not."""
    from clonos.operators.columnar.running.stored_keys import are_keys

    for key in keys:
        if key not in schema.names:
            return f"there is no column {key!r}"
        if not are_keys(schema, (key,)):
            return f"a key of the type {schema.field(key).type} works on rows"
    return ""
