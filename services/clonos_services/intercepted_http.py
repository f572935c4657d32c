"""Requests of urllib3 (so of ``requests``), httpx and ``urllib.request`` as recorded calls.

A request is recorded where the library sends it: redirects, cookies and decompression stay with the library, live and
in a replay. The whole reply is read and recorded, with its headers. Methods other than GET, HEAD and OPTIONS are
effects, as with ``http``, and every request that is sent has the key of its call in ``Idempotency-Key``.
"""

from __future__ import annotations

import builtins
import io
from collections.abc import Awaitable, Callable, Mapping
from email.message import Message
from http.client import HTTPResponse
from types import ModuleType
from typing import Any, Final, NamedTuple

from clonos.core.ports.recorder import CallRecorder, Recorder
from clonos_services.calls import recorded_call, recorded_call_inside
from clonos_services.http_session import IDEMPOTENT_METHODS, KEY_HEADER, is_effect

SCALARS: Final = (str, bytes, int, float, bool, type(None))
DEPTH_MAX: Final = 5
"""Exceptions that are recorded as the reason of another one."""

HTTPX_VERSIONS: Final = {"HTTP/1.0": 10, "HTTP/1.1": 11, "HTTP/2": 20}
"""Versions as httpx writes them."""

Pairs = tuple[tuple[str, str], ...]
AsyncSend = Callable[[str], Awaitable["ClientReply"]]


class ClientReply(NamedTuple):
    """Recorded reply. ``version``: 10 or 11, or 20."""

    status: int
    reason: str
    version: int
    headers: Pairs
    body: bytes


def _called(
    library: str, method: str, url: str, body: bytes | None, send: Callable[[str], ClientReply], families: Any
) -> ClientReply:
    """Returns the reply, or raises the error of the library. ``families``: modules of its classes of errors."""

    def perform(key: str) -> object:
        try:
            return (tuple(send(key)), None)
        except Exception as error:  # noqa: BLE001  the library's own, which user code gets live and in a replay
            return (None, described_error(error, families, DEPTH_MAX))

    method = method.upper()
    recorded = recorded_call(
        f"{library}.{method.lower()}",
        lambda: (method, url, body),
        perform,
        effect=is_effect(method, url),
        in_doubt=perform if method in IDEMPOTENT_METHODS else None,
    )
    return _reply_of(recorded, families)


async def _called_inside(
    recorder: CallRecorder, library: str, method: str, url: str, body: bytes, send: AsyncSend, families: Any
) -> ClientReply:
    """Does what ``_called`` does, for a coroutine inside an asynchronous call."""

    async def perform(key: str) -> object:
        try:
            return (tuple(await send(key)), None)
        except Exception as error:  # noqa: BLE001  the library's own, which user code gets live and in a replay
            return (None, described_error(error, families, DEPTH_MAX))

    method = method.upper()
    recorded = await recorded_call_inside(
        recorder,
        f"{library}.{method.lower()}",
        (method, url, body),
        perform,
        effect=is_effect(method, url),
        is_repeatable=method in IDEMPOTENT_METHODS,
    )
    return _reply_of(recorded, families)


def _reply_of(recorded: Any, families: Any) -> ClientReply:
    """Returns the recorded reply. Raises: the recorded error of the library."""
    reply, failure = recorded  # as `perform` returns them
    if failure is not None:
        raise rebuilt_error(failure, families)
    return ClientReply(*reply)


def described_error(error: BaseException, families: tuple[Any, ...], depth: int) -> tuple[Any, ...]:
    """Describes an exception by plain values: class, arguments, attributes and exceptions in them.

    Raises: the exception, if it is not of the library.
    """
    name = type(error).__name__
    args: tuple[Any, ...]
    attributes: dict[str, Any]
    if not any(getattr(family, name, None) is type(error) for family in families):
        if depth == DEPTH_MAX:
            raise error
        name, args, attributes = "Exception", (f"{name}: {error}",), {}
    else:
        args = tuple(each if isinstance(each, SCALARS) else str(each) for each in error.args)
        attributes = vars(error)
    plain = {key: value for key, value in attributes.items() if isinstance(value, SCALARS)}
    nested = {
        key: described_error(value, families, depth - 1)
        for key, value in attributes.items()
        if isinstance(value, BaseException) and depth
    }
    return name, args, plain, nested


def rebuilt_error(described: Any, families: tuple[Any, ...]) -> BaseException:
    """Returns an exception from its description, without a call of its constructor."""
    name, args, plain, nested = described
    found = next((cls for family in families if (cls := getattr(family, name, None)) is not None), Exception)
    cls = found if isinstance(found, type) and issubclass(found, BaseException) else Exception
    error = cls.__new__(cls, *args)
    error.args = tuple(args)
    vars(error).update(plain)
    for key, value in nested.items():
        setattr(error, key, rebuilt_error(value, families))
    return error


def _keyed(headers: Mapping[Any, Any], key: str) -> dict[Any, Any]:
    sent = dict(headers)
    if not any(_text(name).lower() == KEY_HEADER for name in sent):
        sent["Idempotency-Key"] = key
    return sent


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _whole(body: Any) -> bytes | None:
    """Returns the body of a request as bytes, whatever form a library takes it in."""
    if body is None:
        return None
    if isinstance(body, str):
        return body.encode()
    if hasattr(body, "read"):
        return _whole(body.read())
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    return b"".join(each.encode() if isinstance(each, str) else bytes(each) for each in body)


# ---------------------------------------------------------------------- urllib3


class _Original:
    """ClientReply of ``http.client`` as far as urllib3 holds it: ``requests`` takes cookies from its headers."""

    def __init__(self, headers: Pairs) -> None:
        message = vars(self)["msg"] = Message()
        for name, value in headers:
            message[name] = value

    def isclosed(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: the body has been read."""


def urllib3_request(
    _recorder: Recorder,
    original: Callable[..., Any],
    pool: Any,
    method: str,
    url: str,
    body: Any = None,
    *args: Any,
    **named: Any,
) -> Any:
    """Answers ``HTTPConnectionPool.urlopen``, through which ``requests`` sends too."""
    import urllib3

    names = ("headers", "retries", "redirect", "assert_same_host", "timeout", "pool_timeout", "release_conn", "chunked")
    named.update(zip(names, args, strict=False))
    preloads, decodes = named.pop("preload_content", True), named.pop("decode_content", True)
    whole = _whole(body)

    def send(key: str) -> ClientReply:
        sent = {**named, "headers": _keyed(named.get("headers") or pool.headers, key)}
        found = original(pool, method, url, whole, preload_content=False, decode_content=False, **sent)
        data = found.read(decode_content=False)
        found.release_conn()
        return ClientReply(found.status, found.reason or "", found.version, tuple(found.headers.items()), data)

    families = (urllib3.exceptions, builtins)
    try:
        reply = _called("urllib3", method, f"{pool.scheme}://{pool.host}:{pool.port}{url}", whole, send, families)
    except urllib3.exceptions.PoolError as error:
        error.pool = pool
        raise
    return urllib3.HTTPResponse(
        body=io.BytesIO(reply.body),
        headers=urllib3.HTTPHeaderDict(reply.headers),
        status=reply.status,
        version=reply.version,
        reason=reply.reason,
        preload_content=preloads,
        decode_content=decodes,
        original_response=_Original(reply.headers),  # type: ignore[arg-type]  # the part of it that is used
        request_method=method,
        request_url=url,
        enforce_content_length=False,
    )


# ---------------------------------------------------------------------- httpx


def httpx_request(_recorder: Recorder, original: Callable[..., Any], transport: Any, request: Any) -> Any:
    """Answers ``HTTPTransport.handle_request`` of httpx and of its successor, httpx2."""
    httpx = _library_of(original)
    whole = request.read()

    def send(key: str) -> ClientReply:
        request.headers.setdefault(KEY_HEADER, key)
        found = original(transport, request)
        try:
            return _httpx_reply(found, b"".join(found.stream))
        finally:
            found.close()

    try:
        reply = _called(httpx.__name__, request.method, str(request.url), whole, send, (httpx, builtins))
    except httpx.TransportError as error:
        error.request = request
        raise
    return _httpx_response(httpx, reply)


async def httpx_request_inside(
    recorder: CallRecorder, original: Callable[..., Any], transport: Any, request: Any
) -> Any:
    """Answers ``AsyncHTTPTransport.handle_async_request`` inside an asynchronous call."""
    httpx = _library_of(original)
    whole = await request.aread()

    async def send(key: str) -> ClientReply:
        request.headers.setdefault(KEY_HEADER, key)
        found = await original(transport, request)
        try:
            return _httpx_reply(found, b"".join([chunk async for chunk in found.stream]))
        finally:
            await found.aclose()

    families = (httpx, builtins)
    try:
        reply = await _called_inside(recorder, httpx.__name__, request.method, str(request.url), whole, send, families)
    except httpx.TransportError as error:
        error.request = request
        raise
    return _httpx_response(httpx, reply)


def _httpx_reply(found: Any, data: bytes) -> ClientReply:
    version = HTTPX_VERSIONS.get(found.http_version, 11)
    headers = tuple((_text(name), _text(value)) for name, value in found.headers.raw)
    return ClientReply(found.status_code, found.reason_phrase, version, headers, data)


def _httpx_response(httpx: Any, reply: ClientReply) -> Any:
    return httpx.Response(
        reply.status,
        headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers],
        stream=httpx.ByteStream(reply.body),
        extensions={
            "http_version": next(text for text, number in HTTPX_VERSIONS.items() if number == reply.version).encode(),
            "reason_phrase": reply.reason.encode("latin-1"),
        },
    )


def _library_of(original: Callable[..., Any]) -> Any:
    """Returns the library that a function of a transport belongs to."""
    import sys

    module: ModuleType = sys.modules[original.__module__.partition(".")[0]]
    return module


# ---------------------------------------------------------------------- urllib.request


class _Received:
    """Socket of a reply that was received before."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def urllib_request(
    _recorder: Recorder, original: Callable[..., Any], handler: Any, http_class: Any, request: Any, **named: Any
) -> HTTPResponse:
    """Answers ``urllib.request.AbstractHTTPHandler.do_open``."""
    import urllib.error

    method: str = request.get_method()
    if request.data is not None:
        request.data = _whole(request.data)

    def send(key: str) -> ClientReply:
        if not request.has_header("Idempotency-key"):
            request.add_unredirected_header("Idempotency-Key", key)
        with original(handler, http_class, request, **named) as found:
            return ClientReply(found.status, found.reason, found.version, tuple(found.headers.items()), found.read())

    reply = _called("urllib", method, request.full_url, request.data, send, (urllib.error, builtins))
    headers = [(name, value) for name, value in reply.headers if name.lower() != "transfer-encoding"]
    if method != "HEAD" and not any(name.lower() == "content-length" for name, _ in headers):
        headers.append(("Content-Length", str(len(reply.body))))
    lines = [f"HTTP/{reply.version // 10}.{reply.version % 10} {reply.status} {reply.reason}"]
    head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers), "", ""])
    response = HTTPResponse(_Received(head.encode("latin-1") + reply.body), method=method)  # type: ignore[arg-type]
    response.begin()
    response.url = request.get_full_url()
    vars(response)["msg"] = response.reason  # as `do_open` leaves it
    return response
