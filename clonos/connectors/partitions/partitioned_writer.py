"""Writer of partitioned outputs: a part file for each folder ``column=value`` and checkpoint.

The number of open files and of rows in memory is bounded. Rows of further folders wait in a temporary file until the
barrier, at which their part files are written one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from clonos.connectors.connector_errors import InvalidConnector, RowNotWritable, row_not_writable
from clonos.connectors.filesystem.output_files import files_of
from clonos.connectors.filesystem.output_parts import PARTS, OpenPart, RowsFormat, writer_name
from clonos.connectors.partitions.folder_names import folder_of
from clonos.connectors.partitions.overflow import Overflow
from clonos.connectors.row_fields import columns_of, fields_of
from clonos.core.values.column_rows import NoPythonValue
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import WriterContext

OPEN_FILES_MAX: Final = 100
FOLDERS_MAX: Final = 10_000
GATHERED_ROWS_MAX: Final = 500_000
"""Rows of all open files that formats may hold in memory until they have a row group."""


class PartitionColumns(msgspec.Struct, frozen=True):
    """Columns that name the folders of an output, and the names of all fields of rows that have no names."""

    connector: str
    columns: tuple[str, ...]
    names: tuple[str, ...] | None = None
    check: Callable[[str, Any], None] | None = None  # raises ValueError for a value that a column must not have


class PartitionedWriter:
    """Transactional writer of a partitioned output."""

    def __init__(
        self, output: str, rows_format: RowsFormat, partitioning: PartitionColumns, open_files_max: int = OPEN_FILES_MAX
    ) -> None:
        self._files, path = files_of(output)
        self._parts_folder = f"{self._files.state_folder(path)}/{PARTS}"
        self._format = rows_format
        self._partitioning = partitioning
        self._open_files_max = open_files_max
        self._context: WriterContext | None = None
        self._parts: dict[str, OpenPart] = {}
        self._overflow = Overflow()
        self.set_aside: Callable[[Exception, Any, int], None] | None = None  # see ``AsideWriter``

    def open(self, context: WriterContext) -> None:
        """Takes the names of the task."""
        self._context = context

    def write(self, rows: list[Any]) -> None:
        """Appends each row to the part file of its folder, without the columns of the partition.

        Raises: RowNotWritable: a row lacks such a column, or the format cannot hold it, and there is no ``set_aside``.
        OutputFailed: the disk fails. InvalidConnector: there are too many folders.
        """
        of_folder: dict[str, tuple[list[int], list[Any]]] = {}
        for index, row in enumerate(rows):
            try:
                folder, rest = self._cut(index, row)
            except RowNotWritable as error:
                if self.set_aside is None:
                    raise
                self.set_aside(error, row, index)
                continue
            indexes, some = of_folder.setdefault(folder, ([], []))
            indexes.append(index)
            some.append(rest)
        for folder, (indexes, some) in of_folder.items():
            self._append(folder, some, indexes, rows)
        self._bound_memory()

    def write_columns(self, batch: RecordBatch) -> None:
        """Appends the rows of a ``pyarrow.RecordBatch``; raises what ``write`` raises."""
        from clonos.connectors.partitions.column_groups import groups_of  # Arrow takes long to load

        if batch.num_rows:
            for folder, indexes, some in groups_of(batch, self._partitioning.columns, self._partitioning.connector):
                self._append(folder, some, indexes, batch)
            self._bound_memory()

    def prepare(self, checkpoint: int) -> bytes | None:
        """Publishes a part file per folder and describes them; returns None without rows."""
        assert self._context is not None, "a writer is opened before it writes"
        parts = []
        for number, (folder, part) in enumerate(self._complete()):
            if part.rows:
                parts.append(part.publish(self._context, checkpoint, folder, f"-{number}"))
            else:  # all its rows were refused
                part.discard()
        self._parts = {}
        self._overflow.clear()
        return msgspec.json.encode(parts) if parts else None

    def close(self) -> None:
        """Discards the part files that are not prepared."""
        for part in self._parts.values():
            part.discard()
        self._parts = {}
        self._overflow.clear()

    def _complete(self) -> Iterator[tuple[str, OpenPart]]:
        """Yields the open part files, and then, one by one, those of the rows that wait."""
        yield from list(self._parts.items())
        for folder in self._overflow.folders():
            part = self._parts[folder] = self._begun(len(self._parts))
            for piece in self._overflow.pieces(folder):
                _write(part, piece)
            yield folder, part

    def _cut(self, index: int, row: Any) -> tuple[str, dict[str, Any]]:
        """Returns the folder of a row, and its other fields."""
        connector, columns, given = self._partitioning.connector, self._partitioning.columns, self._partitioning.names
        if type(row) is dict:
            fields = row.copy()
        elif isinstance(row, tuple | list) and not hasattr(row, "_fields") and given is not None:
            fields = dict(zip(given, fields_of(row, given, connector, index), strict=True))
        else:
            names = columns_of(row, connector)
            fields = dict(zip(names, fields_of(row, names, connector, index), strict=True))
        try:
            values = [fields.pop(column) for column in columns]
        except KeyError as error:
            raise _lacking(connector, index, row, error.args[0], fields) from None
        if not fields:
            reason = "all its fields are in partition_by=, so that none is left for the file"
            raise row_not_writable(connector, index, row, reason)
        if self._partitioning.check is not None:
            try:
                for column, value in zip(columns, values, strict=True):
                    self._partitioning.check(column, value)
            except ValueError as error:
                raise row_not_writable(connector, index, row, str(error)) from None
        return folder_of(columns, values, connector, index, row), fields

    def _append(self, folder: str, piece: Any, indexes: Any, given: Any) -> None:
        """Appends the rows or columns of a folder, which have these indexes in the batch that was given."""
        part = self._parts.get(folder)
        if part is None:
            if folder in self._overflow or len(self._parts) >= self._open_files_max:
                self._append_waiting(folder, piece, indexes, given)
                return
            part = self._parts[folder] = self._begun(len(self._parts))
        for _ in self._written(part, piece, indexes, given):
            pass

    def _append_waiting(self, folder: str, piece: Any, indexes: Any, given: Any) -> None:
        """Appends rows to those that wait. If rows can be set aside, a file that is thrown away shows which ones."""
        pieces = [piece]
        if self.set_aside is not None:
            part = self._begun(-1)
            try:
                pieces = list(self._written(part, piece, indexes, given))
            finally:
                part.discard()
        for each in pieces:
            self._overflow.add(folder, each)
        self._check_folders()

    def _written(self, part: OpenPart, piece: Any, indexes: Any, given: Any) -> Iterator[Any]:
        """Writes rows or columns, and yields what was written: halves one after the other where a row is refused."""
        try:
            _write(part, piece)
        except (RowNotWritable, NoPythonValue) as error:
            if self.set_aside is None:
                raise
            if len(indexes) == 1:
                self.set_aside(error, _row_of(given, int(indexes[0])), int(indexes[0]))
                return
            half = len(indexes) // 2
            yield from self._written(part, piece[:half], indexes[:half], given)
            yield from self._written(part, piece[half:], indexes[half:], given)
        else:
            yield piece

    def _begun(self, number: int) -> OpenPart:
        assert self._context is not None, "a writer is opened before it writes"
        return OpenPart(self._files, self._parts_folder, f"{writer_name(self._context)}-{number}", self._format)

    def _check_folders(self) -> None:
        if len(self._parts) + len(self._overflow) > FOLDERS_MAX:
            columns = ", ".join(self._partitioning.columns)
            problem = f"partition_by={columns} gives a task more than {FOLDERS_MAX} folders between two checkpoints"
            raise InvalidConnector(self._partitioning.connector, problem, "Partition by columns of few values.")

    def _bound_memory(self) -> None:
        """Lets the file that holds most rows in memory write them, if all files together hold too many."""
        files = [part.rows_file for part in self._parts.values()]
        if sum(file.gathered_rows for file in files) > GATHERED_ROWS_MAX:
            max(files, key=lambda file: file.gathered_rows).flush()


def _row_of(given: Any, index: int) -> Any:
    """Returns a row of a list, or of a ``pyarrow.RecordBatch``."""
    if isinstance(given, list):
        return given[index]
    from clonos.operators.columnar.python_rows import record_at  # loads Arrow

    return record_at(given, index)


def _write(part: OpenPart, piece: Any) -> None:
    if isinstance(piece, list):
        part.write(piece)
    else:
        part.write_columns(piece)


def _lacking(connector: str, index: int, row: Any, column: str, names: Sequence[str] | dict[str, Any]) -> Exception:
    reason = f"it has no {column}, which partition_by= names; it has {', '.join(map(str, names))}"
    return row_not_writable(connector, index, row, reason)
