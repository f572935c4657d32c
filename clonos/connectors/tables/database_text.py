"""Name of the database of a sink in words, without user, password or options, which a checkpoint must not hold."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

URL: Final = re.compile(r"(?P<scheme>[\w.+-]+://)(?:[^@/?#]*@)?(?P<place>[^@/?#]*(?:/[^@?#]*)?)(?:\?.*)?")
PAIR: Final = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s;]*)")
DSN_NAMES: Final = ("dsn", "conninfo", "uri", "url")
PLACE_NAMES: Final = ("host", "hostaddr", "hostname", "server", "port", "service", "dbname", "database", "db")
FILE_DRIVERS: Final = frozenset({"sqlite3", "_sqlite3", "duckdb", "_duckdb"})
"""Modules whose ``connect`` takes the path of a file."""


def database_text(connect: Callable[[], Any]) -> str:
    """Returns which database a function connects to; "" if that cannot be told.

    Only a ``functools.partial`` of a driver's ``connect`` shows it, by a URL, a DSN, the path of a file, or arguments
    such as host, port and database.
    """
    if not isinstance(connect, partial):
        return ""
    found = next((connect.keywords[name] for name in DSN_NAMES if name in connect.keywords), None)
    if found is None and connect.args:
        found = connect.args[0]
    if isinstance(found, (str, os.PathLike)):
        module = str(getattr(connect.func, "__module__", "")).partition(".")[0]
        return _text_of(os.fspath(found), module in FILE_DRIVERS)
    if "database" in connect.keywords and str(getattr(connect.func, "__module__", "")) in FILE_DRIVERS:
        return _text_of(os.fspath(connect.keywords["database"]), True)
    return _place(connect.keywords)


def place_of(dsn: str) -> str:
    """Returns the place that a URL or a DSN names; "" if that cannot be told."""
    return _text_of(dsn, False)


def _text_of(text: str, is_path: bool) -> str:
    if is_path:
        return text if text.startswith((":", "file:")) else os.path.realpath(os.path.expanduser(text))
    if "://" in text:
        match = URL.fullmatch(text)
        return "" if match is None else match["scheme"] + match["place"]
    return _place({name.lower(): value.strip("'") for name, value in PAIR.findall(text)})


def _place(named: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={named[name]}" for name in PLACE_NAMES if name in named)
