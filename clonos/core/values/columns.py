"""A batch of columns, an Arrow RecordBatch, as bytes and back: an Arrow IPC stream of one batch, not compressed.

pyarrow is imported by ``get_ready_for_columns`` or the first batch, never by this module: a job of rows does without
its memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from clonos.core.values import value_limits
from clonos.core.values.value import reason
from clonos.core.values.value_errors import ValueBeyondLimit, ValueMalformed

if TYPE_CHECKING:
    import pyarrow

ALIGNMENT_BYTES = 8
"""Arrow's kernels may read a buffer of numbers in words: its address has to be a multiple of this."""


def get_ready_for_columns() -> None:
    """Imports now what the first batch would import: pyarrow, and with its first array whatever that looks for, which
    is pandas where it is installed: 0.3 s in the middle of the stream, or of a recovery."""
    import pyarrow

    pyarrow.array([0])


def encode_columns(batch: pyarrow.RecordBatch, *, bytes_max: int = value_limits.BATCH_BYTES_MAX) -> bytes:
    """The bytes of a batch, schema and dictionaries included. ValueBeyondLimit."""
    import pyarrow

    size = pyarrow.ipc.get_record_batch_size(batch)
    if max(size, batch.nbytes) > bytes_max:
        raise ValueBeyondLimit("bytes of an encoded batch", max(size, batch.nbytes), bytes_max)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_columns(data: bytes | memoryview, *, bytes_max: int = value_limits.BATCH_BYTES_MAX) -> pyarrow.RecordBatch:
    """The batch of the bytes, which it goes on using: no copy, except of bytes at an unaligned address (ZeroMQ's are).

    Each offset and each character is validated, 4 ns a word: a wrong offset would read foreign memory. ValueMalformed.
    """
    import pyarrow

    if len(data) > bytes_max:
        raise ValueMalformed("batch of columns", f"{len(data)} bytes, and the limit is {bytes_max}")
    try:
        source = pyarrow.BufferReader(_aligned(data))
        with pyarrow.ipc.open_stream(source) as reader:
            batch = reader.read_next_batch()
            validate_columns(batch)
            for _ in reader:
                raise ValueError("a second batch behind the first")
        if source.tell() != source.size():
            raise ValueError("bytes behind the end of the stream")
    except (pyarrow.ArrowException, OSError, StopIteration, ValueError) as error:
        raise ValueMalformed("batch of columns", reason(error)) from error
    return batch


def validate_columns(batch: pyarrow.RecordBatch) -> None:
    """Looks at each offset, each character and each name. ValueError: one of them is not valid."""
    batch.validate(full=True)
    _decode_names(batch.schema)


def _decode_names(fields: Iterable[pyarrow.Field]) -> None:
    """Arrow decodes a name when it is asked for."""
    for field in fields:
        str(field.name)
        if count := field.type.num_fields:
            _decode_names(map(field.type.field, range(count)))


def _aligned(data: bytes | memoryview) -> Any:
    import pyarrow

    buffer = pyarrow.py_buffer(data)
    if buffer.address % ALIGNMENT_BYTES == 0:
        return buffer
    copy = pyarrow.allocate_buffer(buffer.size)
    pyarrow.FixedSizeBufferWriter(copy).write(buffer)
    return copy
