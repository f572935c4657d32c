"""Encoding of a batch of columns: an Arrow RecordBatch as an uncompressed Arrow IPC stream of one batch.

``get_ready_for_columns`` or the first batch imports pyarrow, never this module, so that a job of rows saves its memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from struct import Struct
from typing import TYPE_CHECKING, Any

from clonos.core.values import value_limits
from clonos.core.values.value import reason
from clonos.core.values.value_errors import ValueBeyondLimit, ValueMalformed

if TYPE_CHECKING:
    import pyarrow

ALIGNMENT_BYTES = 8
"""Alignment of a buffer's address, because Arrow's kernels may read numbers in words."""

OFFSET, LARGE_OFFSET = Struct("=i"), Struct("=q")

PREFIX = Struct("<Ii")
"""Begin of a message in a stream: a mark, and the size of what follows before the message's body."""

CONTINUED = 0xFFFFFFFF
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"

SCHEMAS_MAX = 256
HEAD_BYTES_MAX = 1 << 16
"""Limits of the schemas that a process remembers: their number, and the bytes of one."""

known_schemas: dict[bytes, pyarrow.Schema] = {}
"""Schemas without dictionaries, by the bytes of their message; each was read and validated once."""

last_schema: tuple[pyarrow.Schema, bytes | None] | None = None
"""Schema of the last batch that was encoded, and the bytes of its message; None for them if it has dictionaries."""


def get_ready_for_columns() -> None:
    """Imports the kernels, pyarrow and, by building an array, what its first array needs, for example pandas.

    Otherwise the first batch would take 0.3 s longer, in the middle of the stream or of a recovery.
    """
    import pyarrow

    for name in ("grouped", "key_groups", "partition"):
        import_module(f"clonos.kernels.{name}")
    pyarrow.array([0])


def encode_columns(batch: pyarrow.RecordBatch, *, bytes_max: int = value_limits.BATCH_BYTES_MAX) -> bytes:
    """Returns the bytes of a batch with its schema and dictionaries.

    Raises: ValueBeyondLimit, if the batch is too large.
    """
    import pyarrow

    global last_schema
    schema, size = batch.schema, pyarrow.ipc.get_record_batch_size(batch)
    last = last_schema  # which another thread may replace
    if last is None or not schema.equals(last[0], check_metadata=True):
        last_schema = last = schema, None if _has_dictionaries(schema) else schema.serialize().to_pybytes()
    head = last[1]
    if head is None:
        size = max(size, batch.nbytes)  # with the dictionaries
    if size > bytes_max:
        raise ValueBeyondLimit("bytes of an encoded batch", size, bytes_max)
    if head is None:
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        data: bytes = sink.getvalue().to_pybytes()
        return data
    return b"".join((head, batch.serialize(), END_OF_STREAM))  # what a stream writer gives


def decode_columns(data: bytes | memoryview, *, bytes_max: int = value_limits.BATCH_BYTES_MAX) -> pyarrow.RecordBatch:
    """Returns the encoded batch, without a copy unless ``data`` is at an unaligned address, as ZeroMQ's buffers are.

    Validates each offset and each character (1 ns per word), because a wrong offset would read foreign memory.

    Raises: ValueMalformed, in place of Arrow's errors and ValueError, if the bytes are no valid batch.
    """
    import pyarrow

    if len(data) > bytes_max:
        raise ValueMalformed("batch of columns", f"{len(data)} bytes, and the limit is {bytes_max}")
    try:
        buffer = _aligned(data)
        head = _head(buffer)
        schema = known_schemas.get(head)
        if schema is not None:
            batch = _read_after(head, buffer, schema)
        else:
            batch = _read_stream(buffer)
            if head and not _has_dictionaries(batch.schema):
                if len(known_schemas) >= SCHEMAS_MAX:
                    known_schemas.clear()
                known_schemas[head] = batch.schema
    except (pyarrow.ArrowException, OSError, EOFError, StopIteration, ValueError) as error:
        raise ValueMalformed("batch of columns", reason(error)) from error
    return batch


def validate_columns(batch: pyarrow.RecordBatch) -> None:
    """Validates each offset, each character and each name of a batch.

    Raises: ValueError, if any of them is invalid.
    """
    _validate_values(batch)
    decode_names(batch.schema)


def _validate_values(batch: pyarrow.RecordBatch) -> None:
    batch.validate()
    for column in batch.columns:
        if not _is_ascii(column):
            column.validate(full=True)


def _head(buffer: pyarrow.Buffer) -> bytes:
    """Returns the bytes of the schema's message, with which a stream begins; none if it is malformed or too long."""
    if buffer.size < PREFIX.size:
        return b""
    mark, size = PREFIX.unpack_from(buffer)
    end = PREFIX.size + size
    return bytes(memoryview(buffer)[:end]) if mark == CONTINUED and 0 < size <= HEAD_BYTES_MAX else b""


def _read_stream(buffer: pyarrow.Buffer) -> pyarrow.RecordBatch:
    import pyarrow

    source = pyarrow.BufferReader(buffer)
    with pyarrow.ipc.open_stream(source) as reader:
        batch = reader.read_next_batch()
        validate_columns(batch)
        for _ in reader:
            raise ValueError("a second batch follows the first")
    if source.tell() != source.size():
        raise ValueError("bytes follow the end of the stream")
    return batch


def _read_after(head: bytes, buffer: pyarrow.Buffer, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Reads a batch whose schema is known, so that of the stream only the batch's own message is parsed."""
    import pyarrow

    source = pyarrow.BufferReader(buffer)
    source.seek(len(head))
    batch = pyarrow.ipc.read_record_batch(pyarrow.ipc.read_message(source), schema)
    _validate_values(batch)
    if source.read() not in (END_OF_STREAM, b""):
        raise ValueError("another message or other bytes follow the first batch")
    return batch


def _has_dictionaries(fields: Iterable[pyarrow.Field]) -> bool:
    """Returns whether some column, or a part of one, is a dictionary column, which has messages of its own."""
    import pyarrow

    for field in fields:
        kind = field.type
        while isinstance(kind, pyarrow.BaseExtensionType):
            kind = kind.storage_type
        if pyarrow.types.is_dictionary(kind) or _has_dictionaries(map(kind.field, range(kind.num_fields))):
            return True
    return False


def _is_ascii(column: pyarrow.Array) -> bool:
    """Returns whether a column has texts in ASCII only, whose characters are valid wherever one text ends.

    Arrow decodes text by text, which takes 8 ns per word instead of 1.

    Raises: ValueError, if an offset is invalid.
    """
    import numpy
    import pyarrow

    is_large = pyarrow.types.is_large_string(column.type)
    if not (is_large or pyarrow.types.is_string(column.type)) or not len(column):
        return False
    column.view(pyarrow.large_binary() if is_large else pyarrow.binary()).validate(full=True)
    _, offsets, characters = column.buffers()
    offset = LARGE_OFFSET if is_large else OFFSET
    (first,) = offset.unpack_from(offsets, column.offset * offset.size)
    (end,) = offset.unpack_from(offsets, (column.offset + len(column)) * offset.size)
    return first == end or bool(numpy.frombuffer(characters, numpy.int8, end - first, first).min() >= 0)


def decode_names(fields: Iterable[pyarrow.Field]) -> None:
    """Reads every name, because Arrow decodes a name only when it is read."""
    for field in fields:
        str(field.name)
        if count := field.type.num_fields:
            decode_names(map(field.type.field, range(count)))


def _aligned(data: bytes | memoryview) -> Any:
    import pyarrow

    buffer = pyarrow.py_buffer(data)
    if buffer.address % ALIGNMENT_BYTES == 0:
        return buffer
    copy = pyarrow.allocate_buffer(buffer.size)
    pyarrow.FixedSizeBufferWriter(copy).write(buffer)
    return copy
