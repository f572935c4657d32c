"""Target: changes of state in columns, on an image that has what they build on."""

from __future__ import annotations

from typing import Final

import numpy
import pyarrow

from clonos.core.values import ValueMalformed
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_errors import StateMalformed
from tests.fuzz.target import Target, of_msgpack

COUNTS: Final = ColumnSpec((pyarrow.int64(),), {"n": numpy.int64, "is_odd": numpy.bool_}, {}, frozenset({"n"}))
TEXTS: Final = ColumnSpec((pyarrow.string(), pyarrow.int32()), {"last": (numpy.int64, 2), "code": "V3"})


def targets() -> list[Target]:
    """Targets of this file."""
    return [_column_state()]


def _column_state() -> Target:
    base, samples = _samples()

    def feed(data: bytes) -> None:
        image = StateImage()
        image.apply(base)
        image.apply(data)
        whole = StateBackend(image).whole()
        assert whole is not None
        again = StateImage()
        for piece in whole:
            again.apply(piece)

    return Target("column state", of_msgpack(samples), feed, (StateMalformed, ValueMalformed))


def _samples() -> tuple[bytes, list[bytes]]:
    """Returns a full piece, and further pieces that follow on it: full ones and changes."""
    pieces = []
    for full in (True, False):
        backend = StateBackend(None)
        counts, texts = backend.column_table("count/total", COUNTS), backend.column_table("last/text", TEXTS)
        rows = backend.row_store("last/rows")
        slots = counts.slots([pyarrow.array([3, None, 5, 7])])
        texts.slots([pyarrow.array(["a", None, "b"]), pyarrow.array([1, 2, None], pyarrow.int32())])
        rows.append(pyarrow.record_batch({"text": ["x", None, "y"], "items": [[1], [], None]}))
        pieces.append(backend.changes(True))
        counts.touch(slots[:2])
        counts.values["n"][slots[:2]] = 9
        counts.remove(slots[3:])
        texts.remove(texts.slots([pyarrow.array(["c", "b"]), pyarrow.array([4, None], pyarrow.int32())])[1:])
        rows.remove(numpy.array([1]))
        rows.append(pyarrow.record_batch({"text": ["z"], "items": [[2, 3]]}))
        pieces.append(backend.changes(full))
    return pieces[0], pieces
