"""Batches from outside, as steps on columns take them: names that differ, and types that all of Arrow's functions take.

Views of texts, as Polars has them, and run-end encoded columns cannot be taken by row. They become texts, binaries and
plain values. Views of lists stay: they can be taken, and Arrow casts them to lists with wrong offsets. Only code for
columns imports this module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow
from pyarrow import compute, types

from clonos.core.model.errors import JobError
from clonos.kernels.record_batch import RecordBatch


class ColumnRepeated(JobError):
    """Two columns of a batch have one name, or two fields within a column."""

    name: str
    names: str

    def __str__(self) -> str:
        return (
            f"a batch has two columns with the name {self.name!r} (its columns are {self.names}), and rows would lose"
            " one of them. Give each column its own name."
        )


class PlainColumns:
    """Maker of plain batches, which remembers the schema of the last one."""

    def __init__(self) -> None:
        self._given: Any = None
        self._plain: Any = None

    def of(self, batch: RecordBatch) -> Any:
        """Returns the batch with plain columns.

        Raises: ColumnRepeated: two columns have one name.
        """
        if batch.schema != self._given:
            check_names(batch.schema)
            self._plain, self._given = plain_schema(batch.schema), batch.schema
        if self._plain is self._given:
            return batch
        columns = map(_cast, batch.columns, self._plain.types)
        return pyarrow.RecordBatch.from_arrays(list(columns), schema=self._plain)


def check_names(schema: Any) -> None:
    """Checks that the names of columns differ, and those of fields within each.

    Raises: ColumnRepeated: two are equal.
    """
    if name := repeated_name(schema):
        raise ColumnRepeated(name, ", ".join(schema.names))


def repeated_name(fields: Iterable[Any]) -> str:
    """Returns a name that two columns have, or two fields within a column, such as ``a.b``; "" if all differ."""
    listed = list(fields)
    counts = Counter(field.name for field in listed)
    for field in listed:
        if counts[field.name] > 1:
            return str(field.name)
        kind = field.type
        if name := repeated_name(kind.field(place) for place in range(kind.num_fields)):
            return f"{field.name}.{name}"
    return ""


def plain_schema(schema: Any) -> Any:
    """Returns the schema of plain columns, the given one if they are plain."""
    plain = [plain_type(kind) for kind in schema.types]
    if plain == schema.types:
        return schema
    fields = [field.with_type(kind) for field, kind in zip(schema, plain, strict=True)]
    return pyarrow.schema(fields, schema.metadata)


def plain_type(kind: Any) -> Any:
    """Returns a type without views and runs, of columns and of what is within them."""
    if types.is_string_view(kind):
        return pyarrow.string()
    if types.is_binary_view(kind):
        return pyarrow.binary()
    if types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pyarrow.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return pyarrow.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pyarrow.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_list(kind):
        return pyarrow.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind):
        return pyarrow.large_list(_plain_field(kind.value_field))
    return kind


def _plain_field(field: Any) -> Any:
    return field.with_type(plain_type(field.type))


def _cast(column: Any, kind: Any) -> Any:
    if column.type == kind:
        return column
    if types.is_run_end_encoded(column.type):
        column = compute.run_end_decode(column)
    return column.cast(kind)
