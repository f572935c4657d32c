"""Values of columns as Python objects, or as what keeps a row from being read.

The server sends text. What Python cannot hold exactly (infinity, years BC and above 9999, 24:00, an interval with
months, a number of JSON that a float would round) is an error of its row, whose value stays the server's text for the
error output.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from clonos.connectors.json_keys import unique
from clonos.connectors.json_text import exact_float
from clonos.connectors.postgres.vectors import numbers_of
from clonos.connectors.value_depth import check_depth
from clonos.operators.row_errors import RecordError

TEXT_TYPES: Final = ("inet", "cidr", "macaddr", "macaddr8")
"""Types whose Python objects streams cannot carry: they are read as text, as are ranges."""

VECTOR_TYPES: Final = """
SELECT pg_type.oid::int8 FROM pg_type JOIN pg_depend ON objid = pg_type.oid AND classid = 'pg_type'::regclass
JOIN pg_extension ON pg_extension.oid = refobjid AND refclassid = 'pg_extension'::regclass
WHERE deptype = 'e' AND extname = 'vector' AND typname IN ('vector', 'halfvec')
"""
"""Types of pgvector, in whichever schema."""

_INTERVAL: Final = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?"
)
_REASON_CHARACTERS_MAX: Final = 200


class ValueUnreadable(RecordError):
    """Python has no value that equals one of a row."""

    place: str
    row: str
    field: str
    value: str
    reason: str
    advice: str

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        return (
            f"{self.place}, row {self.row}: the value {self.value!r:.100} of the column {self.field} cannot be read:"
            f" {self.reason}. {self.advice}"
        )


class Unreadable(Exception):
    """A text of the server is no value of Python; the message says why."""


def interval(text: str) -> timedelta:
    """Returns an interval, which the server writes in ISO 8601.

    Raises: Unreadable: it has months, which are of no fixed length, or timedelta is too short for it.
    """
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise Unreadable("a timedelta cannot hold it")
    years, months, days, hours, minutes = (int(part or 0) for part in found.groups()[:5])
    sign, seconds, fraction = found.groups()[5:]
    if years or months:
        raise Unreadable("it has years or months, whose length is not fixed, and a timedelta has none")
    micros = int(seconds or 0) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    try:
        whole = timedelta(days=days, hours=hours, minutes=minutes)
        return whole + timedelta(microseconds=-micros if sign else micros)
    except OverflowError:
        raise Unreadable("a timedelta cannot hold it") from None


def json_value(text: str | bytes) -> Any:
    """Returns a value of json or jsonb.

    Raises: Unreadable: a float would round a number of it, it is deeper than a value may be, or has a key twice.
    """
    import json

    try:
        check_depth(text)
        return json.loads(text, parse_float=exact_float, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise Unreadable(_reason(error)) from None


def register(connection: Any) -> None:
    """Sets how a connection reads values, also those in arrays and in lists of its values."""
    import psycopg
    from psycopg.adapt import Buffer, Loader
    from psycopg.types.multirange import MultirangeInfo
    from psycopg.types.range import RangeInfo

    class IntervalLoader(Loader):
        def load(self, data: Buffer) -> Any:
            return interval(bytes(data).decode())

    class JsonLoader(Loader):
        def load(self, data: Buffer) -> Any:
            return json_value(bytes(data))

    adapters = connection.adapters
    adapters.register_loader("interval", IntervalLoader)
    for name in ("json", "jsonb"):
        adapters.register_loader(name, JsonLoader)
    text = psycopg.types.string.TextLoader
    for name in TEXT_TYPES:
        adapters.register_loader(name, text)
    for info in adapters.types:
        if isinstance(info, (RangeInfo, MultirangeInfo)):
            adapters.register_loader(info.oid, text)


def register_vectors(connection: Any, asking: Any) -> None:
    """Sets how a connection reads vectors, whose types ``asking`` looks up: another connection, or the same."""
    from psycopg.adapt import Buffer, Loader

    class VectorLoader(Loader):
        def load(self, data: Buffer) -> Any:
            return numbers_of(bytes(data).decode())

    for (oid,) in asking.execute(VECTOR_TYPES).fetchall():
        connection.adapters.register_loader(oid, VectorLoader)


class Values:
    """Conversion of texts of the server, one at a time."""

    def __init__(self, connection: Any) -> None:
        from psycopg.adapt import Transformer
        from psycopg.pq import Format

        self._transformer, self._text = Transformer(connection), Format.TEXT

    def value(self, type_oid: int, text: bytes) -> Any:
        """Returns a value.

        Raises: Unreadable: Python has none that equals it.
        """
        try:
            return self._transformer.get_loader(type_oid, self._text).load(text)
        except Unreadable:
            raise
        except Exception as error:  # noqa: BLE001  psycopg raises DataError, and what its parsers raise
            raise Unreadable(_reason(error)) from None


def _reason(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".")[:_REASON_CHARACTERS_MAX]
