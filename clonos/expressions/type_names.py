"""Names of types as users write them: Python's types, Arrow's types, and texts such as "int64".

A type is kept as a text, so that an expression needs no pyarrow; only a nested type is kept as Arrow's object.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any, Final

from clonos.core.model.missing_names import nearest
from clonos.expressions.expression_errors import ExpressionMisused

PYTHON_TYPES: Final[dict[Any, str]] = {
    bool: "bool",
    int: "int64",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date32[day]",
    datetime: "timestamp[us, tz=UTC]",
    timedelta: "duration[us]",
}

OTHER_NAMES: Final = {
    "float64": "double",
    "float32": "float",
    "str": "string",
    "utf8": "string",
    "bytes": "binary",
    "boolean": "bool",
    "date": "date32[day]",
    "date32": "date32[day]",
    "datetime": "timestamp[us, tz=UTC]",
}
"""Other names of types, by which some know them."""

PLAIN_NAMES: Final = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float", "double", "bool", "string", "large_string", "binary", "large_binary", "date32[day]"),
)

TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=([\w/+:-]+))?\]")
DURATION: Final = re.compile(r"duration\[(s|ms|us|ns)\]")
DECIMAL: Final = re.compile(r"decimal128\((\d{1,2}), ?(-?\d{1,2})\)")


def type_name(given: Any, where: str) -> Any:
    """Returns the name of a type, or an Arrow type that has none.

    Raises: ExpressionMisused: it is no type.
    """
    if type(given) is type and given in PYTHON_TYPES:
        return PYTHON_TYPES[given]
    name = given if isinstance(given, str) else str(given)
    name = OTHER_NAMES.get(name.lower(), name)
    if name in PLAIN_NAMES or any(pattern.fullmatch(name) for pattern in (TIMESTAMP, DURATION, DECIMAL)):
        return name
    if type(given).__module__.startswith("pyarrow") and type(given).__name__.endswith("Type"):
        return given
    hint = nearest(name.lower(), (*PLAIN_NAMES, *OTHER_NAMES))
    raise ExpressionMisused(
        f"{where} gets the type {given!r:.80}",
        "which is none",
        f'{hint} Give a type of Python (int, float, str, date ...) or of Arrow, or a text such as "int64".'.strip(),
    )


def arrow_type(name: Any) -> Any:
    """Returns the Arrow type of a name that ``type_name`` has returned."""
    import pyarrow

    if not isinstance(name, str):
        return name
    if found := TIMESTAMP.fullmatch(name):
        return pyarrow.timestamp(found[1], found[2])
    if found := DURATION.fullmatch(name):
        return pyarrow.duration(found[1])
    if found := DECIMAL.fullmatch(name):
        return pyarrow.decimal128(int(found[1]), int(found[2]))
    return pyarrow.type_for_alias(name)
