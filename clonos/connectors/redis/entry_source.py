"""``redis.source``: streams, whose entries are counted in the state of the job.

Redis deletes entries without a trace in the stream, but counts how many were ever added, and knows the greatest id that
was deleted one by one. So a place in a stream is an id together with the number of entries up to it: each read compares
both, and no entry is skipped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from clonos.connectors.codecs import Codec, for_decoding
from clonos.connectors.codecs.codec import UndecodableBytes
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kit.attempts import Attempts
from clonos.connectors.kit.external_system import MessagesLost, SystemRefused, SystemUnreachable
from clonos.connectors.kit.history import LATER_ADVICE, HistorySource, LateCut
from clonos.connectors.kit.payloads import decoded
from clonos.connectors.kit.source_options import AddressOptions, LogOptions, is_bounded, own_timestamps
from clonos.connectors.kit.splits import decoded_split, stamped
from clonos.connectors.redis.entry_sink import DATA_FIELD
from clonos.connectors.redis.redis_server import REDIS, RedisServer
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values import register
from clonos.operators.connector_contract import PendingInput
from clonos.operators.lineage import Dataset

if TYPE_CHECKING:
    from clonos.api.event_time import Timestamps

CONNECTOR: Final = "redis.source"
MILLISECOND_NS: Final = 1_000_000
READ_MAX: Final = 10_000
FIRST: Final = "0-0"
T = TypeVar("T")
RawEntry: TypeAlias = tuple[bytes, list[bytes]]
Keys: TypeAlias = str | Sequence[str]


@register(name="clonos.redis.Entry")
class Entry(msgspec.Struct, frozen=True):
    """Entry of a stream. ``timestamp`` is the time in its id, in milliseconds since the Unix epoch."""

    key: str
    id: str
    timestamp: int
    fields: dict[str, bytes]


class EntryPlace(msgspec.Struct, frozen=True, array_like=True):
    """Place in a stream: the last entry that was read, and how many were ever added up to it.

    ``deleted``: the greatest id that was deleted before the job began. ``end``: the last entry to read, "" for none.
    """

    key: str
    last: str
    count: int
    deleted: str
    end: str = ""


_decoder: Final = msgspec.json.Decoder(EntryPlace)


class StreamState(NamedTuple):
    """State of a stream at the server: the entries in it and ever added, the last id, and the greatest deleted one."""

    length: int
    added: int
    last: str
    deleted: str


class EntrySource(HistorySource, Generic[T]):
    """Source of streams, each of which is a split (``Source``, ``CheckingSource``)."""

    routes_malformed = True

    def __init__(
        self,
        keys: tuple[str, ...],
        server: RedisServer,
        *,
        decode: Any,
        field: str,
        start: str,
        is_bounded: bool,
        own_timestamps: Timestamps | None,
    ) -> None:
        self.keys, self.server = keys, server
        self.codec: Codec[bytes, Any] | None = None if decode is None else for_decoding(CONNECTOR, decode)
        self.field, self.start, self.is_bounded = field.encode(), start, is_bounded
        self.own_timestamps = own_timestamps

    def __repr__(self) -> str:
        return f"{CONNECTOR}({', '.join(self.keys)!r}, url={self.server.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.server.datasets(self.keys)

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the streams, with the places at which the job begins.

        Raises: SystemRefused: a stream does not exist. SystemUnreachable, ExtraMissing, SecretMissing.
        """
        with self.server.client() as client:
            return [msgspec.json.encode(self._begin(client, key)) for key in self.keys]

    def _begin(self, client: Any, key: str) -> EntryPlace:
        doing = f"looking up the stream {key}"
        with self.server.asking(doing):
            answer = client.execute_command("XINFO", "STREAM", key)
        state = state_of(answer, self.server, doing)
        last, count = (FIRST, state.added - state.length) if self.start == "earliest" else (state.last, state.added)
        return EntryPlace(key, last, count, state.deleted, state.last if self.is_bounded else "")

    def check_cut(self) -> None:
        """See ``kit.history.CutSource``.

        Raises: LateCut: records at the cut may be gone, or may still come in front of it.
        """
        with self.server.client() as client:
            places = [self._begin(client, key) for key in self.keys]
        for place in places:
            if place.count:
                reason = f"the first {place.count} entries of the stream {place.key} are gone"
                raise LateCut(repr(self), reason, LATER_ADVICE)

    def check_split(self, split: bytes) -> None:
        """Raises: SplitMalformed: it is none of these streams."""
        if place_of_split(split).key not in self.keys:
            raise SplitMalformed("stream of Redis", split, f"{self!r} does not read it")

    def reader(self) -> EntryReader:
        """Creates a reader."""
        return EntryReader(self)


def place_of_split(data: bytes) -> EntryPlace:
    """Returns what a split or a mark says. Raises: SplitMalformed."""
    return decoded_split(_decoder, "stream of Redis", data)


class EntryReader:
    """Reader of a stream (``SplitReader``)."""

    def __init__(self, source: EntrySource[Any]) -> None:
        self._source, self._client = source, source.server.client()
        self._at = EntryPlace("", FIRST, 0, FIRST)
        self._added: int | None = None  # entries that were ever added, at the last read

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Goes to a place. Raises: SplitMalformed."""
        self._at = place_of_split(split if mark is None else mark)

    def read(self, records_max: int) -> list[Any] | None:
        """Returns entries, [] if there are none now, None at the end.

        Raises: MessagesLost. SystemUnreachable: for 15 s. SystemRefused.
        """
        at, most = self._at, min(records_max, READ_MAX)
        if at.end and number_of(at.last) >= number_of(at.end):
            return None
        found, state = self._patient_answer(most)
        self._added = state.added
        check_lost(at, state, at.count + len(found) if len(found) < most else None)
        if at.end:
            end = number_of(at.end)
            found = [each for each in found if number_of(each[0].decode()) <= end]
            if not found:  # the last entry was deleted before the job began
                return None
        if found:
            self._at = msgspec.structs.replace(at, last=found[-1][0].decode(), count=at.count + len(found))
        return self._records(found)

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``: not known before the first read, nor up to an end of the job."""
        added, at = self._added, self._at
        return None if added is None or at.end else PendingInput(max(0, added - at.count))

    def mark(self) -> bytes:
        """Returns the place after what was read."""
        return msgspec.json.encode(self._at)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _patient_answer(self, entries_max: int) -> tuple[list[RawEntry], StreamState]:
        for attempt in Attempts():
            try:
                return self._answer(entries_max)
            except SystemUnreachable:
                if attempt.is_last:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, entries_max: int) -> tuple[list[RawEntry], StreamState]:
        """Returns the next entries, and the state of the stream at the same moment."""
        at, doing = self._at, f"reading the stream {self._at.key}"
        with self._source.server.asking(doing):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.execute_command("XRANGE", at.key, f"({at.last}", "+", "COUNT", entries_max)
            pipeline.execute_command("XINFO", "STREAM", at.key)
            found, answer = pipeline.execute()
        return found, state_of(answer, self._source.server, doing)

    def _records(self, found: list[RawEntry]) -> list[Any]:
        key = self._at.key

        def described(at: int) -> tuple[Entry, str]:
            entry = entry_of(key, found[at], "backslashreplace")
            return entry, f"entry {entry.id} of the stream {key}"

        records = decoded(self._decoded, found, described)
        if self._source.own_timestamps is None:
            return records
        return stamped(records, (number_of(name.decode())[0] * MILLISECOND_NS for name, _ in found))

    def _decoded(self, raw: RawEntry) -> Any:
        """Raises: UndecodableBytes: it cannot be an ``Entry``, or has not one field that the codec decodes."""
        source = self._source
        if source.codec is None:
            entry = entry_of(self._at.key, raw)
            if 2 * len(entry.fields) != len(raw[1]):
                raise UndecodableBytes(CONNECTOR, "it has two fields of one name")
            return entry
        payloads = [value for name, value in zip(raw[1][::2], raw[1][1::2], strict=True) if name == source.field]
        if len(payloads) != 1:
            raise UndecodableBytes(CONNECTOR, f"it has {len(payloads)} fields {source.field.decode()!r}")
        return source.codec.decode(payloads[0])


def state_of(answer: list[Any], server: RedisServer, doing: str) -> StreamState:
    """Returns what XINFO STREAM says.

    Raises: SystemRefused: the server does not count entries.
    """
    found = dict(zip(answer[::2], answer[1::2], strict=True))
    if b"entries-added" not in found:
        raise SystemRefused(REDIS, server.place, doing, "it does not count entries", "Use Redis 7.0 or later.")
    last, deleted = (found[name].decode() for name in (b"last-generated-id", b"max-deleted-entry-id"))
    return StreamState(found[b"length"], found[b"entries-added"], last, deleted)


def check_lost(at: EntryPlace, state: StreamState, end: int | None) -> None:
    """Checks that a stream has all entries after a place. ``end``: how many entries there are with the last one read,
    None if there may be more.

    Raises: MessagesLost: it has not.
    """
    if number_of(state.deleted) > max(number_of(at.last), number_of(at.deleted)):
        reason = f"entries up to {state.deleted} have been deleted"
    elif state.added - state.length > at.count:
        reason = (
            f"of {state.added} entries that were ever added {state.length} are left, and the job has read {at.count}"
        )
    elif state.added < at.count or (end is not None and end != state.added):
        read = f"the job has read {at.count}" + (f" and finds {end - at.count} more" if end else "")
        reason = f"{state.added} entries were ever added, and {read}: it was made anew"
    else:
        return
    raise MessagesLost(f"the stream {at.key}", f"what follows {at.last}", reason)


def entry_of(key: str, raw: RawEntry, errors: str = "strict") -> Entry:
    """Returns an entry.

    Raises: UndecodableBytes: the name of a field is not in UTF-8.
    """
    name, fields = raw[0].decode(), raw[1]
    try:
        named = {field.decode("utf-8", errors): value for field, value in zip(fields[::2], fields[1::2], strict=True)}
    except UnicodeDecodeError as error:
        raise UndecodableBytes(CONNECTOR, f"the name of a field is not in UTF-8: {error}") from None
    return Entry(key, name, number_of(name)[0], named)


def number_of(name: str) -> tuple[int, int]:
    """Returns an id as numbers, which have its order."""
    time, _, number = name.partition("-")
    return int(time), int(number)


class EntryOptions(AddressOptions, LogOptions, total=False):
    """Options of ``redis.source``, which describes them."""

    field: Annotated[str, DATA_FIELD]
    start: Annotated[Literal["earliest", "latest"], "earliest"]


@overload
def source(keys: Keys, *, decode: None = None, **options: Unpack[EntryOptions]) -> EntrySource[Entry]: ...


@overload
def source(keys: Keys, *, decode: Callable[[bytes], T], **options: Unpack[EntryOptions]) -> EntrySource[T]: ...


@overload
def source(keys: Keys, *, decode: Any, **options: Unpack[EntryOptions]) -> EntrySource[Any]: ...


@explains_calls
def source(keys: Keys, *, decode: Any = None, **options: Unpack[EntryOptions]) -> EntrySource[Any]:
    """Source of the entries of streams, in the order of each stream.

    Args:
        keys: the key of a stream, or several; each of them is a split, which another task may read. They must exist.
        url: redis://user@host:6379/0, or rediss:// for TLS.
        password: password of the user, in place of that of the URL.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the server asks for one.
        decode: a codec, a type or a function of a field. Entries that it does not decode go to ``errors=``. None:
            records are of the class ``Entry``.
        field: the field that is decoded.
        start: where the job begins when it first starts: "earliest" or "latest".
        until: "latest": each stream ends where it ended at the start of the job. None: the source never ends.
        out_of_order: gives records the times of their ids, and each stream a watermark that far behind its latest.
        idle_after: time after which a stream without entries does not hold event time back any more.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(redis.source("orders", url="redis://localhost", decode=codecs.json()))
    """
    found = (keys,) if isinstance(keys, str) else tuple(keys)
    start, field = options["start"], options["field"]
    if not found or not all(type(each) is str and each for each in found) or len(set(found)) < len(found):
        raise InvalidConnector(CONNECTOR, f"the keys are {keys!r:.80}", "Give the key of a stream, or several.")
    if start not in ("earliest", "latest"):
        raise InvalidConnector(CONNECTOR, f"start is {start!r:.80}", 'Give "earliest" or "latest".')
    if type(field) is not str or not field:
        raise InvalidConnector(CONNECTOR, f"field is {field!r:.80}", "Give the name of a field.")
    return EntrySource(
        found,
        RedisServer(CONNECTOR, options),
        decode=decode,
        field=field,
        start=start,
        is_bounded=is_bounded(CONNECTOR, options.get("until"), "latest"),
        own_timestamps=own_timestamps(CONNECTOR, options),
    )
