"""Requests as ``web.receive`` gives them, and the form in which they are journalled."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from clonos.connectors.journal_records import data_in, record_of
from clonos.core.values import register

CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that are neither journalled nor given to the job."""


@register(name="clonos.web.Request")
class Request(msgspec.Struct, frozen=True):
    """POST request that was received.

    ``id`` is the value of the header that tells requests apart, ``timestamp`` the time of receipt in nanoseconds since
    the Unix epoch. ``headers`` have names in lower case, and no credentials among them.
    """

    body: bytes
    id: str | None
    timestamp: int
    path: str
    query: str = ""
    headers: dict[str, str] = {}


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Request)


def journalled(request: Request) -> bytes:
    """Returns the journalled form of a request."""
    return record_of(_encoder.encode(request), request.id)


def request_in(record: bytes) -> Request:
    """Returns the request of a record."""
    return _decoder.decode(data_in(record))


def shown_headers(items: Iterable[tuple[str, str]], secret: Collection[str]) -> dict[str, str]:
    """Returns headers by their names in lower case, without those in ``secret``; repeated ones are joined by commas."""
    found: dict[str, str] = {}
    for given, value in items:
        name = given.lower()
        if name not in secret:
            found[name] = f"{found[name]}, {value}" if name in found else value
    return found
