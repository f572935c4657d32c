"""Text as a sink: each row, a str, is a line that ends with ``\\n``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.connectors.connector_errors import row_not_writable
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.output_files import OutputFile
from clonos.connectors.filesystem.output_parts import Layout
from clonos.connectors.formats.part_content import open_part
from clonos.kernels.record_batch import RecordBatch

CONNECTOR = "files.lines"
COPY_BYTES = 1 << 20


class TextFormat:
    """Format of part files of text."""

    suffix = "txt"

    def __init__(self, encoding: str, errors: str) -> None:
        self._encoding = encoding
        self._errors = errors

    def start(self, file: OutputFile) -> TextRows:
        """Begins a part file."""
        return TextRows(file, self._encoding, self._errors)

    def join(self, paths: Sequence[str], file: OutputFile) -> None:
        """Writes the lines of part files into one file."""
        for path in paths:
            with output_errors(path, "read"), open_part(path) as part:
                while piece := part.read(COPY_BYTES):
                    file.write(piece)


class TextRows:
    """Part file of text."""

    gathered_rows = 0

    def __init__(self, file: OutputFile, encoding: str, errors: str) -> None:
        self._file = file
        self._encoding = encoding
        self._errors = errors
        self.layout = Layout(encoding=encoding)

    def rows(self, rows: list[Any]) -> None:
        """Appends each row as a line.

        Raises: RowNotWritable: a row is not a str, is more than one line, or is not in the encoding.
        """
        try:
            text = "\n".join(rows)
            if text.count("\n") == len(rows) - 1 and "\r" not in text:
                self._file.write(f"{text}\n".encode(self._encoding, self._errors))
                return
        except (TypeError, UnicodeEncodeError):
            pass  # the rows say what is wrong
        self._file.write(b"".join(self._line(index, row) for index, row in enumerate(rows)))

    def columns(self, batch: RecordBatch) -> None:
        """Appends the rows of a ``pyarrow.RecordBatch`` with one column."""
        rows = batch.to_pylist()
        self.rows([row.popitem()[1] for row in rows] if batch.num_columns == 1 else rows)

    def flush(self) -> None:
        """Does nothing: each row is in the file already."""

    def finish(self) -> None:
        """Does nothing: a text file needs no footer."""

    def abandon(self) -> None:
        """Does nothing: the file is the only resource."""

    def _line(self, index: int, row: Any) -> bytes:
        if not isinstance(row, str):
            reason = f"it is {type(row).__name__}, and a line is a str: map it to one, or write it with files.jsonl"
            raise row_not_writable(CONNECTOR, index, row, reason)
        if "\n" in row or row.endswith("\r"):
            reason = "it has a line end, so that it would be read back as other lines: write it with files.jsonl"
            raise row_not_writable(CONNECTOR, index, row, reason)
        try:
            return f"{row}\n".encode(self._encoding, self._errors)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            reason = f"{self._encoding} has no {character!r}: give the sink another encoding=, or errors="
            raise row_not_writable(CONNECTOR, index, row, reason) from None
