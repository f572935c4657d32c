"""Keys of a batch of columns: their key groups, and their values as Python objects.

The group of a key in columns is that of the same key in rows: streams of both can be joined. Native kernels compute it
from the columns, where they know the types; otherwise Python does work per distinct key, Arrow and numpy per row. The
first batch of columns imports both, never this module.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, Final

from clonos.core.values.column_rows import values_of_column
from clonos.core.values.key_encoding import encode_key
from clonos.core.values.keys import Router, key_group, state_keys
from clonos.kernels.record_batch import RecordBatch

COLUMN_KEYS_MAX: Final = 1 << 20
"""Number of distinct keys at which a sender forgets their groups."""


class KeyGroups:
    """Key groups of the rows of batches, computed once per distinct key that the sender remembers."""

    __slots__ = ("_groups", "_index", "_keys_max", "_max_parallelism")

    def __init__(self, max_parallelism: int, keys_max: int = COLUMN_KEYS_MAX) -> None:
        self._max_parallelism, self._keys_max = max_parallelism, keys_max
        self._index: Any = None  # a KeyIndex of the key columns
        self._groups: Any = None  # by slot of the index, a numpy array that grows

    def __len__(self) -> int:
        """Returns the number of remembered keys."""
        return 0 if self._index is None else len(self._index)

    def of(self, columns: list[Any]) -> Any:
        """Returns the group of each row as a numpy array. The key is the value of one column, a tuple of several.

        Raises: KeyUnsupported, if a value cannot be a key; ValueBeyondLimit, if a key is too large.
        """
        import numpy

        from clonos.kernels.arrays import without_views
        from clonos.kernels.key_groups import key_groups

        columns = [without_views(column) for column in columns]
        groups = key_groups(columns, self._max_parallelism)
        if groups is not None:
            if len(groups) and groups.min() < 0:
                long = numpy.flatnonzero(groups < 0)
                groups[long] = self._computed(values_of([column.take(long) for column in columns]))
            return groups
        index = self._index_for([_value_type(column) for column in columns])
        if index is None:
            return numpy.array(self._computed(values_of(columns)), numpy.int32)
        before = len(index)
        slots = index.add(columns)
        if len(index) > before:
            try:
                new = self._computed(values_of(index.columns(before)))
            except BaseException:
                self._index = None  # it has keys without a group
                raise
            if len(index) > len(self._groups):
                self._groups = numpy.concatenate((self._groups[:before], numpy.empty(len(index), numpy.int32)))
            self._groups[before : len(index)] = new
        return self._groups[slots]

    def _index_for(self, types: list[Any]) -> Any:
        """Returns the index for columns of these types, or None if no index has them."""
        index = self._index
        if index is not None and index.types == tuple(types) and len(index) < self._keys_max:
            return index
        import numpy

        from clonos.kernels.packed_keys import KeyIndex

        self._index, self._groups = None, numpy.empty(0, numpy.int32)
        try:
            self._index = KeyIndex(types)
        except TypeError:
            return None
        return self._index

    def _computed(self, keys: list[Any]) -> list[int]:
        return list(map(key_group, map(encode_key, state_keys(keys)), repeat(self._max_parallelism)))


def split_columns(router: Router, batch: RecordBatch, groups: Any) -> list[Any]:
    """Returns the rows of a RecordBatch for each task of the router in their order, as slices of one batch."""
    from clonos.kernels.partition import partition

    return partition(batch, router.tasks_of(groups), router.parallelism)


def python_keys(batch: RecordBatch, key: str | tuple[str, ...]) -> list[Any]:
    """Returns the key of each row of a batch: the value of a column, or a tuple of those of several."""
    return values_of([batch.column(name) for name in ([key] if isinstance(key, str) else key)])


def values_of(columns: list[Any]) -> list[Any]:
    """Returns the value of each row of one column, or a tuple of those of several."""
    if len(columns) == 1:
        return values_of_column(columns[0])
    return list(zip(*[values_of_column(column) for column in columns], strict=True))


def _value_type(column: Any) -> Any:
    import pyarrow

    return column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
