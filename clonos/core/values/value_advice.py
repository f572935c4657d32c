"""Advice for values that cannot be encoded, composed only when an error is about to be raised."""

from __future__ import annotations

import datetime
import decimal
import types
import uuid

from clonos.core.values import type_registry

PARENTS = (
    *(bool, int, float, str, bytes, list, tuple, dict, set, frozenset),
    *(datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID),
)

BY_MODULE = {
    "clonos": "It describes a job. Expressions such as col(...) stand in select, with_columns and filter.",
    "numpy": "Use .item() for a scalar, .tolist() for an array, or map_batches for whole columns.",
    "pandas": "Use .to_dict('records') for a frame, .to_pydatetime() for a timestamp, or map_batches for columns.",
    "pyarrow": "Use .as_py() for a scalar, .to_pylist() for an array, or map_batches for whole columns.",
}


NOT_RUN_YET: dict[type, str] = {
    types.GeneratorType: "Use flat_map, which gives every item that the function yields, or return a list.",
    types.CoroutineType: "Write the function with def: steps await nothing. map_async makes several calls at once.",
}


def advice(cls: type) -> str:
    """Returns one or two sentences on how to make a value of this type encodable."""
    if cls in NOT_RUN_YET:
        return NOT_RUN_YET[cls]
    library = cls.__module__.partition(".")[0]
    if library in BY_MODULE:
        return BY_MODULE[library]
    if type_registry.is_registrable(cls):
        return "Register its class: put @register (from clonos import register) above it."
    for parent in PARENTS:
        if issubclass(cls, parent):
            name = parent.__name__
            return f"Only {name} itself can travel, no subclass of it: convert the value with {name}(...)."
    if cls is bytearray or cls is memoryview:
        return "Convert it with bytes(...)."
    return (
        "Supported are None, bool, int, float, str, bytes, list, tuple, dict, set, datetime, date, time, timedelta,"
        " Decimal and UUID, and objects of registered dataclasses, NamedTuples, enums and Structs. Convert it to one of"
        " these, and keep functions, connections and open files out of values."
    )
