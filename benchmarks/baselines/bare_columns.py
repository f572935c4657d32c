"""Columnar version of ``bare``: Arrow kernels and numpy on batches of 20,000 words, Arrow streams on the wire.

A message has a dictionary of the batch's distinct words with an index for each word, so that the reader hashes a word
once. The running count of a word is its count before the batch plus its rank among equal words in the batch.
"""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow
import pyarrow.compute
import zmq

from benchmarks.harness.result_counter import ResultCounter


def send_columns(share: Any, sockets: list[Any], targets: dict[str, int], lines_max: int) -> None:
    """Splits, partitions and sends the lines."""
    position = 0
    while (batch := share.after(position, lines_max)) is not None:
        position += batch.num_rows
        words = pyarrow.compute.list_flatten(pyarrow.compute.split_pattern(batch.column(0), " "))
        encoded = words.dictionary_encode()
        target_of = numpy.fromiter(map(targets.__getitem__, encoded.dictionary.to_pylist()), numpy.int8)
        indices = encoded.indices.to_numpy()
        target = target_of[indices]
        for number, socket in enumerate(sockets):
            mine = numpy.flatnonzero(target_of == number)
            place_of = numpy.zeros(len(target_of), numpy.int16)
            place_of[mine] = numpy.arange(len(mine), dtype=numpy.int16)
            part = pyarrow.DictionaryArray.from_arrays(
                pyarrow.array(place_of[indices[target == number]]), encoded.dictionary.take(pyarrow.array(mine))
            )
            socket.send(_encoded(pyarrow.record_batch({"word": part})), copy=False)


def count_columns(socket: Any, readers: int, counter: ResultCounter) -> None:
    """Receives words and counts them."""
    counts: dict[str, int] = {}
    while readers:
        frame = socket.recv(copy=False)
        if not len(frame):
            readers -= 1
            continue
        counter.add_columns(_counted(_decoded(frame), counts))


def _counted(batch: Any, counts: dict[str, int]) -> Any:
    words = batch.column(0)
    distinct = words.dictionary.to_pylist()
    indices = words.indices.to_numpy()
    before = numpy.fromiter((counts.get(word, 0) for word in distinct), numpy.int64, len(distinct))
    inside = numpy.bincount(indices, minlength=len(distinct))
    counts.update(zip(distinct, (before + inside).tolist(), strict=True))
    order = numpy.argsort(indices, kind="stable")
    base = before + 1 - (numpy.cumsum(inside) - inside)
    running = numpy.empty(len(indices), numpy.int64)
    running[order] = numpy.repeat(base, inside) + numpy.arange(len(indices))
    return pyarrow.record_batch({"word": words, "count": running})


def _encoded(batch: Any) -> Any:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decoded(frame: zmq.Frame) -> Any:
    with pyarrow.ipc.open_stream(pyarrow.py_buffer(frame.buffer)) as reader:
        return reader.read_next_batch()
