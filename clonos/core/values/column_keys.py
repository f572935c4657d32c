"""Keys of a batch of columns: each distinct key once as a Python object, and a number per row.

Python does work per distinct key, Arrow and numpy per row. The first batch of columns imports both, never this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.core.values.keys import state_keys


class ColumnKeys(Sequence[Any]):
    """Keys of the rows of a batch: row i has the key ``distinct[numbers[i]]``.

    Distinct keys are in the order of their first rows.
    """

    __slots__ = ("distinct", "numbers", "stored")

    def __init__(self, distinct: list[Any], stored: list[Any], numbers: Any) -> None:
        """Takes the distinct keys, their state keys in ``stored``, and the rows' numbers as a numpy array."""
        self.distinct, self.stored, self.numbers = distinct, stored, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        return self.distinct[self.numbers[index]]

    def tolist(self) -> list[Any]:
        """Returns the key of each row."""
        return list(map(self.distinct.__getitem__, self.numbers.tolist()))


def keys_of(column: Any) -> ColumnKeys | list[Any]:
    """Returns the keys in a column of a RecordBatch, as a list if Arrow would merge keys that differ in Python.

    Raises: KeyUnsupported, if a value cannot be a key; ValueBeyondLimit, if a key is too large.
    """
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # its dictionary may hold duplicates and unused values
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
    except pyarrow.ArrowNotImplementedError:  # lists and structs
        return column.to_pylist()  # type: ignore[no-any-return]
    distinct = encoded.dictionary.to_pylist()
    stored = state_keys(distinct)
    kind = pyarrow.types
    differ = kind.is_string(column.type) or kind.is_integer(column.type)  # distinct in Arrow means distinct in Python
    if not differ and len({*stored}) != len(stored):  # 64-bit dates within one day
        return column.to_pylist()  # type: ignore[no-any-return]
    return ColumnKeys(distinct, stored, encoded.indices.to_numpy())


def running_counts(keys: ColumnKeys, before: list[int]) -> tuple[Any, list[int]]:
    """Returns how often each row's key has occurred so far (a numpy array), and the new total per distinct key.

    ``before`` has the totals before these rows.
    """
    import numpy

    from clonos.kernels import grouped

    totals = numpy.array(before, numpy.int64)
    running = grouped.running_counts(totals, keys.numbers)
    return running, totals.tolist()
