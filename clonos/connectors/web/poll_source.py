"""``web.poll``: an endpoint that is asked for records again and again, each time after a cursor.

An endpoint cannot be read again in general, so this is a ``PushSource``: the records of an answer are journalled
before any step sees them, the last of them with the cursor after the answer. A task that takes over continues there
(``ContinuedSource``).
"""

from __future__ import annotations

from typing import Any, Final, Literal, Unpack

from clonos.connectors.codecs import Codec, for_decoding, json
from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.kit.journalled_source import ContinuedForm, ContinuedJournal, IdentifiedJournal
from clonos.connectors.kit.source_options import is_bounded
from clonos.connectors.web.paging import NEXT_LINK, PageFunction, Paging
from clonos.connectors.web.poll_feed import Endpoint, PollCursor, PollFeed
from clonos.connectors.web.web_options import FeedOptions, checked_file, checked_headers, is_path
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.http.http_client import HttpLimits
from clonos.operators.event_time.durations import NANOSECONDS, Duration, duration_ns
from clonos.operators.lineage import Dataset, dataset_at

CONNECTOR: Final = "web.poll"
BODY_BYTES: Final = 8 << 20
BODY_BYTES_LIMIT: Final = 16 << 20
"""Largest ``body_bytes_max``, in bytes: the records of an answer travel to the keepers in one message."""


class PollSource(ContinuedJournal[PollCursor]):
    """Description of an endpoint; the slot of the reading task asks it."""

    form = ContinuedForm(PollCursor)

    def __init__(self, endpoint: Endpoint, decode: Any) -> None:
        self.endpoint = endpoint
        self.codec: Codec[bytes, Any] = json() if decode is None else for_decoding(CONNECTOR, decode)

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.endpoint.shown_url!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(self.endpoint.url)]

    def feed(self, position: PollCursor) -> PollFeed:
        """Begins to ask.

        Raises: InvalidConnector: the file of ``ca`` is not there or has no certificates.
        """
        return PollFeed(self.endpoint, position, self.form.record)

    def where(self, message: bytes) -> str:
        """See ``JournalledSource``."""
        return f"a record of {self.endpoint.shown_url}"


class IdentifiedPollSource(IdentifiedJournal, PollSource):
    """Endpoint that may give a record again."""

    def __init__(self, endpoint: Endpoint, decode: Any, identities_retained: int) -> None:
        super().__init__(endpoint, decode)
        self.identities_retained = identities_retained


@explains_calls
def poll(
    url: str,
    *,
    every: Duration = "10s",
    records: str | None = None,
    cursor: str | PageFunction | None = None,
    parameter: str | None = "cursor",
    until: Literal["end"] | None = None,
    identity: str | None = None,
    body_bytes_max: int = BODY_BYTES,
    timeout: Duration = "30s",
    **options: Unpack[FeedOptions],
) -> PollSource:
    """Source of the records that an endpoint gives when it is asked by GET. It has one task and needs ``keepers``.

    Args:
        url: endpoint; http or https.
        every: pause after an answer without records, and without ``cursor`` after each answer.
        records: field of the answer with the array of records, such as "data.items"; None: the answer is the array.
        cursor: where an answer has the cursor of the next request: a field such as "meta.next", ``web.NEXT_LINK`` for
            the header ``Link``, or a function that gets a ``web.Reply`` and returns records and cursor. None: each
            request is the same.
        parameter: query parameter that gets the cursor; None: the cursor is the URL of the next request.
        start: cursor of the first request.
        until: "end": the source ends after the first answer without a cursor. None: it never ends.
        identity: field that tells records apart, for endpoints that give a record again. None: each record counts.
        remember: identities that are retained to recognise repetitions.
        headers: headers of each request; a value may be a secret.
        token: token of the header ``Authorization: Bearer``, preferably a secret.
        decode: a codec, a type or a function of the bytes of a record; None for JSON. Records that it does not decode
            go to ``errors=``.
        body_bytes_max: longest answer in bytes, 8 MiB by default and at most 16 MiB.
        timeout: time for one request.
        patience: how long an endpoint may fail, with 429, 5xx or no answer, before the job does.
        ca: file with the certificates of the authorities to trust, in place of those of the system.

    Raises: InvalidConnector: an option cannot work.
    """
    token, decode, remember = options.get("token"), options.get("decode"), options["remember"]
    check_number(CONNECTOR, "remember", remember, "identities")
    check_number(CONNECTOR, "body_bytes_max", body_bytes_max, "bytes", BODY_BYTES_LIMIT)
    parameter, ends = None if cursor == NEXT_LINK else parameter, is_bounded(CONNECTOR, until, "end")
    paging = Paging(records, cursor, parameter, options.get("start"), ends, identity)
    _check_paging(paging)
    endpoint = Endpoint(
        url=url,
        headers=checked_headers(CONNECTOR, url, options.get("headers"), token),
        token=token,
        paging=paging,
        every_ns=duration_ns(every),
        patience_ns=duration_ns(options["patience"]),
        limits=_limits(duration_ns(timeout) / NANOSECONDS["s"], body_bytes_max),
        ca=checked_file(options.get("ca")),
    )
    return PollSource(endpoint, decode) if identity is None else IdentifiedPollSource(endpoint, decode, remember)


def _limits(timeout_s: float, body_bytes_max: int) -> HttpLimits:
    return HttpLimits(
        timeout_s=timeout_s,
        connect_timeout_s=min(10.0, timeout_s),
        retries_max=0,
        redirects_max=3,
        body_bytes_max=body_bytes_max,
        is_repeatable=True,
    )


def _check_paging(paging: Paging) -> None:
    """Raises: InvalidConnector: these options cannot work."""
    cursor: Any = paging.cursor
    for option, path in (("records", paging.records), ("identity", paging.identity)):
        if path is not None and not is_path(path):
            advice = 'Give the name of a field, or names with dots between them, such as "data.items".'
            raise InvalidConnector(CONNECTOR, f"{option} is {path!r:.80}", advice)
    if cursor is not None and not callable(cursor) and not is_path(cursor):
        advice = 'Give the name of a field, such as "meta.next", web.NEXT_LINK or a function.'
        raise InvalidConnector(CONNECTOR, f"cursor is {cursor!r:.80}", advice)
    if callable(cursor) and paging.records is not None:
        raise InvalidConnector(
            CONNECTOR, "records= and a function as cursor= exclude each other", "Leave out records=."
        )
