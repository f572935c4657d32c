"""The transactional Kafka sink: rows of a checkpoint go out together when it is complete, each once.

The rows that a task has prepared are a part, which is stored with the checkpoint. The driver writes them to Kafka when
the checkpoint is complete, in one transaction per task. No transaction of Kafka stays open across a barrier.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, overload

import msgspec

from clonos.connectors.driver_outputs import PART_BYTES_MAX, OutputTooLarge
from clonos.connectors.kafka.client import Cluster
from clonos.connectors.kafka.committing import TaskOutput, is_started, mark_started
from clonos.connectors.kafka.kafka_sink_base import CONNECTOR, KafkaSink
from clonos.connectors.kafka.message import RowForm
from clonos.connectors.kafka.transactions import ProducedRecord, Transactions
from clonos.core.model.errors import InternalError
from clonos.core.values.column_rows import rows_of_columns
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.core.wire.log_delta import Count
from clonos.io.lz4_frames import RATIO_MAX, FrameDamaged, compress, decompress
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import WriterContext

PART_FORMAT: Final = 1
TRANSACTION_MS: Final = 60_000
"""Least time after which the brokers end a transaction that the driver has left open."""

TRANSACTION_MS_MAX: Final = 900_000
"""Longest such time that brokers allow by default (``transaction.max.timeout.ms``)."""

BYTES_PER_MS: Final = 500
"""Rate at which output goes to Kafka at least."""

REPEAT_S: Final = 3_600.0
"""Time after which the number of the job is committed again, with the next output."""

ERRORS_STEP: Final = "errors"


class _Batch(msgspec.Struct, frozen=True, array_like=True):
    """Encoded messages, as an LZ4 frame of this content length."""

    count: Count
    length_bytes: Count
    frame: bytes

    def check(self) -> None:
        """Checks that the frame can hold this many messages. Raises: InternalError."""
        if not self.count <= self.length_bytes <= len(self.frame) * RATIO_MAX:
            raise _no_part(self.frame, f"{len(self.frame)} bytes cannot hold {self.count} messages")

    def messages(self) -> list[ProducedRecord]:
        """Returns the messages.

        Raises: InternalError: the frame does not hold them.
        """
        try:
            found = _messages_decoder.decode(decompress(self.frame, self.length_bytes))
        except (FrameDamaged, *DECODE_ERRORS) as error:
            raise _no_part(self.frame, str(error)) from None
        if len(found) != self.count:
            raise _no_part(self.frame, f"it has {len(found)} messages, not {self.count}")
        return found


class _Part(msgspec.Struct, frozen=True, array_like=True):
    format: int
    index: Count
    checkpoint: Count
    batches: tuple[_Batch, ...]


_encoder: Final = msgspec.msgpack.Encoder()
_part_decoder: Final = msgspec.msgpack.Decoder(_Part)
_messages_decoder: Final = msgspec.msgpack.Decoder(list[ProducedRecord])


class TransactionalOutput(Sequence[ProducedRecord]):
    """Messages of one task in the order of their checkpoints. One batch at a time is decompressed."""

    def __init__(self, batches: Sequence[_Batch]) -> None:
        self._batches = batches
        self._ends = list(accumulate(batch.count for batch in batches))
        self._opened = -1, list[ProducedRecord]()
        self.size_bytes = sum(batch.length_bytes for batch in batches)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> ProducedRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ProducedRecord]: ...

    def __getitem__(self, index: int | slice) -> ProducedRecord | Sequence[ProducedRecord]:
        """Returns the message at an index. Raises: IndexError. InternalError: its batch is damaged."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._ends, index)
        if self._opened[0] != number:
            self._opened = number, self._batches[number].messages()
        return self._opened[1][index - self._ends[number]]  # counted from the end of the batch


class TransactionalKafkaSink(KafkaSink):
    """Sink that writes the rows of a checkpoint when it is complete (``TransactionalSink``)."""

    mode = "transactional"
    routes_refused = True

    def __init__(self, cluster: Cluster, topic: str, form: RowForm) -> None:
        super().__init__(cluster, topic, form)
        self._step = ERRORS_STEP
        self._outputs: dict[int, tuple[TaskOutput, Transactions]] = {}
        self._marked_s = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the connections of the driver."""
        return {**vars(self), "_outputs": {}}

    def take_step(self, step: str) -> None:
        """Takes the name of the step: two sinks of a job may write to one topic."""
        self._step = step

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Looks for the topic, and at a fresh start commits the number of the job."""
        if not resume:
            self._mark(job_id)

    def writer(self) -> TransactionalKafkaWriter:
        """Creates a writer, in the slot."""
        return TransactionalKafkaWriter(self.form)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Writes the rows of each task in one transaction, unless they are there.

        Raises: NumberLost, MessageRefused, SystemRefused, SystemUnreachable.
        """
        of_task = outputs_of(parts)
        may_be_first = bool(of_task) and self._is_marked(job_id)
        for index, messages in sorted(of_task.items()):
            output, transactions = self._output(self._name(job_id, str(index)), index, messages.size_bytes)
            transactions.run(output.commit(checkpoint, len(messages), may_be_first), messages)
        if of_task and time.monotonic() - self._marked_s > REPEAT_S:
            self._mark(job_id)

    def close_output(self) -> None:
        """Closes the connections of the driver, which commits nothing more."""
        outputs, self._outputs = self._outputs, {}
        for _, transactions in outputs.values():
            transactions.close()

    def _name(self, job_id: str, what: str) -> str:
        return f"clonos-{job_id}-{self._step}/{what}/committed"

    def _output(self, name: str, index: int, size_bytes: int) -> tuple[TaskOutput, Transactions]:
        """Returns the session of a task, a new one if transactions of the present one end too early for this output."""
        needed_ms = transaction_ms(size_bytes)
        found = self._outputs.get(index)
        if found is None or found[1].transaction_ms < needed_ms:
            if found is not None:
                found[1].close()
            found = TaskOutput(name, self.cluster.servers), self._transactions(name, needed_ms)
            self._outputs[index] = found
        return found

    def _transactions(self, name: str, transaction_ms: int = TRANSACTION_MS) -> Transactions:
        return Transactions(self.cluster, self.topic, name, transaction_ms=transaction_ms)

    def _mark(self, job_id: str) -> None:
        name = self._name(job_id, "start")
        transactions = self._transactions(name)
        try:
            transactions.run(mark_started(name, self.cluster.servers))
        finally:
            transactions.close()
        self._marked_s = time.monotonic()

    def _is_marked(self, job_id: str) -> bool:
        if self._marked_s:  # by this process
            return True
        transactions = self._transactions(self._name(job_id, "start"))
        try:
            return transactions.run(is_started())
        finally:
            transactions.close()


class TransactionalKafkaWriter:
    """Writer of one task: encoded messages wait in memory until the barrier."""

    def __init__(self, form: RowForm, *, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._form = form
        self._part_bytes_max = part_bytes_max
        self._index = 0
        self._batches: list[_Batch] = []
        self._size_bytes = 0

    def open(self, context: WriterContext) -> None:
        """Takes the index of the task."""
        self._index = context.index

    def write(self, rows: list[Any]) -> None:
        """Keeps rows as messages.

        Raises: RowNotWritable: a row cannot be a message. OutputTooLarge: the part exceeds ``PART_BYTES_MAX``.
        """
        if not rows:
            return
        messages = [self._form.outgoing(row, index, []) for index, row in enumerate(rows)]
        content = _encoder.encode(messages)
        batch = _Batch(len(messages), len(content), compress(content))
        self._batches.append(batch)
        self._size_bytes += len(batch.frame)
        if self._size_bytes > self._part_bytes_max:
            raise OutputTooLarge(CONNECTOR, "bytes from one task between two checkpoints", self._part_bytes_max)

    def write_columns(self, batch: RecordBatch) -> None:
        """Keeps the rows of a ``pyarrow.RecordBatch`` as dicts."""
        self.write(rows_of_columns(batch))

    def prepare(self, checkpoint: int) -> bytes | None:
        """Returns the messages since the last call as a part; None without any."""
        if not self._batches:
            return None
        batches, self._batches, self._size_bytes = tuple(self._batches), [], 0
        return _encoder.encode(_Part(PART_FORMAT, self._index, checkpoint, batches))

    def close(self) -> None:
        """Drops the messages that are not prepared."""
        self._batches.clear()


def transaction_ms(size_bytes: int) -> int:
    """Returns the time that brokers give a transaction with output of a size."""
    return min(TRANSACTION_MS_MAX, TRANSACTION_MS + size_bytes // BYTES_PER_MS)


def outputs_of(parts: Iterable[bytes]) -> dict[int, TransactionalOutput]:
    """Returns the messages of prepared parts, by the index of their task and in the order of their checkpoints.

    Raises: InternalError: a part is none of this sink.
    """
    found: defaultdict[int, list[_Batch]] = defaultdict(list)
    for part in sorted(map(_decode, parts), key=attrgetter("checkpoint")):
        for batch in part.batches:
            batch.check()
        found[part.index] += part.batches
    return {index: TransactionalOutput(batches) for index, batches in found.items()}


def _decode(part: bytes) -> _Part:
    try:
        found = _part_decoder.decode(part)
    except DECODE_ERRORS as error:
        raise _no_part(part, str(error)) from None
    check_format(f"a prepared part of {CONNECTOR}", found.format, PART_FORMAT)
    return found


def _no_part(data: bytes, reason: str) -> InternalError:
    return InternalError(f"{data[:80]!r} is not a prepared part of {CONNECTOR}: {reason}")
