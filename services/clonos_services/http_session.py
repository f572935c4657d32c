"""HTTP requests with common settings: built, sent once, recorded, and replayed."""

from __future__ import annotations

import json as json_codec
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypedDict, Unpack, cast
from urllib.parse import urlencode, urljoin, urlsplit

from clonos.core.model.errors import JobError
from clonos.io.http.http_client import HttpLimits, HttpReply, HttpRequest, shared_client
from clonos.io.http.http_errors import HttpRequestInvalid, redacted_url
from clonos.io.http.http_requests import SAFE_METHODS
from clonos_services.calls import reconciled, recorded_call
from clonos_services.http_response import Headers, Response
from clonos_services.http_settings import SessionConfig, changed, common_settings

IDEMPOTENT_METHODS: Final = SAFE_METHODS | {"PUT", "DELETE"}
KEY_HEADER: Final = "idempotency-key"

MODEL_PATHS: Final = (
    *("/chat/completions", "/completions", "/responses", "/embeddings", "/messages", "/rerank", "/moderations"),
    *(":generateContent", ":streamGenerateContent", ":embedContent"),
)
"""Ends of the paths at which models answer, in the protocols of OpenAI, Anthropic and Google."""

Body = bytes | str | Mapping[str, Any] | None
Redact = Callable[[Response], Response]
Reconcile = Callable[[str, HttpRequest], Response]
"""Asks the server whether a request with this idempotency key took place; see ``Session.request``."""

Recorded = tuple[
    int, str, str, tuple[tuple[str, str], ...], bytes
]  # status, reason, final URL if it differs, headers, body


class CallSettings(TypedDict, total=False):
    """Settings of a single request."""

    timeout: float
    connect_timeout: float
    retries: int
    redirects: int
    body_bytes_max: int
    keep_headers: tuple[str, ...]
    redact: Redact | None


class SessionSettings(CallSettings, total=False):
    """Settings of a session."""

    base_url: str
    headers: Mapping[str, str] | None


class RequestOptions(CallSettings, total=False):
    """Options of a request in addition to method and URL; see ``Session.request``."""

    params: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    json: Any
    data: Body
    auth: tuple[str, str] | None
    idempotent: bool | None
    intent: bool | None
    reconcile: Reconcile | None


class RedactionInvalid(JobError):
    """A redaction hook returned something other than a ``Response``."""

    actual: str

    def __str__(self) -> str:
        return (
            f"redact= returned {self.actual}, expected a Response."
            " Return dataclasses.replace(response, content=...) or the response itself."
        )


class ReconciliationInvalid(JobError):
    """A reconciliation function returned something other than a ``Response``."""

    actual: str

    def __str__(self) -> str:
        return (
            f"reconcile= returned {self.actual}, expected a Response."
            " Return the response of http.get(...), create an http.Response, or raise CallNeverHappened."
        )


_send: Callable[[HttpRequest, HttpLimits], HttpReply] | None = None


@contextmanager
def transported_by(send: Callable[[HttpRequest, HttpLimits], HttpReply]) -> Iterator[None]:
    """Sends the requests inside the context to ``send`` instead of the network, for simulated worlds and unit tests."""
    global _send
    before, _send = _send, send
    try:
        yield
    finally:
        _send = before


def is_transported() -> bool:
    """Returns whether a test answers the requests."""
    return _send is not None


class Session:
    """Requests with common settings. A session has no connection of its own (the process has one pool) and may be
    pickled::

        api = http.session(base_url="https://api.example.com/", headers={"authorization": token}, timeout=2)
        price = api.get("prices/7").raise_for_status().json()
    """

    def __init__(self, **settings: Unpack[SessionSettings]) -> None:
        changed(common_settings(), settings)  # an unknown setting is an error here, not at the first request
        self._changes: Mapping[str, Any] = dict(settings)

    def get(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Sends a GET request; see ``request`` for the options."""
        return self.request("GET", url, **options)

    def head(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Sends a HEAD request; see ``request`` for the options."""
        return self.request("HEAD", url, **options)

    def options(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Sends an OPTIONS request; see ``request`` for the options."""
        return self.request("OPTIONS", url, **options)

    def post(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Sends a POST request, which is an effect; see ``request`` for the options."""
        return self.request("POST", url, **options)

    def put(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Sends a PUT request, which is an idempotent effect; see ``request`` for the options."""
        return self.request("PUT", url, **options)

    def patch(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Sends a PATCH request, which is an effect; see ``request`` for the options."""
        return self.request("PATCH", url, **options)

    def delete(self, url: str, **options: Unpack[RequestOptions]) -> Response:
        """Sends a DELETE request, which is an idempotent effect; see ``request`` for the options."""
        return self.request("DELETE", url, **options)

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        data: Body = None,
        auth: tuple[str, str] | None = None,
        idempotent: bool | None = None,
        intent: bool | None = None,
        reconcile: Reconcile | None = None,
        **settings: Unpack[CallSettings],
    ) -> Response:
        """Makes one recorded request and returns its response.

        Args:
            params: added to the query of the URL.
            json, data: the body, as JSON, or as bytes, text or a form (a mapping).
            auth: user and password, sent as HTTP Basic.
            idempotent: the server may receive the request twice: it is repeated when the connection breaks, or when a
                process fails during it. None follows HTTP: True for GET, HEAD, OPTIONS, PUT and DELETE.
            intent: the request is an effect: announced in the log and to a keeper, then sent at most once, in a step
                with ``effects=True``. None: as ``is_effect`` says. False declares that its
                ``Idempotency-Key`` makes it idempotent: an ordinary recorded call, made at least once.
            reconcile: for an announced request whose process failed during it: called with the idempotency key and the
                request instead of sending it again. Its return value or exception is the outcome; ``CallNeverHappened``
                means that the server does not know the request, which is then sent under the same key.
            settings: any field of ``SessionConfig`` except base_url and headers, for this request.

        Raises: HttpTimeout, HttpConnectionFailed, HttpBodyTooLarge, HttpRedirectRefused when there is no usable
        response; HttpRequestInvalid for an invalid request; CallInDoubt for an effect with an unknown outcome. A status
        of 400 or above raises only by ``raise_for_status``.
        """
        method = method.upper()
        effective = changed(changed(common_settings(), self._changes), settings)
        headers_common = {**(common_settings().headers or {}), **(self._changes.get("headers") or {})}
        request = HttpRequest(
            method,
            _full_url(effective.base_url, url, params),
            tuple(_sent_headers(headers_common, headers, auth, json, data).items()),
            _body_of(method, url, json, data),
        )
        is_announced = is_effect(method, request.url) if intent is None else intent
        if reconcile is not None and not is_announced:
            problem = "reconcile= needs an announced request: remove intent=False, or set intent=True"
            raise HttpRequestInvalid(method, redacted_url(request.url), problem)
        if idempotent is None:
            idempotent = intent is False or method in IDEMPOTENT_METHODS
        limits = HttpLimits(
            timeout_s=effective.timeout,
            connect_timeout_s=effective.connect_timeout,
            retries_max=effective.retries,
            redirects_max=effective.redirects,
            body_bytes_max=effective.body_bytes_max,
            is_repeatable=idempotent,
        )

        return _called(request, limits, effective, is_announced, reconcile)


def is_effect(method: str, url: str) -> bool:
    """Returns whether a request changes something: any but GET, HEAD and OPTIONS, and but the POSTs by which a model is
    asked."""
    return method not in SAFE_METHODS and not (method == "POST" and urlsplit(url).path.endswith(MODEL_PATHS))


def _called(
    request: HttpRequest, limits: HttpLimits, settings: SessionConfig, is_announced: bool, reconcile: Reconcile | None
) -> Response:
    """Makes the recorded call and returns its response."""

    def perform(key: str) -> Recorded:
        return _perform(request, limits, settings, key)

    def ask(key: str) -> Recorded:
        assert reconcile is not None, request.url
        return _recorded(request, reconcile(key, _keyed(request, key)), settings)

    again = perform if limits.is_repeatable else None
    recorded = recorded_call(
        f"http.{request.method.lower()}",
        lambda: (request.method, request.url, request.body),
        perform,
        effect=is_announced,
        in_doubt=again if reconcile is None else reconciled(ask, perform),
    )
    return _response(request, cast(Recorded, recorded))


def _perform(request: HttpRequest, limits: HttpLimits, settings: SessionConfig, key: str) -> Recorded:
    """Sends the request and returns the recorded part of the response."""
    reply = (_send or shared_client().send)(_keyed(request, key), limits)
    headers = tuple((name, value) for name, value in reply.headers if name.lower() in settings.keep_headers)
    if settings.redact is None:
        elsewhere = "" if reply.url == request.url else reply.url
        return reply.status_code, reply.reason, elsewhere, headers, reply.body
    response = Response(request.method, reply.url, reply.status_code, reply.reason, Headers(headers), reply.body)
    return _recorded(request, response, settings)


def _keyed(request: HttpRequest, key: str) -> HttpRequest:
    """Returns the request with its idempotency key, unless the caller has set the header."""
    if any(name == KEY_HEADER for name, _ in request.headers):
        return request
    return replace(request, headers=(*request.headers, (KEY_HEADER, key)))


def _recorded(request: HttpRequest, response: object, settings: SessionConfig) -> Recorded:
    """Returns the recorded part of a response that user code has made.

    Raises: ReconciliationInvalid when it is no ``Response``; RedactionInvalid when redaction returns none.
    """
    if not isinstance(response, Response):
        raise ReconciliationInvalid(type(response).__qualname__)
    if settings.redact is not None:
        redacted: object = settings.redact(response)
        if not isinstance(redacted, Response):
            raise RedactionInvalid(type(redacted).__qualname__)
        response = redacted
    elsewhere = "" if response.url == request.url else response.url
    return response.status_code, response.reason, elsewhere, tuple(response.headers.items()), response.content


def _response(request: HttpRequest, recorded: Recorded) -> Response:
    status_code, reason, elsewhere, headers, body = recorded
    return Response(request.method, elsewhere or request.url, status_code, reason, Headers(headers), body)


def _full_url(base_url: str, url: str, params: Mapping[str, Any] | None) -> str:
    if base_url and not urlsplit(url).scheme:
        url = urljoin(base_url.rstrip("/") + "/", url.lstrip("/"))
    if not params:
        return url
    address, hash_sign, fragment = url.partition("#")
    separator = "&" if "?" in address else "?"
    return f"{address}{separator}{urlencode(params, doseq=True)}{hash_sign}{fragment}"


def _sent_headers(
    common: Mapping[str, str],
    own: Mapping[str, str] | None,
    auth: tuple[str, str] | None,
    json: Any,
    data: Body,
) -> dict[str, str]:
    """Returns the headers to send, by lower-case name; the request's own override the common ones."""
    sent = {"user-agent": "clonos", "accept": "*/*", "accept-encoding": "gzip, deflate"}
    if json is not None:
        sent["content-type"] = "application/json"
    elif isinstance(data, Mapping):
        sent["content-type"] = "application/x-www-form-urlencoded"
    elif isinstance(data, str):
        sent["content-type"] = "text/plain; charset=utf-8"
    if auth is not None:
        sent["authorization"] = "Basic " + b64encode(":".join(auth).encode()).decode()
    for given in (common, own or {}):
        sent.update((name.lower(), value) for name, value in given.items())
    return sent


def _body_of(method: str, url: str, json: Any, data: Body) -> bytes | None:
    if json is not None and data is not None:
        raise HttpRequestInvalid(method, redacted_url(url), "it has both json= and data=")
    if json is not None:
        try:
            return json_codec.dumps(json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as problem:
            raise HttpRequestInvalid(
                method, redacted_url(url), f"json= cannot be encoded as JSON: {problem}"
            ) from problem
    if isinstance(data, Mapping):
        return urlencode(data, doseq=True).encode()
    return data.encode() if isinstance(data, str) else data
