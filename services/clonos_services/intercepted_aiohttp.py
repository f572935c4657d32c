"""Requests of aiohttp inside asynchronous calls, as recorded calls.

A request of a session is recorded with its redirects: the replies on the way, and the last one with its whole body,
decompressed by the library. Streams of requests and of replies are read whole. What user code gets is built from what
was recorded, live and in a replay. The library has no public way to make a reply, so the attributes are set that its
own ``start`` sets.
"""

from __future__ import annotations

import builtins
import inspect
import io
from collections.abc import Callable, Mapping
from http.cookies import SimpleCookie
from importlib import import_module
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos.core.ports.recorder import CallRecorder
from clonos_services.calls import recorded_call_inside
from clonos_services.http_session import IDEMPOTENT_METHODS, KEY_HEADER, is_effect
from clonos_services.intercepted_http import DEPTH_MAX, described_error, rebuilt_error

STREAM_BYTES: Final = 1 << 16
"""Part of a reply that its stream passes on at once, as in the library."""

Hop = tuple[str, str, int, str | None, tuple[int, int], tuple[tuple[str, str], ...], bytes]
"""Recorded reply: method, URL, status, reason, version, headers, body. All but the last one of a request are
redirects."""


class BodyNotRecorded(JobError):
    """The body of a request cannot be recorded."""

    kind: str

    def __str__(self) -> str:
        return (
            f"the body of a request of aiohttp is a {self.kind}, which cannot be recorded: its parts have a boundary,"
            " which is another one each time. Give bytes, text, a form without files, a file or a stream, or put"
            " @service above the function that sends it."
        )


async def aiohttp_request_inside(
    recorder: CallRecorder, original: Callable[..., Any], session: Any, method: str, str_or_url: Any, **named: Any
) -> Any:
    """Answers ``ClientSession._request`` inside an asynchronous call. Raises: BodyNotRecorded."""
    aiohttp = _library("aiohttp")
    body = await _whole_body(aiohttp, session, named)
    checks = named.pop("raise_for_status", None)
    checks = session.raise_for_status if checks is None else checks
    method = method.upper()
    url = _full_url(session, str_or_url, named.get("params"))
    families = aiohttp, builtins
    is_sent = False

    async def perform(key: str) -> object:
        nonlocal is_sent
        is_sent = True
        try:
            sent = {**named, "headers": _keyed(session, named.get("headers"), key), "raise_for_status": False}
            reply = await original(session, method, str_or_url, **sent)
            async with reply:
                data = await reply.read()
                return [*(_hop(each, b"") for each in reply.history), _hop(reply, data)], None, None
        except Exception as error:  # noqa: BLE001  the library's own, which user code gets live and in a replay
            connection = getattr(error, "_conn_key", None)
            place = None if connection is None else (connection.host, connection.port, connection.is_ssl)
            return None, described_error(error, families, DEPTH_MAX), place

    recorded: Any = await recorded_call_inside(
        recorder,
        f"aiohttp.{method.lower()}",
        (method, str(url), body),
        perform,
        effect=is_effect(method, str(url)),
        is_repeatable=method in IDEMPOTENT_METHODS,
    )
    hops, failure, place = recorded
    if failure is not None:
        info = _request_info(session, url, method, named.get("headers"))
        raise _whole_error(rebuilt_error(failure, families), info, place)
    replies = [_reply(session, hop, named.get("headers")) for hop in hops]
    if not is_sent:
        for each in replies:
            _keep_cookies(session, each)
    reply = replies[-1]
    reply._history = tuple(replies[:-1])
    if callable(checks):
        await checks(reply)
    elif checks:
        reply.raise_for_status()
    return reply


def _library(name: str) -> Any:
    """Returns a module of a library that has called this one."""
    return import_module(name)


def _hop(reply: Any, data: bytes) -> Hop:
    headers = tuple(
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape")) for name, value in reply.raw_headers
    )
    return reply.method, str(reply.url), reply.status, reply.reason, tuple(reply.version), headers, data


# ---------------------------------------------------------------------- requests


async def _whole_body(aiohttp: Any, session: Any, named: dict[str, Any]) -> bytes | None:
    """Returns the body of a request as bytes, and lets the library send these. Raises: BodyNotRecorded."""
    if named.get("json") is not None:
        encoded = (getattr(session, "_json_serialize_bytes", None) or session.json_serialize)(named["json"])
        return encoded if isinstance(encoded, bytes) else str(encoded).encode()
    data = named.get("data")
    if data is None:
        return None
    payload = _payload(aiohttp, data)
    value = getattr(payload, "_iter", None) or payload._value
    content: Any
    if hasattr(value, "__aiter__") or hasattr(value, "__anext__"):
        content = b"".join([bytes(chunk) async for chunk in value])
    else:
        content = value.read() if hasattr(value, "read") else value
    whole = content.encode() if isinstance(content, str) else bytes(content)
    named["data"] = aiohttp.payload.BytesIOPayload(io.BytesIO(whole), content_type=payload.content_type)
    return whole


def _payload(aiohttp: Any, data: Any) -> Any:
    """Returns what the library makes of a body. Raises: BodyNotRecorded: a form with files, or another multipart."""
    form = data if isinstance(data, aiohttp.FormData) else None
    if isinstance(data, (Mapping, list, tuple)):
        form = aiohttp.FormData(data)
    if isinstance(data, aiohttp.MultipartWriter) or (form is not None and form.is_multipart):
        raise BodyNotRecorded(type(data).__name__)
    if form is not None:
        return form()
    is_payload = isinstance(data, aiohttp.Payload)
    return data if is_payload else aiohttp.payload.PAYLOAD_REGISTRY.get(data, disposition=None)


def _full_url(session: Any, str_or_url: Any, params: Any) -> Any:
    """Returns the URL of a request, as the library makes it."""
    url = session._build_url(str_or_url)
    return url.extend_query(params) if params else url


def _keyed(session: Any, headers: Any, key: str) -> Any:
    sent = _headers(headers)
    if KEY_HEADER not in sent and KEY_HEADER not in session.headers:
        sent["Idempotency-Key"] = key
    return sent


def _headers(given: Any) -> Any:
    return _library("multidict").CIMultiDict(given or ())


def _request_info(session: Any, url: Any, method: str, headers: Any) -> Any:
    sent = _headers(session.headers)
    sent.update(_headers(headers))
    return _library("aiohttp").RequestInfo(
        url.with_fragment(None), method, _library("multidict").CIMultiDictProxy(sent), url
    )


# ---------------------------------------------------------------------- replies


class _Sent:
    """Writer of a request that has been sent."""

    output_size = 0


def _reply(session: Any, hop: Hop, sent: Any) -> Any:
    """Returns a reply of the session's class. ``sent``: headers of the request."""
    streams, multidict = _library("aiohttp.streams"), _library("multidict")
    method, place, status, reason, version, headers, data = hop
    loop, url = session._loop, _library("yarl").URL(place)
    info = _request_info(session, url, method, sent)
    values = {
        "timer": _library("aiohttp.helpers").TimerNoop(),
        "request_info": info,
        "traces": [],
        "loop": loop,
        "session": session,
    }
    values["stream_writer"] = _Sent()
    cls = session._response_class
    wanted = [each.name for each in inspect.signature(cls).parameters.values() if each.kind is each.KEYWORD_ONLY]
    reply = cls(method, url, **{name: values.get(name) for name in wanted})
    reply.status, reply.reason, reply.version = status, reason, _library("aiohttp").HttpVersion(*version)
    reply._headers = multidict.CIMultiDictProxy(multidict.CIMultiDict(headers))
    reply._raw_headers = tuple(
        (name.encode("latin-1"), value.encode("utf-8", "surrogateescape")) for name, value in headers
    )
    cookies = tuple(value for name, value in headers if name.lower() == "set-cookie")
    if hasattr(cls, "_raw_cookie_headers"):
        reply._raw_cookie_headers = cookies or None
    else:
        reply.cookies = SimpleCookie()
        for each in cookies:
            reply.cookies.load(each)
    reply.content = streams.StreamReader(_library("aiohttp.base_protocol").BaseProtocol(loop), STREAM_BYTES, loop=loop)
    reply.content.feed_data(data)
    reply.content.feed_eof()
    return reply


def _keep_cookies(session: Any, reply: Any) -> None:
    """Gives the session the cookies of a reply, as the request has done when it was sent."""
    if reply.cookies:
        session.cookie_jar.update_cookies(reply.cookies, reply.url)


def _whole_error(error: Any, info: Any, place: Any) -> Any:
    """Returns an error of the library with what a record does not have: objects of the request."""
    aiohttp, named = _library("aiohttp"), _library("aiohttp.client_reqrep").ConnectionKey
    if isinstance(error, aiohttp.ClientResponseError):
        error.request_info, error.history = info, ()
        error.args = info, ()
    if place is not None:
        known = dict(zip(("host", "port", "is_ssl", "ssl"), (*place, True), strict=True))
        key = vars(error)["_conn_key"] = named(*map(known.get, named._fields))
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = error._os_error
            OSError.__init__(error, reason.errno, reason.strerror)
            error.args = key, reason
    return error
