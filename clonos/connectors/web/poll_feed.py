"""Requests of ``web.poll``: one at a time, after a cursor, with pauses where the endpoint wants them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.web.paging import Page, Paging, identity_at, malformed, page_of, reply_of, url_after
from clonos.connectors.web.web_errors import PollFailed, PollRefused
from clonos.connectors.web.web_options import TRANSIENT, WebServer
from clonos.io.http.http_client import HttpClient, HttpLimits, HttpReply, HttpRequest
from clonos.io.http.http_errors import (
    HttpBodyTooLarge,
    HttpError,
    HttpRedirectRefused,
    HttpRequestInvalid,
)
from clonos.io.system import wall_clock
from clonos.operators.event_time.durations import NANOSECONDS, duration_text

logger = logging.getLogger("clonos.slot")

PAUSE_NS_FIRST: Final = 500_000_000
PAUSE_NS_MAX: Final = 60 * NANOSECONDS["s"]
RETRY_AFTER_NS_MAX: Final = 24 * NANOSECONDS["h"]
"""Longest ``Retry-After`` that is obeyed, unless ``patience=`` is longer."""

RETRY_AFTER_DIGITS_MAX: Final = 12
_ADVICE: Final = {
    401: "Correct token= or headers=, and resume the job.",
    403: "Correct token= or headers=, or the rights of the user, and resume the job.",
    404: "Correct the URL, and resume the job.",
}


class PollCursor(msgspec.Struct, frozen=True, array_like=True):
    """Cursor of the next request. ``is_last``: the answer before it was the last one."""

    cursor: str | None = None
    is_last: bool = False


class Endpoint(WebServer, frozen=True):
    """Endpoint and how it is asked; see ``web.poll``."""

    paging: Paging
    every_ns: int
    patience_ns: int
    limits: HttpLimits

    def request_headers(self) -> tuple[tuple[str, str], ...]:
        """Returns the headers of a request.

        Raises: SecretMissing.
        """
        return tuple({"Accept": "application/json", **self.revealed_headers()}.items())


Journalled = Callable[[bytes, bytes | None, PollCursor | None], bytes]


class PollFeed:
    """Sequence of requests to an endpoint (``ProducerConnection``)."""

    def __init__(
        self,
        endpoint: Endpoint,
        position: PollCursor,
        journalled: Journalled,
        monotonic: Callable[[], int] = wall_clock.monotonic_ns,
        sleep: Callable[[float], None] = wall_clock.sleep_s,
    ) -> None:
        self._endpoint, self._journalled = endpoint, journalled
        self._position = position if position != PollCursor() else PollCursor(endpoint.paging.start)
        self._monotonic, self._sleep = monotonic, sleep
        self._due_ns = monotonic()
        self._failing_ns: int | None = None  # since when
        self._pause_ns = PAUSE_NS_FIRST
        try:
            self._client = HttpClient(ca=endpoint.ca)
        except OSError as error:
            problem = f"ca={endpoint.ca!r} cannot be used: {error}"
            raise InvalidConnector("web.poll", problem, "Give a file of certificates in PEM on each machine.") from None

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns the records of the next answer, b"" if it is not due within ``wait_ms`` or has none.

        Returns None after the last answer of a bounded source.

        Raises: PollFailed, PollRefused, AnswerMalformed, SecretMissing.
        """
        if self._position.is_last and self._endpoint.paging.is_bounded:
            return None
        left_ns = self._due_ns - self._monotonic()
        if left_ns > 0:
            self._sleep(min(left_ns / NANOSECONDS["s"], wait_ms / 1000))
            if self._due_ns > self._monotonic():
                return b""
        reply = self._ask()
        return b"" if reply is None else self._records(reply)

    def acknowledge(self, offset_bytes: int) -> None:
        """Does nothing: the next request has the cursor."""

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _ask(self) -> HttpReply | None:
        """Returns an answer; None if there is none now.

        Raises: PollFailed: there has been none for too long. PollRefused.
        """
        endpoint = self._endpoint
        url = url_after(endpoint.url, self._position.cursor, endpoint.paging.parameter)
        asked_ns = 0
        try:
            reply = self._client.send(HttpRequest("GET", url, endpoint.request_headers()), endpoint.limits)
        except (HttpBodyTooLarge, HttpRedirectRefused, HttpRequestInvalid) as error:
            advice = "Ask for smaller pages, or raise body_bytes_max=."
            if not isinstance(error, HttpBodyTooLarge):
                advice = "Correct the URL or the headers."
            raise PollRefused(endpoint.shown_url, str(error).rstrip("."), advice) from error
        except HttpError as error:
            reason = str(error).rstrip(".")
        else:
            if 200 <= reply.status_code < 300 or reply.status_code == 304:
                self._failing_ns, self._pause_ns = None, PAUSE_NS_FIRST
                return reply
            text = endpoint.answer_text(reply.body)
            reason = endpoint.clean(f"it answered {reply.status_code} {reply.reason}".rstrip())
            reason += f": {text}" if text else ""
            if reply.status_code not in TRANSIENT:
                advice = _ADVICE.get(reply.status_code, "Correct the URL or the options, and resume the job.")
                raise PollRefused(endpoint.shown_url, reason, advice)
            asked_ns = _retry_after_ns(reply)
        self._back_off(reason, asked_ns)
        return None

    def _back_off(self, reason: str, asked_ns: int) -> None:
        """Plans the next request. Raises: PollFailed: the endpoint has failed for too long."""
        now_ns = self._monotonic()
        if self._failing_ns is None:
            self._failing_ns = now_ns
            logger.warning("polling %s fails, and is tried again: %s", self._endpoint.shown_url, reason)
        pause_ns = max(asked_ns, self._pause_ns)
        if asked_ns > PAUSE_NS_MAX:
            text = duration_text(asked_ns)
            if asked_ns > max(RETRY_AFTER_NS_MAX, self._endpoint.patience_ns):
                reason = f"{reason}; its Retry-After asks for {text}"
                raise PollFailed(self._endpoint.shown_url, duration_text(now_ns - self._failing_ns), reason)
            logger.warning("%s asks to be left alone for %s: %s", self._endpoint.shown_url, text, reason)
        if now_ns - self._failing_ns >= max(self._endpoint.patience_ns, asked_ns):
            raise PollFailed(self._endpoint.shown_url, duration_text(self._endpoint.patience_ns), reason)
        self._due_ns = now_ns + pause_ns
        self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)

    def _records(self, found: HttpReply) -> bytes:
        """Returns the journalled records of an answer, and takes over its cursor."""
        endpoint, before = self._endpoint, self._position
        reply = reply_of(found)
        page = Page([], None) if reply.status == 304 else page_of(reply, endpoint.paging)
        has_moved = page.cursor is not None and page.cursor != before.cursor
        if page.records and endpoint.paging.cursor is not None and not (has_moved or self._may_repeat(page)):
            state = "the same cursor as before" if page.cursor else "no cursor"
            reason = f'has records, but {state}: they would come again. Give identity= or until="end"'
            raise malformed(reply, reason)
        self._position = PollCursor(page.cursor if has_moved else before.cursor, page.cursor is None)
        if not (page.records and has_moved):
            self._due_ns = self._monotonic() + endpoint.every_ns
        return self._journal(page.records)

    def _may_repeat(self, page: Page) -> bool:
        """Returns whether repeated records of an answer do no harm."""
        return self._endpoint.paging.identity is not None or (self._endpoint.paging.is_bounded and page.cursor is None)

    def _journal(self, records: list[bytes]) -> bytes:
        path, url, last = self._endpoint.paging.identity, self._endpoint.shown_url, len(records) - 1
        journalled: list[Any] = [
            self._journalled(
                data, None if path is None else identity_at(data, path, url), self._position if index == last else None
            )
            for index, data in enumerate(records)
        ]
        return b"".join(journalled)


def _retry_after_ns(reply: HttpReply) -> int:
    """Returns what the header ``Retry-After`` asks for, as seconds or as a date; 0 if it asks for nothing."""
    asked = dict(reply.headers).get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return int(asked[:RETRY_AFTER_DIGITS_MAX]) * NANOSECONDS["s"]
    try:
        return max(0, int(parsedate_to_datetime(asked).timestamp() * NANOSECONDS["s"]) - wall_clock.wall_ns())
    except (ValueError, OverflowError):
        return 0
