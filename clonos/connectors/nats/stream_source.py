"""``nats.source``: a stream of JetStream, whose sequence numbers are in the state of the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, Unpack, overload

from clonos.connectors.codecs import Codec, for_decoding
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.history import LATER_ADVICE, HistorySource, LateCut
from clonos.connectors.kit.source_options import LogOptions, is_bounded, own_timestamps
from clonos.connectors.nats.loop_thread import LoopThread
from clonos.connectors.nats.message import Message
from clonos.connectors.nats.nats_address import NatsAddress, NatsAddressOptions
from clonos.connectors.nats.stream_reader import StreamReader
from clonos.connectors.nats.stream_splits import (
    CONNECTOR,
    INVALID_IN_NAMES,
    Start,
    checked_start,
    checked_subjects,
    gone_after,
    listed,
    split_of,
)
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.lineage import Dataset

if TYPE_CHECKING:
    from clonos.api.event_time import Timestamps

T = TypeVar("T")


class NatsSource(HistorySource, Generic[T]):
    """Source of the messages of a stream (``Source``, ``CheckingSource``). Each of ``subjects`` is a split."""

    routes_malformed = True

    def __init__(
        self,
        stream: str,
        server: NatsAddress,
        *,
        subjects: tuple[str, ...],
        decode: Any,
        start: Start,
        is_bounded: bool,
        own_timestamps: Timestamps | None,
    ) -> None:
        self.stream, self.server, self.subjects = stream, server, subjects
        self.codec: Codec[bytes, Any] | None = None if decode is None else for_decoding(CONNECTOR, decode)
        self.start, self.is_bounded = start, is_bounded
        self.own_timestamps = own_timestamps

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.stream!r}, url={self.server.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.server.datasets(subject or self.stream for subject in self.subjects)

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns a split for each of the subjects, with the sequences at which the job begins to read them.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """
        thread = LoopThread(CONNECTOR)
        try:
            asked = listed(self.server, self.stream, self.subjects, self.start, self.is_bounded)
            found: list[bytes] = thread.run(asked)
            return found
        finally:
            thread.close()

    def check_cut(self) -> None:
        """See ``kit.history.CutSource``.

        Raises: LateCut: records at the cut may be gone, or may still come in front of it.
        """
        thread = LoopThread(CONNECTOR)
        try:
            reason = thread.run(gone_after(self.server, self.stream, self.start))
        finally:
            thread.close()
        if reason:
            raise LateCut(repr(self), reason, LATER_ADVICE)

    def check_split(self, split: bytes) -> None:
        """Checks that a split is one of this stream.

        Raises: SplitMalformed: it is not.
        """
        found = split_of(split)
        if found.stream != self.stream or found.subject not in self.subjects or found.start < 1:
            raise SplitMalformed("part of a stream of NATS", split, f"{self!r} does not read it")

    def reader(self) -> StreamReader:
        """Creates a reader."""
        return StreamReader(self.server, self.codec, self.own_timestamps is not None)


class StreamOptions(NatsAddressOptions, LogOptions, total=False):
    """Options of ``nats.source``, which describes them."""

    subjects: str | Sequence[str] | None
    start: Annotated[Start, "earliest"]


@overload
def source(stream: str, *, decode: None = None, **options: Unpack[StreamOptions]) -> NatsSource[Message]: ...


@overload
def source(stream: str, *, decode: Callable[[bytes], T], **options: Unpack[StreamOptions]) -> NatsSource[T]: ...


@overload
def source(stream: str, *, decode: Any, **options: Unpack[StreamOptions]) -> NatsSource[Any]: ...


@explains_calls
def source(stream: str, *, decode: Any = None, **options: Unpack[StreamOptions]) -> NatsSource[Any]:
    """Source of the messages of a stream of JetStream, in its order.

    Args:
        stream: the stream, which must exist.
        url: nats://user@host:4222, or tls:// for TLS; several servers of a cluster with commas.
        password: password of the user, in place of that of the URL.
        token: token of the server, in place of a user.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the server asks for one.
        subjects: subjects of the stream that are read, with wildcards if need be. Each of them is a split, which
            another task may read. None: the whole stream in one split.
        decode: a codec, a type or a function of the payload. Payloads that it does not decode go to ``errors=``. None:
            records are of the class ``Message``.
        start: where the job begins when it first starts: "earliest", "latest", the first message at or after an aware
            datetime, or a sequence number.
        until: "latest": the source ends where the stream ended at the start of the job. None: it never ends.
        out_of_order: gives records the timestamps of the stream, and each split a watermark that far behind its latest.
        idle_after: time after which a split without messages does not hold event time back any more.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(nats.source("ORDERS", url="nats://localhost:4222", decode=codecs.json()))
    """
    _check(stream)
    return NatsSource(
        stream,
        NatsAddress(CONNECTOR, options),
        subjects=checked_subjects(options.get("subjects")),
        decode=decode,
        start=checked_start(options["start"]),
        is_bounded=is_bounded(CONNECTOR, options.get("until"), "latest"),
        own_timestamps=own_timestamps(CONNECTOR, options),
    )


def _check(stream: str) -> None:
    """Raises: InvalidConnector: this is no name of a stream."""
    if type(stream) is not str or not stream or set(stream) & INVALID_IN_NAMES:
        advice = "Give the name of a stream: without white space, dots, * > / and \\."
        raise InvalidConnector(CONNECTOR, f"the stream is {stream!r:.80}", advice)
