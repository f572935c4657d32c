"""The keys of a batch of columns: each distinct one once as an object of Python, and a number for each row.

Work in Python is per distinct key, work per row is that of Arrow and numpy. Both are imported by the first batch of
columns, never by this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.core.values.keys import Router, state_keys


class ColumnKeys(Sequence[Any]):
    """Row i has the key ``distinct[numbers[i]]``. Distinct keys come by their first row, and differ as keys."""

    __slots__ = ("distinct", "numbers", "stored")

    def __init__(self, distinct: list[Any], stored: list[Any], numbers: Any) -> None:
        """``stored``: the state keys of ``distinct``. ``numbers``: an array of numpy."""
        self.distinct, self.stored, self.numbers = distinct, stored, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        return self.distinct[self.numbers[place]]

    def tolist(self) -> list[Any]:
        """The key of each row."""
        return list(map(self.distinct.__getitem__, self.numbers.tolist()))


def keys_of(column: Any) -> ColumnKeys | list[Any]:
    """The keys in a column of a RecordBatch; a list where it has values that Arrow cannot tell apart as keys differ.

    KeyUnsupported, ValueBeyondLimit.
    """
    import numpy
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # its dictionary may hold a value twice, or one that no row has
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
    except pyarrow.ArrowNotImplementedError:  # lists and structs
        return column.to_pylist()  # type: ignore[no-any-return]
    distinct = encoded.dictionary.to_pylist()
    stored = state_keys(distinct)
    kind = pyarrow.types
    differ = kind.is_string(column.type) or kind.is_integer(column.type)  # in Python as they do in Arrow
    if not differ and len({*stored}) != len(stored):  # 64-bit dates within one day
        return column.to_pylist()  # type: ignore[no-any-return]
    numbers = encoded.indices.to_numpy()
    if len(distinct) <= 1 << 15:
        numbers = numbers.astype(numpy.int16)  # which numpy sorts in linear time
    return ColumnKeys(distinct, stored, numbers)


def split_columns(router: Router, batch: Any, keys: Sequence[Any], width: int) -> list[Any]:
    """The rows of a RecordBatch for each of ``width`` tasks, in their order: slices of one sorted batch."""
    import numpy
    import pyarrow

    if isinstance(keys, ColumnKeys):
        targets = router.targets(keys.stored)[keys.numbers]
    else:
        targets = router.targets(state_keys(list(keys)))
    ordered = batch.take(pyarrow.array(numpy.argsort(targets, kind="stable")))
    ends = numpy.cumsum(numpy.bincount(targets, minlength=width)).tolist()
    return [ordered.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False)]


def running_counts(keys: ColumnKeys, before: list[int]) -> tuple[Any, list[int]]:
    """Per row, how often its key has come so far, as an array of numpy; and per distinct key, how often in all.

    ``before``: per distinct key, how often it had come before these rows.
    """
    import numpy

    numbers = keys.numbers
    inside = numpy.bincount(numbers, minlength=len(before))
    totals = numpy.array(before, numpy.int64) + inside
    running = numpy.empty(len(numbers), numpy.int64)
    # Rows with the same key side by side, in their order: each run counts up to its key's total.
    ends = numpy.cumsum(inside)
    running[numpy.argsort(numbers, kind="stable")] = numpy.arange(1, len(numbers) + 1) + numpy.repeat(
        totals - ends, inside
    )
    return running, totals.tolist()
