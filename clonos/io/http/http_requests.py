"""HTTP requests: their validity, and the next request after a redirect.

An *origin* is scheme, host and port. A redirect to another origin carries no body, only safe methods, and of the
headers only those in ``HARMLESS_HEADERS``, because the caller gave everything else for the first origin.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  else the first host name imports it, which fails as LookupError when memory is short
import functools
import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urljoin

from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from clonos.io.http.http_errors import HttpRedirectRefused, HttpRequestInvalid, redacted_url

URL_CHARACTERS_MAX: Final = 8_192  # of the target of a redirect
HOST_CHARACTERS_MAX: Final = 253
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
SEE_OTHER: Final = 303
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
HARMLESS_HEADERS: Final = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that are sent to another origin. Any other may carry a secret: `X-Api-Key` is as common as
`Authorization`."""
BODY_HEADERS: Final = frozenset(
    {"content-encoding", "content-language", "content-length", "content-location", "content-type", "transfer-encoding"}
)

_HOST: Final = re.compile(r"\[[0-9A-Fa-f:.]+(%[\w.~-]+)?\]|[\w.~!$&'()*+,;=-]+", re.ASCII)
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """Request to send. ``headers``: in the order in which they are sent."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class Hop(NamedTuple):
    """Request of the caller, or of a redirect that followed it. ``target``: its URL, parsed."""

    request: HttpRequest
    target: Url

    @property
    def origin(self) -> tuple[str | None, str | None, int | None]:
        """Scheme, host and port."""
        scheme, port = self.target.scheme, self.target.port
        return scheme, self.target.host, DEFAULT_PORTS.get(scheme or "") if port is None else port


def first_hop(request: HttpRequest) -> Hop:
    """Checks the caller's request and parses its URL.

    Raises: HttpRequestInvalid when the method, the URL or a header is invalid.
    """
    try:
        _check(request)
        return Hop(request, _target_of(request.url))
    except ValueError as problem:
        raise HttpRequestInvalid(request.method, redacted_url(request.url), str(problem)) from problem


def next_hop(hop: Hop, status_code: int, location: str) -> Hop:
    """Returns the request that a redirect asks for.

    Raises: HttpRedirectRefused, from a ValueError with the reason, when the new URL is invalid, or when a body or an
    unsafe method would go to another origin.
    """
    request = hop.request
    method, headers, body = request.method, request.headers, request.body
    if status_code == SEE_OTHER and method != "HEAD":
        method, body = "GET", None
        headers = tuple(header for header in headers if header[0].lower() not in BODY_HEADERS)
    url = location
    try:
        if len(location) > URL_CHARACTERS_MAX:
            raise ValueError(f"the URL has more than {URL_CHARACTERS_MAX} characters")
        url = urljoin(request.url, location)
        there = Hop(HttpRequest(method, url, headers, body), _target_of(url))
        if there.origin == hop.origin:
            return there
        if body is not None or method not in SAFE_METHODS:
            raise ValueError("it is another origin, and a body or an unsafe method is not sent to another origin")
    except ValueError as problem:
        raise HttpRedirectRefused(method, redacted_url(request.url), redacted_url(url), str(problem)) from problem
    harmless = tuple(header for header in headers if header[0].lower() in HARMLESS_HEADERS)
    return Hop(HttpRequest(method, url, harmless), there.target)


def _check(request: HttpRequest) -> None:
    """Refuses what http.client would refuse, or would send in another form than given.

    Raises: ValueError, with the reason.
    """
    if not _TOKEN.fullmatch(request.method):
        raise ValueError(f"{request.method!r} is not a method")
    for name, value in request.headers:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is not a header name")
        if not _FIELD_VALUE.fullmatch(str(value)):
            raise ValueError(f"the value of the header {name!r} is not one line of Latin-1 text")


def _target_of(url: str) -> Url:
    """Parses an absolute URL. Raises: ValueError when it has no http scheme or no valid host."""
    try:
        target = parse_url(url)
    except LocationParseError:  # its text has the whole URL, including secrets
        raise ValueError("the URL has no valid host and port") from None
    if target.scheme not in DEFAULT_PORTS or not target.host:
        raise ValueError("the URL needs http(s):// and a host")
    _check_host(target.host)
    return target


@functools.lru_cache(maxsize=256)
def _check_host(host: str) -> None:
    """Checks a host name as a name lookup would. Raises: ValueError, with the reason."""
    if len(host) > HOST_CHARACTERS_MAX:
        raise ValueError(f"the URL's host has more than {HOST_CHARACTERS_MAX} characters")
    if not _HOST.fullmatch(host):
        raise ValueError("the URL's host has an invalid character")
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("the URL's host has a label that is empty or too long") from None
