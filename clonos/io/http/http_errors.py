"""What can go wrong with an HTTP request, as its caller sees it.

Built from plain values only, so that each survives the causal log and a replay raises an equal one. URLs in messages
are without user, password and query: these carry secrets.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from clonos.core.model.errors import EnvironmentFault, JobError

SHOWN_CHARACTERS_MAX: Final = 500


class HttpError(EnvironmentFault):
    """A request got no answer, or no usable one."""


class HttpTimeout(HttpError):
    """The time for a request was used up."""

    method: str
    url: str
    phase: str
    timeout_s: float

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url}: no answer while {self.phase}, within {self.timeout_s:g} s."
            " Raise timeout= if the service is slow."
        )


class HttpConnectionFailed(HttpError):
    """The connection could not be made, or broke. ``was_sent``: the server may have seen the request."""

    method: str
    url: str
    reason: str
    was_sent: bool

    def __str__(self) -> str:
        seen = "the server may have acted on it" if self.was_sent else "the request was not sent"
        return f"{self.method} {self.url}: {self.reason}; {seen}."


class HttpRedirectRefused(HttpError):
    """The answer sends the request to where it cannot or must not go. ``location``: where to, as it is shown."""

    method: str
    url: str
    location: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url}: the answer redirects it to {self.location}: {self.reason}."
            " If you trust that address, ask there; redirects=0 gives you the answer itself."
        )


class HttpStatusError(HttpError):
    """The answer's status is 400 or above, and ``raise_for_status`` was called."""

    method: str
    url: str
    status_code: int
    reason: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.method} {self.url}: {self.status_code} {self.reason}: {self.excerpt}"


class HttpBodyTooLarge(HttpError):
    """The answer's body is longer than what may be recorded, or it has too much around its body."""

    method: str
    url: str
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url}: the answer has more than the {self.limit_bytes} bytes that its body may have,"
            " or far more around its body. Every process downstream keeps a copy of what is recorded; raise"
            " body_bytes_max= if it must be."
        )


class HttpRequestInvalid(JobError):
    """What the job asked for is no request."""

    method: str
    url: str
    reason: str

    def __str__(self) -> str:
        return f"{self.method} {self.url} cannot be sent: {self.reason}."


def shown_text(text: str) -> str:
    """What somebody else has written, as it may stand in a message: on one line and not too long."""
    shown = "".join(character if character.isprintable() else " " for character in text[:SHOWN_CHARACTERS_MAX])
    return shown if len(text) <= SHOWN_CHARACTERS_MAX else f"{shown}..."


def shown_url(url: str) -> str:
    """The URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a malformed URL)"
    return shown_text(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))
