"""Answers of an endpoint that is polled: the records in them, and the cursor of the next request."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import msgspec

from clonos.connectors.json_text import without_mark
from clonos.connectors.web.web_errors import AnswerMalformed, PollRefused
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.http.http_client import HttpReply, HttpRequest
from clonos.io.http.http_errors import redacted_url
from clonos.io.http.http_requests import first_hop

NEXT_LINK: Final = "Link: rel=next"
"""``cursor=`` of endpoints whose header ``Link`` names the next page."""

SHOWN_CHARACTERS: Final = 200
_CHARSET: Final = re.compile(r'(?i);\s*charset\s*=\s*"?([\w.:-]+)')
_LINK: Final = re.compile(r'<([^>]*)>((?:\s*;\s*[\w*]+\s*=\s*(?:"[^"]*"|[^\s;,"]+))*)')
_IS_NEXT: Final = re.compile(r'(?i);\s*rel\s*=\s*(?:"(?:[^"]*\s)?next(?:\s[^"]*)?"|next(?![^\s;]))')

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw])
_values: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()


class Reply(msgspec.Struct, frozen=True):
    """Answer of an endpoint, as a function of ``cursor=`` gets it. ``headers`` have names in lower case."""

    status: int
    url: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Returns the body as a value of JSON.

        Raises: AnswerMalformed: it is no JSON.
        """
        try:
            return _values.decode(json_of(self))
        except DECODE_ERRORS as error:
            raise malformed(self, f"is no JSON ({error})") from None


class Page(NamedTuple):
    """Records of an answer, and the cursor of the request after it, None if it has none."""

    records: list[bytes]
    cursor: str | None


PageFunction = Callable[[Reply], tuple[Sequence[Any], str | None]]


class Paging(msgspec.Struct, frozen=True):
    """Options of ``web.poll`` that say where an answer has its records and the cursor of the next request."""

    records: str | None
    cursor: str | PageFunction | None
    parameter: str | None
    start: str | None
    is_bounded: bool
    identity: str | None


def page_of(reply: Reply, paging: Paging) -> Page:
    """Returns the records and the next cursor of an answer.

    Raises: AnswerMalformed: they are not where they should be.
    """
    cursor = paging.cursor
    if callable(cursor):
        found, following = cursor(reply)
        return Page([each if type(each) is bytes else msgspec.json.encode(each) for each in found], following)
    if not reply.body:
        return Page([], next_link(reply) if cursor == NEXT_LINK else None)
    elements = _list_at(reply, paging.records)
    if cursor is None:
        return Page(elements, None)
    return Page(elements, next_link(reply) if cursor == NEXT_LINK else _text_at(reply, cursor))


def identity_at(record: bytes, path: str, url: str) -> bytes:
    """Returns the JSON of a field of a record.

    Raises: AnswerMalformed: the record has no such field.
    """
    found = field_at(record, path)
    if found is None:
        raise AnswerMalformed(url, f"has a record without the field {path} of identity=: {_shown(record)}")
    return found


def field_at(record: bytes, path: str) -> bytes | None:
    """Returns the JSON of a field of a record; None if it is null or not there."""
    try:
        found = _at(record, path)
    except DECODE_ERRORS:
        return None
    return None if found == b"null" else found


def next_link(reply: Reply) -> str | None:
    """Returns the URL of the header ``Link`` with rel="next"."""
    for url, parameters in _LINK.findall(reply.headers.get("link", "")):
        if _IS_NEXT.search(parameters):
            return str(url)
    return None


def url_after(url: str, cursor: str | None, parameter: str | None) -> str:
    """Returns the URL of the request after a cursor. ``parameter``: that has it; None: the cursor is a URL.

    Raises: PollRefused: the next page is at another server, which must not get the headers of this one.
    """
    if cursor is None:
        return url
    if parameter is not None:
        parts = urlsplit(url)
        query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != parameter]
        return urlunsplit(parts._replace(query=urlencode([*query, (parameter, cursor)])))
    following = urljoin(url, cursor)
    if first_hop(HttpRequest("GET", following)).origin != first_hop(HttpRequest("GET", url)).origin:
        reason = f"its next page is at another server, {redacted_url(following)}"
        raise PollRefused(redacted_url(url), reason, "Give the URL of that server, if it may have the headers.")
    return following


def reply_of(found: HttpReply) -> Reply:
    """Returns the answer as functions of the user see it."""
    headers: dict[str, str] = {}
    for name, value in found.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Reply(found.status_code, found.url, headers, without_mark(found.body))


def malformed(reply: Reply, reason: str) -> AnswerMalformed:
    """Returns the error of an answer, which shows how it begins."""
    return AnswerMalformed(redacted_url(reply.url), f"{reason}: {_shown(reply.body)}")


def json_of(reply: Reply) -> bytes:
    """Returns the body in UTF-8 without a byte order mark, also if its header or its mark names another encoding.

    Bytes that are not in that encoding stay as they are: their records are malformed.
    """
    body = without_mark(reply.body)
    named = _CHARSET.search(reply.headers.get("content-type", ""))
    encoding = (
        "utf-16" if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else named[1] if named else "utf-8"
    )
    try:
        return body if encoding.lower() in ("utf-8", "utf8") else body.decode(encoding).encode()
    except (LookupError, UnicodeError):
        return body


def _list_at(reply: Reply, path: str | None) -> list[bytes]:
    found = _field(reply, path) if path else json_of(reply)
    try:
        return [bytes(element) for element in _elements.decode(found or b"")]
    except DECODE_ERRORS:
        where = f"has no array in the field {path} of records=" if path else "is no array of JSON, so name its field"
        raise malformed(reply, where) from None


def _text_at(reply: Reply, path: str) -> str | None:
    """Returns a text or number of a field; None for null, "" and a field that is not there."""
    found = _field(reply, path)
    value = None if found is None else _values.decode(found)
    if value is None or value == "":
        return None
    if type(value) not in (str, int):
        raise malformed(reply, f"has no text or integer in the field {path} of cursor=")
    return str(value)


def _field(reply: Reply, path: str) -> bytes | None:
    try:
        return _at(json_of(reply), path)
    except DECODE_ERRORS:
        raise malformed(reply, "is no object of JSON") from None


def _at(data: bytes, path: str) -> bytes | None:
    """Returns the JSON of a field, None if there is none."""
    found = without_mark(data)
    for name in path.split("."):
        fields = _fields.decode(found)
        if name not in fields:
            return None
        found = bytes(fields[name])
    return found


def _shown(data: bytes) -> str:
    return repr(data[:SHOWN_CHARACTERS].decode("utf-8", "replace"))
