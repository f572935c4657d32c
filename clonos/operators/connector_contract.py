"""What connectors implement: sources that can be re-read, sinks that commit by epoch, sinks that write at once.

A ``Source`` or a sink is a description: it travels to the slots by cloudpickle; readers and writers are made there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import typing_extensions

    AnyRecord = typing_extensions.TypeVar("AnyRecord", covariant=True, default=Any)
else:
    AnyRecord = TypeVar("AnyRecord", covariant=True)
"""The type of a source's records, as the type checker finds it in what ``read`` of its reader returns."""


class RecordBatch(Protocol):
    """What is used here of a ``pyarrow.RecordBatch``, which ships no types."""

    @property
    def num_rows(self) -> int: ...

    def slice(self, offset: int = 0, length: int | None = None) -> Any: ...

    def to_pylist(self) -> list[Any]: ...


@runtime_checkable
class Source(Protocol[AnyRecord]):
    """Where records come from. The same split read from the same mark gives the same records, for ever.

    A source whose reader gives columns says so by an attribute ``is_columnar = True``: steps that work on columns
    may then follow it. Without it columns become rows, one dict a record.
    """

    def splits(self, parallelism: int) -> list[bytes]:
        """Called once, by the driver, when the job first starts: self-describing splits (size, mtime, block ...)."""

    def reader(self) -> SplitReader[AnyRecord]:
        """A reader, made in the slot; one for each split that is open."""


@runtime_checkable
class WatchedSource(Protocol):
    """What a ``Source`` has besides, that finds further splits while the job runs. Such a job ends when it is stopped.

    ``look_every_ns``: how often its tasks look; 0: never, it is an ordinary source.
    """

    look_every_ns: int

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """In the slot: splits that are not in ``known`` and belong to task ``index`` of ``parallelism``. Every split
        belongs to one task, the same whoever asks."""


@runtime_checkable
class CheckingSource(Protocol):
    """What a ``Source`` may have besides: says whether a split from the store can be its own, before anything is read
    that somebody else has named there."""

    def check_split(self, split: bytes) -> None:
        """Raises a ``ClonosError`` if neither ``splits`` nor ``discover`` can have made it."""


def check_split(source: object, split: bytes) -> None:
    """Asks a source that can tell."""
    if isinstance(source, CheckingSource):
        source.check_split(split)


def look_every_ns(source: object) -> int:
    """How often a source looks for further splits; 0: never."""
    return source.look_every_ns if isinstance(source, WatchedSource) else 0


class SplitReader(Protocol[AnyRecord]):
    """Reads one split at a time, forward."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Positions at ``mark`` (an earlier answer of ``mark()`` for this split), or at the split's beginning."""

    def read(self, records_max: int) -> Sequence[AnyRecord] | RecordBatch | None:
        """At least one and at most ``records_max`` records, as rows or as a ``pyarrow.RecordBatch``; [] when nothing is
        there just now (unbounded sources); None at the end of the split."""

    def mark(self) -> bytes:
        """Where the next ``read`` begins."""

    def close(self) -> None:
        """Releases what is open."""


@runtime_checkable
class PushedSource(Protocol[AnyRecord]):
    """Where records come from that nobody can be asked for again. Whoever sends them is the pusher.

    Read by one task. The runtime keeps the bytes that a feed gives in a journal, apart from the task's process, before
    anybody sees them (``docs/protocol.md``, section 7), and reads that. No record ends with the byte 4.
    """

    def feed(self, offset_bytes: int) -> Feed:
        """A connection to the pusher, made in the task's slot in a thread of its own. ``offset_bytes``: how many of the
        pusher's bytes are kept, from earlier connections. Raises an ``EnvironmentFault``; then it is tried again."""

    def cut(self, data: bytes) -> list[bytes]:
        """The records in some bytes of the journal, whole, none left out: joined they are the same bytes."""

    def decode(self, records: list[bytes]) -> Sequence[AnyRecord]:
        """Their values, as steps get them."""


class Feed(Protocol):
    """One connection to a pusher. Its methods may block and raise; one thread calls them."""

    def receive(self, wait_ms: int) -> bytes | None:
        """Bytes of whole records, as soon as there are any; b"" if there are none within ``wait_ms``; None when the
        pusher has no more. Raises an ``EnvironmentFault`` when the connection breaks."""

    def acknowledge(self, offset_bytes: int) -> None:
        """So many of the pusher's bytes are kept; it may forget them. Told where its protocol has a word for it."""

    def close(self) -> None:
        """Closes the connection."""


class WriterContext(NamedTuple):
    """Names of a sink task's life, for file names and registrations."""

    job_id: str
    task_name: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name
    generation: int
    incarnation: int


@runtime_checkable
class TransactionalSink(Protocol):
    """Output is prepared at each barrier and committed when its checkpoint is complete.

    One with the attribute ``is_columnar`` set prefers columns: a ``count()`` by a key column then gives it batches of
    that column and ``count`` instead of tuples. From other steps it gets what they give.
    """

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """In the driver at the job's start: refuses an output in use, or clears it."""

    def writer(self) -> TransactionalWriter:
        """A writer, made in the slot."""

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """In the driver, after the checkpoint's metadata is durable; may be repeated with the same arguments."""


class TransactionalWriter(Protocol):
    """One incarnation's writer of one sink task."""

    def open(self, context: WriterContext) -> None: ...

    def write(self, rows: list[Any]) -> None: ...

    def write_columns(self, batch: Any) -> None: ...

    def prepare(self, checkpoint: int) -> bytes | None:
        """Makes everything written since the last call durable and invisible; describes it. None: nothing written."""

    def close(self) -> None: ...


class OutsideIdentity(NamedTuple):
    """Who registers with an outside: the outside keeps the next number by (job_id, task_name)."""

    job_id: str
    task_name: str
    generation: int
    incarnation: int


@runtime_checkable
class ImmediateSink(Protocol):
    """Output leaves as soon as the keepers hold its causes; repeated output is dropped by number.

    One whose outside withdraws output when it is registered says so by an attribute ``is_withdrawing = True``.
    """

    def outside(self) -> Outside:
        """A connection to the outside, made in the sink task's slot."""


class Registration(NamedTuple):
    """An outside's answer to a registration.

    ``next_number``: of the next output, in the identity's generation. ``superseded_next``: where the output of earlier
    generations ends that could not be withdrawn, if this is the first registration of a new one, else None: output from
    ``restored_number`` up to there has left and may leave again (an alarm is raised with these numbers).
    """

    next_number: int
    superseded_next: int | None


class Outside(Protocol):
    """One registered connection. All its methods may block and raise; they run in a thread of their own."""

    def register(self, identity: OutsideIdentity, restored_number: int) -> Registration:
        """Fences earlier incarnations and answers the number of the next output (0 at first). The first registration of
        a new generation sets it to ``restored_number``, from where the rolled-back job goes on; an outside that can
        withdraws, in the same atom, all output from there on."""

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Rows numbered from ``first_number``, in one atom with the next number, which is answered. What lies below
        the outside's next number is dropped. Raises ``OutsideFenced`` if a later incarnation has registered."""

    def close(self) -> None: ...


@runtime_checkable
class ForgettingOutside(Protocol):
    """What an ``Outside`` has besides that keeps something to be able to withdraw output."""

    def forget(self, before_number: int) -> None:
        """The checkpoints that are kept hold all output below ``before_number``: what would withdraw it may go. Called
        in order with writes, after each completed checkpoint; a call that raises is not repeated."""


def forget(outside: object, before_number: int) -> None:
    """Tells an outside what it may forget, if it keeps anything."""
    if isinstance(outside, ForgettingOutside):
        outside.forget(before_number)


@runtime_checkable
class KeyedSink(Protocol):
    """What an ``ImmediateSink`` has besides that keeps one row for each key: the stream must be keyed by the key.

    ``key_columns``: names of the key's columns; empty: there is no key. ``columns``: names of all columns, in the order
    of a tuple's fields.
    """

    @property
    def key_columns(self) -> tuple[str, ...]: ...

    @property
    def columns(self) -> tuple[str, ...] | None: ...


def keyed_sink(sink: object) -> KeyedSink | None:
    """The sink, if it keeps one row for each key."""
    return sink if isinstance(sink, KeyedSink) and sink.key_columns else None


class OutsideFenced(Exception):
    """A later incarnation of this sink task has registered with the outside. ``by``: (generation, incarnation) of that
    one, where the outside tells; the coordinator then learns of it, should nobody who is alive know."""

    def __init__(self, text: str = "", by: tuple[int, int] | None = None) -> None:
        super().__init__(text)
        self.by = by
