"""Errors of an HTTP request, as its caller sees them.

They have plain values only, so that the causal log can record them and a replay raises an equal error. URLs in messages
have no user, password and query, because these may be secret.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit, urlunsplit

from clonos.core.model.errors import EnvironmentFault, JobError

SHOWN_CHARACTERS_MAX: Final = 500


class HttpError(EnvironmentFault):
    """The request has no reply, or no usable reply."""


class HttpTimeout(HttpError):
    """The time for the request has elapsed."""

    method: str
    url: str
    phase: str
    timeout_s: float

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url}: no reply within {self.timeout_s:g} s, while {self.phase}."
            " Raise timeout= if the service is slow."
        )


class HttpConnectionFailed(HttpError):
    """The connection was refused or broke. ``was_sent``: the server may have received the request."""

    method: str
    url: str
    reason: str
    was_sent: bool

    def __str__(self) -> str:
        seen = "the server may have received the request" if self.was_sent else "the request was not sent"
        return f"{self.method} {self.url}: {self.reason}; {seen}."


class HttpRedirectRefused(HttpError):
    """The reply redirects the request to an address that it cannot or must not use. ``location``: that address,
    redacted."""

    method: str
    url: str
    location: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url}: the redirect to {self.location} is refused: {self.reason}."
            " If you trust that address, send the request there; redirects=0 returns the redirect itself."
        )


class HttpStatusError(HttpError):
    """The status of the reply is 400 or above, and ``raise_for_status`` was called."""

    method: str
    url: str
    status_code: int
    reason: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.method} {self.url}: {self.status_code} {self.reason}: {self.excerpt}"


class HttpBodyTooLarge(HttpError):
    """The reply is longer than the limit for its body and the bytes around the body."""

    method: str
    url: str
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.method} {self.url}: the reply exceeds the limit of {self.limit_bytes} bytes for its body,"
            " or has too many bytes around it. Every process downstream keeps a copy of a recorded body; raise"
            " body_bytes_max= if you need it."
        )


class HttpRequestInvalid(JobError):
    """The job's request is not a valid HTTP request."""

    method: str
    url: str
    reason: str

    def __str__(self) -> str:
        return f"{self.method} {self.url} cannot be sent: {self.reason}."


def shown_text(text: str) -> str:
    """Returns foreign text as it may stand in a message: printable, on one line, at most 500 characters."""
    shown = "".join(character if character.isprintable() else " " for character in text[:SHOWN_CHARACTERS_MAX])
    return shown if len(text) <= SHOWN_CHARACTERS_MAX else f"{shown}..."


def redacted_url(url: str) -> str:
    """Returns the URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a malformed URL)"
    return shown_text(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))
