"""Files of JSON lines: a source of the value of each line, and a sink of a line for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.connectors.connector_errors import InputMalformed
from clonos.connectors.filesystem.durable_files import DurableFile
from clonos.connectors.filesystem.file_patterns import find_files
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.filesystem.file_splits import block_splits, check_split, new_files
from clonos.connectors.filesystem.line_files import LineReader, check_line_options
from clonos.connectors.filesystem.output_folder import readable_files
from clonos.connectors.filesystem.output_parts import RowsFormat
from clonos.connectors.json_text import json_lines, parse_json, parse_json_lines

CONNECTOR = "files.jsonl"


class JsonFiles(FileSink):
    """As a source: files by path, folder or pattern. As a sink: one folder."""

    def __init__(
        self, paths: Sequence[str], *, block_bytes: int | None, line_bytes_max: int, look_every_ns: int = 0
    ) -> None:
        super().__init__(CONNECTOR, paths)
        check_line_options(CONNECTOR, paths, block_bytes)
        self.block_bytes = block_bytes
        self.line_bytes_max = line_bytes_max
        self.look_every_ns = look_every_ns

    def splits(self, parallelism: int) -> list[bytes]:
        """Blocks of the files that are there now."""
        return block_splits(self._paths(), parallelism, self.block_bytes)

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """Blocks of files that have come since."""
        return block_splits(new_files(self._paths(), known, index, parallelism), 1, self.block_bytes)

    def check_split(self, split: bytes) -> None:
        """See ``clonos.operators.connector_contract.CheckingSource``."""
        check_split(CONNECTOR, self.paths, split)

    def _paths(self) -> list[str]:
        return find_files(CONNECTOR, self.paths, readable_files, may_miss=self.look_every_ns > 0)

    def reader(self) -> JsonReader:
        """A reader of values."""
        return JsonReader(self.line_bytes_max)

    def rows_format(self) -> RowsFormat:
        """A line for each row."""
        return JsonFormat()


class JsonReader:
    """Reads the value of each line; lines of white space only are skipped."""

    def __init__(self, line_bytes_max: int) -> None:
        self._lines = LineReader("utf-8-sig", "strict", line_bytes_max, with_position=False)

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Raises ``InputChanged`` and ``InputUnreadable``."""
        self._lines.open(split, mark)

    def read(self, records_max: int) -> list[Any] | None:
        """Values; None behind the last one. Raises ``InputMalformed`` where a line is no JSON."""
        while (lines := self._lines.read(records_max)) is not None:
            values = parse_json_lines(lines)
            if values is None:
                values = self._one_by_one(lines)
            if values:
                return values
        return None

    def mark(self) -> bytes:
        """The offset of the line that comes next."""
        return self._lines.mark()

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def _one_by_one(self, lines: list[str]) -> list[Any]:
        values = []
        for index, line in enumerate(lines):
            if not line or line.isspace():
                continue
            try:
                values.append(parse_json(line))
            except ValueError as error:
                raise InputMalformed(
                    self._lines.path,
                    self._lines.offset_bytes(index),
                    f"the line {line[:80]!r} is no JSON: {error}",
                    "Mend the file, or read it by files.lines and parse it in a step of the job.",
                ) from None
        return values


class JsonFormat:
    """Part files of JSON lines."""

    suffix = "jsonl"

    def start(self, file: DurableFile) -> JsonRows:
        """Begins a part."""
        return JsonRows(file)


class JsonRows:
    """One part of JSON lines."""

    def __init__(self, file: DurableFile) -> None:
        self._file = file

    def rows(self, rows: list[Any]) -> None:
        """Appends a line for each row. Raises ``RowNotWritable``."""
        self._file.write(json_lines(rows, CONNECTOR))

    def columns(self, batch: Any) -> None:
        """Appends an object for each row of a ``pyarrow.RecordBatch``."""
        self.rows(batch.to_pylist())

    def finish(self) -> None:
        """A file of lines needs no end."""

    def abandon(self) -> None:
        """A file of lines holds nothing else."""
