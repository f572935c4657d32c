"""What a request is, what makes it valid, and where a redirect takes it.

An *origin* is scheme, host and port. To another origin a redirect takes nothing that the caller has given for the
first: a request that changes something or has a body does not go there, and of its headers only harmless ones do.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urljoin

from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from clonos.io.http.http_errors import HttpRedirectRefused, HttpRequestInvalid, shown_url

URL_CHARACTERS_MAX: Final = 8_192  # of a redirect
HOST_CHARACTERS_MAX: Final = 253
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
SEE_OTHER: Final = 303
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
HARMLESS_HEADERS: Final = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""What goes to another origin. Any other header may carry a secret: `X-Api-Key` is as common as `Authorization`."""
BODY_HEADERS: Final = frozenset(
    {"content-encoding", "content-language", "content-length", "content-location", "content-type", "transfer-encoding"}
)

_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]+(%[\w.~-]+)?\]|[\w.~!$&'()*+,;=-]+", re.ASCII)
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What is sent. ``headers`` in the order in which they are sent."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class Hop(NamedTuple):
    """A request on its way: the caller's own, or what a redirect has made of it. ``target``: its URL, taken apart."""

    request: HttpRequest
    target: Url

    @property
    def origin(self) -> tuple[str | None, str | None, int | None]:
        """Scheme, host and port."""
        scheme, port = self.target.scheme, self.target.port
        return scheme, self.target.host, DEFAULT_PORTS.get(scheme or "") if port is None else port


def first_hop(request: HttpRequest) -> Hop:
    """The caller's request, checked. Raises: HttpRequestInvalid."""
    try:
        _check(request)
        return Hop(request, _target_of(request.url))
    except ValueError as problem:
        raise HttpRequestInvalid(request.method, shown_url(request.url), str(problem)) from problem


def next_hop(hop: Hop, status_code: int, location: str) -> Hop:
    """The request that a redirect asks for. Raises: HttpRedirectRefused."""
    request = hop.request
    method, headers, body = request.method, request.headers, request.body
    if status_code == SEE_OTHER and method != "HEAD":
        method, body = "GET", None
        headers = tuple(header for header in headers if header[0].lower() not in BODY_HEADERS)
    url = location
    try:
        if len(location) > URL_CHARACTERS_MAX:
            raise ValueError(f"that URL has more than {URL_CHARACTERS_MAX} characters")
        url = urljoin(request.url, location)
        there = Hop(HttpRequest(method, url, headers, body), _target_of(url))
        if there.origin == hop.origin:
            return there
        if body is not None or method not in SAFE_METHODS:
            raise ValueError("that is another origin, where no body and no request with an effect is sent")
    except ValueError as problem:
        raise HttpRedirectRefused(method, shown_url(request.url), shown_url(url), str(problem)) from problem
    harmless = tuple(header for header in headers if header[0].lower() in HARMLESS_HEADERS)
    return Hop(HttpRequest(method, url, harmless), there.target)


def _check(request: HttpRequest) -> None:
    """Raises: ValueError, where http.client would, or would send something else than is meant."""
    if not _TOKEN.fullmatch(request.method):
        raise ValueError(f"{request.method!r} is no method")
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header")
        if not _FIELD_VALUE.fullmatch(str(value)):
            raise ValueError(f"the header {name!r} is no line of Latin-1 text")


def _target_of(url: str) -> Url:
    """Where an absolute URL leads. Raises: ValueError."""
    try:
        target = parse_url(url)
    except LocationParseError:  # its text has the whole URL, secrets and all
        raise ValueError("the URL has no valid host and port") from None
    if target.scheme not in DEFAULT_PORTS or not target.host:
        raise ValueError("the URL needs http(s):// and a host")
    _check_host(target.host)
    return target


@functools.lru_cache(maxsize=256)
def _check_host(host: str) -> None:
    """What a lookup would refuse. Raises: ValueError."""
    if len(host) > HOST_CHARACTERS_MAX:
        raise ValueError(f"the URL's host has more than {HOST_CHARACTERS_MAX} characters")
    if not _HOST.fullmatch(host):
        raise ValueError("the URL's host has a character that no host has")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("the URL's host has a label that is empty or too long") from None
