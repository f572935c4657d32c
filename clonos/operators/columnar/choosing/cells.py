"""Ranks in columns, as integers. Only code for columns imports this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
from pyarrow import types

if TYPE_CHECKING:
    from numpy.typing import NDArray


def has_ranks(type_: Any) -> bool:
    """Returns whether values of this type are ranks that are compared as numbers of 64 bits."""
    if types.is_timestamp(type_):
        return bool(type_.unit != "ns")
    is_int = types.is_integer(type_) and not types.is_uint64(type_)
    is_float = types.is_float32(type_) or types.is_float64(type_)
    return bool(is_int or is_float or types.is_boolean(type_) or types.is_date32(type_))


def ranks_of(cells: Any) -> tuple[NDArray[numpy.int64], NDArray[numpy.bool_] | None]:
    """Returns integers in the order of the ranks in a column, and where there are ranks: neither nulls nor nan.

    None: everywhere.
    """
    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    has_rank = cells.is_valid().to_numpy(zero_copy_only=False) if cells.null_count else None
    if types.is_boolean(cells.type):
        cells = cells.cast(pyarrow.uint8())
    elif types.is_timestamp(cells.type):
        cells = cells.view(pyarrow.int64())
    elif types.is_date32(cells.type):
        cells = cells.view(pyarrow.int32())
    if cells.null_count:
        cells = cells.fill_null(0)
    ranks = cells.to_numpy()
    if ranks.dtype.kind != "f":
        return ranks.astype(numpy.int64, copy=False), has_rank
    is_number = ~numpy.isnan(ranks)
    if not is_number.all():
        has_rank = is_number if has_rank is None else has_rank & is_number
    bits = (ranks.astype(numpy.float64, copy=False) + 0.0).view(numpy.int64)  # -0.0 becomes 0.0
    return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF), has_rank
