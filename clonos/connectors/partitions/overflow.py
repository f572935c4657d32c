"""Rows that wait in an unnamed temporary file for the part file of their partition."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

import cloudpickle

from clonos.connectors.filesystem.durable_files import output_errors
from clonos.kernels.record_batch import RecordBatch


class Overflow:
    """Pieces of rows or columns by folder. Those of a folder come back in the order in which they were added."""

    def __init__(self) -> None:
        self._file: Any = None
        self._places: dict[str, list[tuple[int, int]]] = {}

    def __contains__(self, folder: str) -> bool:
        return folder in self._places

    def __len__(self) -> int:
        return len(self._places)

    def folders(self) -> list[str]:
        """Returns the folders that have rows, in order of their first ones."""
        return list(self._places)

    def add(self, folder: str, piece: Any) -> None:
        """Writes a list of rows, or a ``pyarrow.RecordBatch``.

        Raises: OutputFailed: the temporary folder is full.
        """
        data = cloudpickle.dumps(piece if isinstance(piece, list) else _Columns(piece))
        with self._errors("written"):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by clear()
            begin = self._file.seek(0, 2)
            self._file.write(data)
        self._places.setdefault(folder, []).append((begin, len(data)))

    def pieces(self, folder: str) -> Iterator[Any]:
        """Yields what was added for a folder."""
        for begin, length in self._places[folder]:
            with self._errors("read"):
                self._file.seek(begin)
                data = self._file.read(length)
            yield pickle.loads(data)  # noqa: S301  this process has written it

    def clear(self) -> None:
        """Forgets all rows."""
        self._places.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _errors(self, doing: str) -> Any:
        return output_errors(f"the temporary folder {tempfile.gettempdir()}", doing)


class _Columns:
    """Record batch that is pickled without the rows of the batch that it is a slice of."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        import pyarrow  # Arrow takes long to load

        stream = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(stream, self._batch.schema) as writer:
            writer.write_batch(self._batch)
        return _batch_of, (stream.getvalue().to_pybytes(),)


def _batch_of(data: bytes) -> Any:
    import pyarrow

    return pyarrow.ipc.open_stream(data).read_next_batch()
