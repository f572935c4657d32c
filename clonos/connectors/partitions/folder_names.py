"""Names of folders ``column=value``, as Hive and Spark write them, and back.

A character that a file system or a pattern could take for something else is written as ``%`` and two hexadecimal
digits. A null and an empty text are ``__HIVE_DEFAULT_PARTITION__``, which is read as null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from clonos.connectors.connector_errors import InvalidConnector, row_not_writable
from clonos.connectors.json_text import scalar_text
from clonos.connectors.object_stores.urls import name_of

NULL: Final = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES_MAX: Final = 255
"""Longest name of a folder that file systems allow."""
_ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{[\]^]""")
_CONTAINERS: Final = (bytes, bytearray, list, tuple, dict, set, frozenset)
_ALIKE_IF_EQUAL: Final = frozenset({str, int, bool, date})
"""Types of which equal values have the same text, so that the text may be remembered."""


def partition_columns(connector: str, columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the columns that ``partition_by`` names.

    Raises: InvalidConnector: a name is empty or twice there, or cannot begin the name of a folder.
    """
    names = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not name or type(name) is not str or name.startswith(".") or names.count(name) > 1:
            problem = f"partition_by={columns!r} cannot name folders"
            raise InvalidConnector(connector, problem, "Give distinct names of columns that do not begin with a dot.")
    return names


def folder_of(columns: Sequence[str], values: Sequence[Any], connector: str, index: int, row: Any) -> str:
    """Returns the folder of a row, which is ``index`` of a batch and has these values.

    Raises: RowNotWritable: a value cannot name a folder.
    """
    try:
        return "/".join([_name(column, value) for column, value in zip(columns, values, strict=True)])
    except ValueError as error:
        raise row_not_writable(connector, index, row, str(error)) from None


def is_partition(name: str) -> bool:
    """Returns whether a folder has the rows of one value of a column: ``column=value``."""
    return "=" in name and not name.startswith((".", "="))


def partition_values(path: str) -> dict[str, str | None]:
    """Returns the columns and values that the folders of a path or URL have, in their order."""
    found: dict[str, str | None] = {}
    for folder in filter(is_partition, name_of(path).split("/")[:-1]):
        column, _, value = folder.partition("=")
        found[unquote(column)] = None if value == NULL else unquote(value)
    return found


def _name(column: str, value: Any) -> str:
    return _remembered(column, value) if type(value) in _ALIKE_IF_EQUAL else _text(column, value)


def _text(column: str, value: Any) -> str:
    if isinstance(value, _CONTAINERS):
        raise ValueError(f"its {column} is a {type(value).__name__}, which cannot name a folder; partition by a text")
    text = "" if value is None else scalar_text(value)
    name = f"{_escaped(column)}={_escaped(text) or NULL}"
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise ValueError(f"its {column} has a lone surrogate, which cannot be in the name of a folder") from None
    if length > NAME_BYTES_MAX:
        raise ValueError(f"its {column} would name a folder with {length} bytes, of at most {NAME_BYTES_MAX}")
    return name


_remembered = lru_cache(maxsize=4096, typed=True)(_text)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
