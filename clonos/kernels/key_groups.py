"""Key groups of columns in native code, for whole numbers, texts, binaries and bools, and rows of several of them.

The groups are those that ``clonos.core.values`` computes from encoded keys. Other types and long keys are left to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels import choice
from clonos.kernels.arrays import fixed_values, texts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS_MAX: Final = 16


def key_groups(columns: Sequence[Any], width: int) -> NDArray[numpy.int32] | None:
    """Returns the group of each row's key among ``width``, -1 for keys of more than 127 bytes.

    None means that the extension is not in use, or that it does not know a type.
    """
    if choice.native is None or not 1 <= len(columns) <= COLUMNS_MAX:
        return None
    described = []
    for column in columns:
        if pyarrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        description = _described(column)
        if description is None:
            return None
        described.append(description)
    groups = numpy.empty(len(columns[0]), numpy.int32)
    choice.native.key_groups(tuple(described), width, groups)
    return groups


def _described(column: Any) -> tuple[str, Any, Any, bool, Any] | None:
    """Returns tag, values, data of texts, whether their offsets are large, and the validity of rows."""
    kind, types = column.type, pyarrow.types
    valid = column.is_valid().to_numpy(zero_copy_only=False).view(numpy.uint8) if column.null_count else None
    if types.is_boolean(kind):
        return "o", column.fill_null(False).to_numpy(zero_copy_only=False).view(numpy.uint8), None, False, valid
    if types.is_integer(kind):
        wide = numpy.uint64 if kind == pyarrow.uint64() else numpy.int64
        values = fixed_values(column, numpy.dtype(kind.to_pandas_dtype())).astype(wide, copy=False)
        return "u" if wide is numpy.uint64 else "i", values, None, False, valid
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if is_text or types.is_binary(kind) or types.is_large_binary(kind):
        texts = texts_of(column)
        return "s" if is_text else "b", texts.offsets, texts.data, texts.is_large, valid
    return None
