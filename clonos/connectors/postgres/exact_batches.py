"""Which batches of columns a table of PostgreSQL holds as they are, without a look at each value."""

from __future__ import annotations

import re
from typing import Any, Final

from clonos.connectors.tables.exact_columns import TableColumn

WHOLE: Final = {"smallint": 16, "integer": 32, "bigint": 64}
_NUMERIC: Final = re.compile(r"numeric\((\d+),(-?\d+)\)")
SECONDS_BEFORE, SECONDS_END = -62_135_596_800, 253_402_300_800
"""The years 1 to 9999, in seconds since the Unix epoch."""


def is_held(column: Any, target: TableColumn) -> bool:
    """Returns whether a column holds all values of a ``pyarrow.Array``; False if each has to be looked at."""
    from pyarrow import compute, types

    kind, name = column.type, target.type_name
    if target.is_required and column.null_count:
        return False
    if types.is_integer(kind):
        bits = kind.bit_width + types.is_unsigned_integer(kind)
        return name == "numeric" or WHOLE.get(name, 0) >= bits
    if types.is_string(kind) or types.is_large_string(kind):
        return name in ("text", "character varying") and not compute.any(compute.match_substring(column, "\0")).as_py()
    if types.is_decimal(kind):
        found = _NUMERIC.fullmatch(name)
        if found is None:
            return name == "numeric"
        digits, scale = int(found[1]), int(found[2])
        return bool(kind.scale <= scale and kind.precision - kind.scale <= digits - scale)
    if types.is_timestamp(kind):
        wanted = "timestamp with time zone" if kind.tz else "timestamp without time zone"
        scale = {"s": 1, "ms": 1_000, "us": 1_000_000}.get(kind.unit, 0)
        return name == wanted and bool(scale) and _is_within(column, "int64", scale)
    if types.is_date32(kind):
        return name == "date" and _is_within(column, "int32", 1 / 86_400)
    plain = {"double": "double precision", "float": "real", "bool": "boolean"}
    return name == plain.get(str(kind))


def _is_within(column: Any, width: str, per_second: float) -> bool:
    """Returns whether all instants are in the years that Python has."""
    import pyarrow
    from pyarrow import compute

    ends = compute.min_max(column.view(getattr(pyarrow, width)()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    return first is None or (first >= SECONDS_BEFORE * per_second and last < SECONDS_END * per_second)
