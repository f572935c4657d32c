"""Contract of connectors: sources that can be replayed, sinks that commit by checkpoint, sinks that write at once.

A ``Source`` or a sink is a description that travels to the slots by cloudpickle; readers and writers are created there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from clonos.kernels.record_batch import RecordBatch

if TYPE_CHECKING:
    import typing_extensions

    AnyRecord = typing_extensions.TypeVar("AnyRecord", covariant=True, default=Any)
else:
    AnyRecord = TypeVar("AnyRecord", covariant=True)
"""Type of a source's records, which a type checker infers from ``read`` of its reader."""


@runtime_checkable
class Source(Protocol[AnyRecord]):
    """Source that can be replayed: the same split read from the same mark gives the same records, at any later time.

    If its reader returns columns, the source has the attribute ``is_columnar = True``, or ``gives_columns = True`` if
    it is a sink too that takes rows as they come. Steps that work on columns may follow it. Without the attribute
    columns become rows, a dict per record.
    """

    def splits(self, parallelism: int) -> list[bytes]:
        """Lists the splits of the input, in the driver when the job first starts.

        A split describes itself, for example by path, size, modification time and range of bytes. It is stored with the
        job.
        """

    def reader(self) -> SplitReader[AnyRecord]:
        """Creates a reader, in the slot; each open split has its own."""


@runtime_checkable
class WatchedSource(Protocol):
    """``Source`` that finds new splits while the job runs. Such a job runs until it is stopped.

    ``discovery_interval_ns`` is the interval of the search in nanoseconds; 0 makes it an ordinary source.
    """

    discovery_interval_ns: int

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """Returns the splits that are not in ``known`` and belong to task ``index`` of ``parallelism``, in the slot.

        Each split belongs to one task, the same for every caller.
        """


@runtime_checkable
class TimedSource(Protocol):
    """``Source`` whose records show how far event time has come.

    ``watermark_every_ns`` is the least rise of event time between two watermarks, in nanoseconds. ``idle_after_ns`` is
    the time after which a split without records does not hold the watermark back any more; it may take twice as long.
    With 0 it holds it back for ever.
    """

    watermark_every_ns: int
    idle_after_ns: int

    def watermark(self, before_ns: int | None, records: Any) -> int | None:
        """Returns the watermark of a split after ``records``, rows or a ``pyarrow.RecordBatch`` as its reader gave
        them but without malformed ones, before which it was ``before_ns``: no later record of the split has an earlier
        timestamp.

        Nanoseconds since the Unix epoch; None while it is not known. It must depend on these arguments alone, not on a
        clock, because a replay asks again. Reads may cut the records anywhere.
        """


@runtime_checkable
class OrderedSource(Protocol):
    """``Source`` that can read its input in few splits that keep the order of records, or in many that do not."""

    def in_order(self) -> Any:
        """Returns this source with splits that keep the order, unless its user has decided otherwise.

        Called when a step that follows depends on the order of records.
        """

    def order_note(self, splits: Sequence[bytes], parallelism: int) -> str:
        """Returns a sentence for users if so few splits leave tasks without work, else ""."""


def in_order(source: object) -> Any:
    """Returns the source with splits that keep the order; the source itself if it has no such choice."""
    return source.in_order() if isinstance(source, OrderedSource) else source


@runtime_checkable
class PhasedSource(Protocol):
    """``Source`` whose splits are read in phases: those of a phase when all of earlier ones have ended. One task reads
    it.
    """

    def phase_of(self, split: bytes) -> int:
        """Returns the number of the phase of a split, from 0."""


@runtime_checkable
class CheckingSource(Protocol):
    """``Source`` that can check splits from the store before it reads what they name."""

    def check_split(self, split: bytes) -> None:
        """Checks that ``splits`` or ``discover`` can have made the split.

        Raises:
            ClonosError: they cannot.
        """


def check_split(source: object, split: bytes) -> None:
    """Checks a split if its source can."""
    if isinstance(source, CheckingSource):
        source.check_split(split)


class PendingInput(NamedTuple):
    """Amount of input that waits in the external system after a position of a split.

    ``records``: exact, or None if the external system counts bytes only. ``bytes`` are then the unread bytes, and
    ``read_bytes`` those of the split before the position: from both follows how many records the unread bytes are.
    """

    records: int | None = None
    bytes: int | None = None
    read_bytes: int = 0


@runtime_checkable
class PendingReader(Protocol):
    """``SplitReader`` that knows how much of its split it has not read."""

    def pending(self) -> PendingInput | None:
        """Returns how much of the split waits after what ``read`` has returned; None while it is not known.

        Another thread than that of ``read`` calls this, about once a second. It must not wait nor ask the external
        system: ``read`` notes what it learns. An exception is logged and does not fail the task.
        """


def pending_of(reader: object) -> PendingInput | None:
    """Returns how much a reader says that it has not read; None if it does not say."""
    return reader.pending() if isinstance(reader, PendingReader) else None


@runtime_checkable
class PendingSource(Protocol):
    """``Source`` that knows how much a split has that no reader has opened yet."""

    def pending(self, split: bytes, mark: bytes | None) -> PendingInput | None:
        """Returns how much of a split waits after a mark; None if its description does not tell. See
        ``PendingReader``.
        """


def discovery_interval_ns(source: object) -> int:
    """Returns the interval in which a source looks for new splits, in nanoseconds; 0 for never."""
    return source.discovery_interval_ns if isinstance(source, WatchedSource) else 0


class MalformedRecord(NamedTuple):
    """Record whose bytes a source cannot decode. ``record`` is what the error output of the job gets."""

    record: Any
    error: Exception


class PartlyMalformed(list[Any]):
    """Records of a ``read`` or ``decode``, some of which are a ``MalformedRecord``.

    Its source has the attribute ``routes_malformed = True``. Such a record goes to the error output of the job; without
    one it fails the job.
    """


class SplitReader(Protocol[AnyRecord]):
    """Reader of one split at a time, forward."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at ``mark``, an earlier result of ``mark()`` for it, or at its beginning."""

    def read(self, records_max: int) -> Sequence[AnyRecord] | RecordBatch | None:
        """Returns 1 to ``records_max`` records, as rows or as a ``pyarrow.RecordBatch``.

        Returns [] if an unbounded source has none at the moment, None at the end of the split.
        """

    def mark(self) -> bytes:
        """Returns the position at which the next ``read`` begins."""

    def close(self) -> None:
        """Releases what is open."""


@runtime_checkable
class PushSource(Protocol[AnyRecord]):
    """Source that cannot be replayed, because a producer pushes its records.

    One task reads it. The runtime keeps the bytes of its connections in a journal, outside the process of the task,
    before it processes them (``docs/protocol.md``, section 7). No record ends with the byte 4.
    """

    def connect(self, offset_bytes: int) -> ProducerConnection:
        """Connects to the producer, in a thread of the task's slot.

        ``offset_bytes`` of its bytes are journalled already.

        Raises:
            EnvironmentFault: the connection fails; the runtime tries again.
        """

    def cut(self, data: bytes) -> list[bytes]:
        """Splits bytes of the journal into complete records, whose concatenation is the input."""

    def decode(self, records: list[bytes]) -> Sequence[AnyRecord]:
        """Decodes records to the values that the job processes."""


class ProducerConnection(Protocol):
    """Connection to a producer. One thread calls its methods, which may block and raise."""

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns the bytes of complete records as soon as there are any.

        Returns b"" if there are none within ``wait_ms``, None if the producer has ended.

        Raises: EnvironmentFault: the connection breaks, and another one is made. ProducerGivenUp: none is to be made.
        """

    def acknowledge(self, offset_bytes: int) -> None:
        """Tells the producer, if its protocol can, that ``offset_bytes`` of its bytes are journalled."""

    def close(self) -> None:
        """Closes the connection."""


class WriterContext(NamedTuple):
    """Names of an incarnation of a sink task, for file names and registrations."""

    job_id: str
    task_name: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name
    generation: int
    incarnation: int


@runtime_checkable
class TransactionalSink(Protocol):
    """Sink whose output is prepared at each barrier and committed when the checkpoint is complete.

    A sink with the attribute ``is_columnar = True`` prefers columns: a ``count()`` by a key column then sends it
    batches of that column and ``count`` instead of tuples. Other steps send what they have.
    """

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Claims or clears the output, in the driver at the start of the job; raises if it is in use."""

    def writer(self) -> TransactionalWriter:
        """Creates a writer, in the slot."""

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Makes prepared parts visible, in the driver when the checkpoint is durable.

        May be repeated with equal arguments.
        """


@runtime_checkable
class RollbackSink(Protocol):
    """``TransactionalSink`` that can remove what it has committed, for ``--resume --checkpoint N``."""

    def roll_back(self, job_id: str, checkpoint: int) -> list[int]:
        """Removes the output committed after ``checkpoint``, in the driver; returns the numbers of those checkpoints.

        May be repeated with equal arguments.
        """


@runtime_checkable
class FinishingSink(Protocol):
    """``TransactionalSink`` that does something when all sources have ended and all output is committed."""

    def finish_output(self, job_id: str) -> None:
        """Completes the output, in the driver at the end of the job. A resume of the ended job repeats the call."""


def finish_output(sinks: Iterable[object], job_id: str) -> None:
    """Calls ``finish_output`` of each sink that has it."""
    for sink in sinks:
        if isinstance(sink, FinishingSink):
            sink.finish_output(job_id)


@runtime_checkable
class AbortingSink(Protocol):
    """``TransactionalSink`` that can remove what its writers have prepared and no checkpoint will commit."""

    def abort(self, job_id: str, checkpoint: int, generation: int) -> None:
        """Removes it up to a checkpoint and a generation, in the driver after a commit. May be repeated."""


class TransactionalWriter(Protocol):
    """Writer of one incarnation of a sink task."""

    def open(self, context: WriterContext) -> None:
        """Opens the writer for one incarnation, before the first row."""

    def write(self, rows: list[Any]) -> None:
        """Writes rows that become visible when a later checkpoint commits them."""

    def write_columns(self, batch: RecordBatch) -> None:
        """Writes the rows of a ``pyarrow.RecordBatch``."""

    def prepare(self, checkpoint: int) -> bytes | None:
        """Makes the rows since the last call durable but not visible.

        Returns a part that describes them; None if there are no rows.
        """

    def close(self) -> None:
        """Releases what is open, and discards rows that are not prepared."""


@runtime_checkable
class AsideWriter(Protocol):
    """``TransactionalWriter`` that may have written other rows of a batch when it finds a row that it cannot hold.

    With an error output ``set_aside`` is called with the error, the row, and its index in the batch; the writer goes on
    with the other rows. None: the writer raises.
    """

    set_aside: Callable[[Exception, Any, int], None] | None


class WriterIdentity(NamedTuple):
    """Identity of a sink task in an external system, which keeps the next number by (job_id, task_name)."""

    job_id: str
    task_name: str
    generation: int
    incarnation: int

    @property
    def id_space(self) -> str:
        """Begin of the ids of this task's rows, which their numbers follow: no such id names two rows.

        A number names one row in a generation. The job begins another generation when it cannot repeat what has left.
        """
        return f"{self.job_id}/{self.task_name}/{self.generation}"


@runtime_checkable
class ImmediateSink(Protocol):
    """Sink that writes each row as soon as its causes are replicated; repeated rows are dropped by their number.

    If its external system withdraws rows at a registration, the sink has the attribute ``can_roll_back = True``. It has
    ``replaces_rows = False`` too if no row replaces one of another task: then each task withdraws its own rows, and no
    order counts.
    """

    def immediate_writer(self) -> ImmediateWriter:
        """Creates a connection to the external system, in the slot of the sink task."""


@runtime_checkable
class RefusingSink(Protocol):
    """``ImmediateSink`` that tells which rows it can never write, before they have numbers.

    Rows that it refuses go to the error output of the job.
    """

    def check_row(self, row: Any) -> None:
        """Checks a row, in a job with an error output. It must depend on the row and the sink alone: a replay repeats
        it.

        Raises: RowNotWritable: its writers would refuse the row.
        """

    # A sink of columns has ``holds(batch)`` too: whether no row of a ``pyarrow.RecordBatch`` can be refused.


class Registration(NamedTuple):
    """Result of a registration.

    ``next_number`` is the number of the next row. ``superseded_next`` is None, or at the first registration of a
    generation the end of the rows from ``restored_number`` on that could not be withdrawn: they may be repeated with
    other content, and an alarm is raised with these numbers.

    ``knows_output`` is False if the external system does not say which rows it has: ``next_number`` is then
    ``restored_number``, and rows come again under their number. A task that finds no copy of its log rolls the job back
    then, because rows of this generation may have left that it cannot repeat. The next generation raises an alarm with
    the first number that may come again.
    """

    next_number: int
    superseded_next: int | None
    knows_output: bool = True


class ImmediateWriter(Protocol):
    """Registered connection to an external system. One thread calls its methods, which may block and raise."""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Registers an incarnation, which fences earlier ones, and returns the number of the next row, at first 0.

        The first registration of a generation resets that number to ``restored_number``, where the rolled-back job
        continues, and if possible withdraws, in the same transaction, all rows from there on.

        Raises:
            WriterFenced: a later incarnation has registered.
        """

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Writes rows numbered from ``first_number`` and advances the next number in one transaction; returns it.

        Rows below the next number were written before and are dropped.

        Raises:
            WriterFenced: a later incarnation has registered.
        """

    def close(self) -> None:
        """Closes the connection."""


@runtime_checkable
class TruncatingWriter(Protocol):
    """``ImmediateWriter`` that keeps data for withdrawing rows, and is told when to delete it."""

    def forget(self, before_number: int) -> None:
        """Deletes what is kept to withdraw rows below ``before_number``, which all retained checkpoints contain.

        Called in order with writes, after each completed checkpoint; a call that raises is not repeated.
        """


def forget(writer: object, before_number: int) -> None:
    """Calls ``forget`` of an ``ImmediateWriter`` that has it."""
    if isinstance(writer, TruncatingWriter):
        writer.forget(before_number)


@runtime_checkable
class KeyedSink(Protocol):
    """``ImmediateSink`` that keeps one row per key; its stream must be keyed by that key.

    ``key_columns`` are the names of the key columns, () without a key. ``columns`` are the names of all columns in the
    order of a tuple's fields.
    """

    @property
    def key_columns(self) -> tuple[str, ...]: ...

    @property
    def columns(self) -> tuple[str, ...] | None: ...


def keyed_sink(sink: object) -> KeyedSink | None:
    """Returns the sink if it keeps one row per key, else None."""
    return sink if isinstance(sink, KeyedSink) and sink.key_columns else None


class WriterFenced(Exception):
    """A later incarnation of this sink task has registered with the external system.

    ``by`` is its (generation, incarnation) if the external system tells it. Without, the task is restarted unless the
    coordinator has ended it already.
    """

    def __init__(self, text: str = "", by: tuple[int, int] | None = None) -> None:
        super().__init__(text)
        self.by = by
