"""Ranks in columns, as numbers. Only code for columns imports this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow
from pyarrow import types

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rank_storage(type_: Any) -> Any:
    """Returns the numpy type of ranks from a column of this type; None if they are not numbers of 64 bits."""
    if types.is_float32(type_) or types.is_float64(type_):
        return numpy.float64
    if types.is_timestamp(type_):
        return numpy.int64 if type_.unit != "ns" else None
    is_int = types.is_integer(type_) and not types.is_uint64(type_)
    return numpy.int64 if is_int or types.is_boolean(type_) or types.is_date32(type_) else None


def ranks_of(cells: Any) -> tuple[NDArray[Any], NDArray[numpy.bool_] | None]:
    """Returns the ranks in a column, and where there are ranks: neither nulls nor nan; None for everywhere."""
    if types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    storage = rank_storage(cells.type)
    has_rank = cells.is_valid().to_numpy(zero_copy_only=False) if cells.null_count else None
    if types.is_boolean(cells.type):
        cells = cells.cast(pyarrow.uint8())
    elif types.is_timestamp(cells.type):
        cells = cells.view(pyarrow.int64())
    elif types.is_date32(cells.type):
        cells = cells.view(pyarrow.int32())
    if cells.null_count:
        cells = cells.fill_null(0)
    ranks = cells.to_numpy().astype(storage, copy=False)
    if storage is numpy.float64:
        is_number = ~numpy.isnan(ranks)
        if not is_number.all():
            has_rank = is_number if has_rank is None else has_rank & is_number
    return ranks, has_rank
