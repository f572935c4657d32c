"""Digest of one row of a payload, the same however the rows around it were cut or encoded.

It is taken of the row's tree, which is read from the columns without the classes of the user: a slot takes it in its
I/O thread, where no user code runs.
"""

from __future__ import annotations

from datetime import date
from hashlib import blake2b
from typing import Any, Final, cast

from clonos.core.values import rows, tree
from clonos.core.values.elements import timed_column
from clonos.core.values.rows import Column

DIGEST_BYTES: Final = 8

_SEQUENCES: Final = {rows.TUPLES: tree.TUPLE, rows.LISTS: tree.LIST}


def row_digest(payload: bytes | memoryview, index: int) -> bytes:
    """Returns the digest of a row and of its timestamp, if it has one.

    ``index``: of the row in the payload.

    Raises: ValueMalformed, if the bytes are no valid batch; any Exception for cells that are malformed.
    """
    column, times = timed_column(payload)
    time = None if times is None else tree.lower(times[index], tree.CAREFUL, 0)
    found = tree.ENCODER.encode([time, tree_of(column, index)])
    return blake2b(found, digest_size=DIGEST_BYTES).digest()


def tree_of(column: Column, index: int) -> object:
    """Returns the tree of a cell, as ``tree.lower`` makes it of the value.

    Raises: ValueError, if the kind of the column is unknown; any Exception for other wrong bytes.
    """
    if not column.parts:
        return cast(list[Any], tree.DECODER.decode(column.data))[index]
    if column.parts[0].kind == rows.PLACE:
        place, cells = rows.place_of(column.parts[0]), column.parts[1]
        return [tree.TUPLE, tree_of(cells.parts[place], index), tree_of(cells, index)]
    parts = [tree_of(part, index) for part in column.parts]
    match column.kind:
        case rows.TUPLES | rows.LISTS:
            return [_SEQUENCES[column.kind], *parts]
        case rows.DICTS:
            return [tree.DICT, *[node for pair in zip(column.names, parts, strict=True) for node in pair]]
        case rows.RECORDS:
            name, *fields = column.names
            return [tree.RECORD, name, " ".join(fields), *parts]
        case rows.DATETIMES:
            (moment,) = rows.datetimes_of(tree.lift_zone(tree.DECODER.decode(column.data)), [cast(int, parts[0])])
            return tree.lower(moment, tree.PLAIN, 0)
        case rows.DATES:
            return tree.lower(date.fromordinal(cast(int, parts[0])), tree.PLAIN, 0)
        case rows.DECIMALS:
            return [tree.DECIMAL, parts[0]]
        case kind:
            raise ValueError(f"column kind {kind}")
