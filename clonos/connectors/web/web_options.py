"""Parts that ``web.poll`` and ``web.websocket`` share: the server with its secrets, and checks of options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.secrets import Secret, check_text, revealed, without, without_secrets
from clonos.connectors.tls_context import PemFile
from clonos.io.http.http_client import HttpRequest
from clonos.io.http.http_errors import HttpRequestInvalid, redacted_url
from clonos.io.http.http_requests import first_hop
from clonos.operators.event_time.durations import Duration

Headers = Mapping[str, str | Secret]

REMEMBERED: Final = 10_000
"""Identities that a source retains to recognise repetitions."""

TRANSIENT: Final = frozenset({408, 425, 429, *range(500, 600)})
"""Statuses after which another request may succeed."""

ANSWER_CHARACTERS_MAX: Final = 200


class FeedOptions(TypedDict, total=False):
    """Options that ``web.poll`` and ``web.websocket`` share; each describes them."""

    start: str | None
    remember: Annotated[int, REMEMBERED]
    headers: Mapping[str, str | Secret] | None
    token: str | Secret | None
    decode: Any
    patience: Annotated[Duration, "5min"]
    ca: PemFile | None


class WebServer(msgspec.Struct, frozen=True):
    """Server from which a source reads, and what it is given. ``ca``: file with the authorities to trust."""

    url: str
    headers: Headers
    token: str | Secret | None
    ca: str | None

    @property
    def shown_url(self) -> str:
        """URL without secrets."""
        return redacted_url(self.url)

    def clean(self, text: str) -> str:
        """Returns a text of the server, which may repeat what it was sent, without secrets."""
        text = without_secrets(text, (*self.headers.values(), self.token))
        return without(text, [self.token] if isinstance(self.token, str) else [])

    def answer_text(self, body: bytes) -> str:
        """Returns the begin of an answer for an error."""
        return self.clean(body.decode("utf-8", "replace"))[:ANSWER_CHARACTERS_MAX].strip()

    def revealed_headers(self) -> dict[str, str]:
        """Returns the headers of a request.

        Raises: SecretMissing.
        """
        found = {name: revealed(value) for name, value in self.headers.items()}
        if self.token is not None:
            found["Authorization"] = f"Bearer {revealed(self.token)}"
        return found


def checked_headers(connector: str, url: str, headers: Headers | None, token: Any) -> dict[str, str | Secret]:
    """Returns the headers. ``url``: http or https. Raises: InvalidConnector: they or the URL cannot work."""
    given = checked_names(connector, headers)
    if token is not None:
        check_text(connector, "token", token)
        if any(name.lower() == "authorization" for name in given):
            raise InvalidConnector(connector, "headers= and token= both give Authorization", "Leave one of them out.")
    check_text(connector, "url", url)
    try:
        first_hop(HttpRequest("GET", url, tuple((name, "x") for name in given)))
    except HttpRequestInvalid as error:
        raise InvalidConnector(connector, str(error).rstrip("."), "Correct it.") from None
    return given


def checked_file(path: PemFile | None) -> str | None:
    """Returns the absolute path of a file; None for none."""
    return None if path is None else os.path.abspath(os.fspath(path))


def checked_names(connector: str, headers: Headers | None) -> dict[str, str | Secret]:
    """Returns the headers. Raises: InvalidConnector: they are no texts or secrets by name."""
    given: Any = {} if headers is None else headers
    if not isinstance(given, Mapping):
        raise InvalidConnector(connector, "headers is no dict", 'Give {"name": "value"}; a value may be a secret.')
    for name, value in given.items():
        if type(name) is not str or not isinstance(value, (str, Secret)):
            problem = f"the header {name!r:.80} is no text, or has a value that is neither text nor a secret"
            raise InvalidConnector(connector, problem, 'Give {"name": "value"}; a value may be a secret.')
        check_text(connector, "headers", value)
    return dict(given)


def is_path(path: object) -> bool:
    """Returns whether this is the name of a field, or names with dots between them."""
    return type(path) is str and all(path.split("."))
