"""Columns that the folders ``column=value`` of an input file add to its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clonos.connectors.connector_errors import InputMalformed, InvalidConnector
from clonos.connectors.filesystem.file_patterns import find_files
from clonos.connectors.filesystem.file_splits import decode_split
from clonos.connectors.filesystem.output_folder import readable_files
from clonos.connectors.object_stores.urls import name_of
from clonos.connectors.partitions.folder_names import partition_values
from clonos.core.model.errors import ClonosError
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed, PendingInput, SplitReader, pending_of


class FolderColumns:
    """Handling of the folders ``column=value`` by a source.

    ``partitioned`` is a ``pyarrow.Schema`` of their columns, True for all as text, False to leave them out, or None to
    refuse such a folder.
    """

    def __init__(self, connector: str, partitioned: Any) -> None:
        self._connector = connector
        self._partitioned = partitioned
        self.are_added = partitioned is not None and partitioned is not False

    @property
    def names(self) -> frozenset[str]:
        """Returns the names that a schema gives, none without one."""
        return frozenset(self._partitioned.names if self._has_schema else ())

    def find(self, patterns: Sequence[str], may_be_empty: bool) -> list[str]:
        """Returns the input files of a source; raises what ``find_files`` raises, and InvalidConnector."""
        paths = find_files(self._connector, patterns, self.files_in, may_be_empty)
        self.check(paths)
        return paths

    def described(self, schema: Any, paths: Callable[[], list[str]]) -> Any | None:
        """Returns a given schema with the columns of folders; None if it is unknown before the job starts."""
        if schema is None or not self.are_added:
            return schema
        try:
            return self.extended(schema, paths()) if paths() else None
        except ClonosError:
            return None

    def files_in(self, folder: str) -> list[str]:
        """Lists the input files of a folder, also those in its folders ``column=value``.

        Raises: InvalidConnector: there are such folders, and the source does not say what they mean.
        """
        paths = readable_files(folder)
        count = len(partition_values(f"{name_of(folder)}/-"))
        found = next((path for path in paths if len(partition_values(path)) > count), "")
        if found and self._partitioned is None:
            columns = ", ".join(partition_values(found))
            advice = "Add them with partitioned=True or their pyarrow.Schema, or leave them out with partitioned=False."
            raise InvalidConnector(self._connector, f"the folders of {folder} have the columns {columns}", advice)
        return paths

    def check(self, paths: Sequence[str]) -> None:
        """Raises InvalidConnector if files have other columns in their folders than the first one, or the schema."""
        if not self.are_added or not paths:
            return
        expected = self._partitioned.names if self._has_schema else list(partition_values(paths[0]))
        for path in paths:
            actual = partition_values(path)
            if not expected or any(name not in actual for name in expected):
                problem = f"the folders of {path} have the columns {', '.join(actual) or 'none'}"
                advice = f"They should have {', '.join(expected) or 'some'}, as partitioned= asks."
                raise InvalidConnector(self._connector, problem, advice)
            if not self._has_schema and list(actual) != expected:
                problem = f"the folders of {path} have the columns {', '.join(actual)}, those of others {expected}"
                raise InvalidConnector(self._connector, problem, "Give partitioned= a pyarrow.Schema of those to add.")

    def extended(self, schema: Any, paths: Sequence[str]) -> Any:
        """Returns a ``pyarrow.Schema`` of files with the columns of their folders after it."""
        if not self.are_added or schema is None or not paths:
            return schema
        import pyarrow  # Arrow takes long to load

        added = [pyarrow.field(name, scalar.type) for name, scalar in self.scalars(paths[0]).items()]
        names = {field.name for field in added}
        return pyarrow.schema([*(field for field in schema if field.name not in names), *added])

    def scalars(self, path: str) -> dict[str, Any]:
        """Returns the values of the folders of a file as Arrow scalars.

        Raises: InputMalformed: a value is not of its type in the schema.
        """
        import pyarrow

        texts = {name: pyarrow.scalar(value, pyarrow.string()) for name, value in partition_values(path).items()}
        if not self._has_schema:
            return texts
        try:
            return {field.name: texts[field.name].cast(field.type) for field in self._partitioned}
        except (pyarrow.ArrowException, KeyError) as error:
            reason = f"the names of its folders do not fit partitioned=: {error}"
            raise InputMalformed(path, 0, reason, "Correct the schema, or leave the file out.") from None

    def reader(self, reader: SplitReader[Any]) -> SplitReader[Any]:
        """Returns a reader that adds the columns of folders to what another one reads."""
        return PartitionedReader(reader, self) if self.are_added else reader

    @property
    def _has_schema(self) -> bool:
        return self.are_added and self._partitioned is not True


class PartitionedReader:
    """Reader of files in folders ``column=value``. A value of a folder replaces that of a column of this name."""

    def __init__(self, reader: SplitReader[Any], columns: FolderColumns) -> None:
        self._reader = reader
        self._columns = columns
        self._path = ""
        self._scalars: dict[str, Any] = {}
        self._values: dict[str, Any] = {}

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark; raises what the reader of its format raises, and InputMalformed."""
        self._path = decode_split(split).path
        self._scalars = self._columns.scalars(self._path)
        self._values = {name: scalar.as_py() for name, scalar in self._scalars.items()}
        self._reader.open(split, mark)

    def read(self, records_max: int) -> Any | None:
        """Returns the next records, None at the end. A line that is no object is a ``MalformedRecord``."""
        records: Any = self._reader.read(records_max)
        if records is None:
            return None
        return self._extended_rows(records) if isinstance(records, list) else self._extended(records)

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``."""
        return pending_of(self._reader)

    def mark(self) -> bytes:
        """Returns the mark of the reader of the format."""
        return self._reader.mark()

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()

    def _extended(self, batch: RecordBatch) -> Any:
        import pyarrow

        fields = [field for field in batch.schema if field.name not in self._scalars]
        fields += [pyarrow.field(name, scalar.type) for name, scalar in self._scalars.items()]
        columns = [
            pyarrow.repeat(self._scalars[field.name], batch.num_rows)
            if field.name in self._scalars
            else batch.column(field.name)
            for field in fields
        ]
        return pyarrow.record_batch(columns, schema=pyarrow.schema(fields))

    def _extended_rows(self, rows: list[Any]) -> list[Any]:
        extended = [row | self._values if type(row) is dict else self._malformed(row) for row in rows]
        return extended if all(type(row) is dict for row in extended) else PartlyMalformed(extended)

    def _malformed(self, row: Any) -> MalformedRecord:
        if type(row) is MalformedRecord:
            return row
        reason = f"the line {str(row)[:80]!r} is no object, to which partitioned= could add the columns of its folder"
        return MalformedRecord(row, InputMalformed(self._path, 0, reason, "Correct the file.", True))
