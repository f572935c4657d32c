"""Files of record batches: what Parquet and Arrow files have in common as a source of columns, and as a sink.

A file consists of groups of rows. A split is a group, or with ``ordered`` all of them. A mark is the number of rows of
the split that were read or skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import pyarrow

from clonos.connectors.columns.line_columns import check_schema_names, one_batch, schema_in, with_schema
from clonos.connectors.columns.narrowed_source import NarrowedSource
from clonos.connectors.columns.parquet_batches import FormatUnreadable
from clonos.connectors.connector_errors import InputMalformed, InputUnreadable, InvalidConnector, SplitMalformed
from clonos.connectors.filesystem.file_splits import (
    SPLIT_FORMAT,
    FileSplit,
    check_still_unchanged,
    check_unchanged,
    decode_split,
    encode_split,
    input_status,
    regular_status,
)
from clonos.connectors.filesystem.files_by_path import FilesByPath
from clonos.connectors.filesystem.input_files import object_replaced
from clonos.connectors.object_stores.urls import is_url
from clonos.connectors.partitions.folder_columns import FolderColumns
from clonos.core.model.errors import ClonosError
from clonos.io.store.object_status import ObjectReplaced
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.column_contract import Bound
from clonos.operators.columnar.fitting import as_planned
from clonos.operators.columnar.plain_columns import PlainColumns, plain_schema, repeated_name
from clonos.operators.columnar.python_rows import record_at
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed

MARK_BYTES: Final = 8
BATCH_ROWS: Final = 65_536
JOINED_ROWS: Final = 8_192
"""Rows below which batches that follow each other are joined: steps on columns have a fixed cost per batch."""


class BatchFiles(NarrowedSource, FilesByPath, ABC):
    """Base of files of record batches: as a source, files by path, folder or pattern; as a sink, one folder."""

    is_columnar = True
    routes_malformed = True
    routes_refused = True
    codecs: tuple[str, ...]
    """Names of the codecs that the format has for its columns."""

    def __init__(
        self,
        connector: str,
        paths: Sequence[str],
        *,
        columns: Sequence[str] | None,
        schema: Any,
        discovery_interval_ns: int = 0,
        single: bool = False,
        ordered: bool | None = None,
        partition_by: str | Sequence[str] | None = None,
        partitioned: Any = None,
        **parts: Any,
    ) -> None:
        self.codec: str | None = parts.pop("compression", None)
        if self.codec is not None and self.codec not in self.codecs:
            advice = f"Give one of {', '.join(self.codecs)}; it compresses columns within a file."
            raise InvalidConnector(connector, f"compression is {self.codec!r}", advice)
        super().__init__(connector, paths, single=single, partition_by=partition_by, **parts)
        self.folder_columns = FolderColumns(connector, partitioned)
        if not paths:
            raise InvalidConnector(connector, "no path is given", "Name at least one file, folder or pattern.")
        if schema is not None:
            check_schema_names(connector, schema)
        self.columns = None if columns is None else list(columns)
        self.schema = schema
        self.discovery_interval_ns = discovery_interval_ns
        self.ordered = ordered

    def row_names(self) -> tuple[str, ...] | None:
        """Returns the names of ``schema``."""
        return None if self.schema is None else tuple(self.schema.names)

    @property
    def needs_names(self) -> bool:
        """Whether rows need names for their fields, because no schema has them."""
        return self.schema is None

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the groups of the files that exist now, or whole files. The first one carries the schema of its file.

        Raises: InvalidConnector: a schema is given, or a file lacks a column. InputMalformed, InputUnreadable: a file
        is unusable.
        """
        if self.schema is not None:
            raise InvalidConnector(self.connector, "a source takes no schema=", "Select columns with columns=.")
        splits, schema = self._divided(self._paths())
        if splits:
            carried = schema.remove_metadata().serialize().to_pybytes()
            splits[0] = encode_split(with_schema(decode_split(splits[0]), carried))
        return splits

    def narrowed(self, columns: Collection[str] | None, bounds: Sequence[Bound]) -> Self:
        """See ``column_contract.NarrowableSource``."""
        stored = None if columns is None else frozenset(columns) - self.folder_columns.names
        return super().narrowed(stored, bounds)

    def planned(self, schema: Any) -> Self:
        """See ``column_contract.PlannedSource``."""
        stored = [name for name in schema.names if name not in self.folder_columns.names]
        return super().planned(schema_of_columns(schema, stored))

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``: the schema of the first file."""
        try:
            paths = self._paths()
            return self._chosen(self.schema_of(paths[0]), paths)
        except (ClonosError, IndexError):
            return None

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``: the schema of the first file when the job began."""
        if not splits:  # files that appear later may have any
            return None if self.discovery_interval_ns else self.column_schema()
        return self._chosen(schema_in(splits[0]), [decode_split(splits[0]).path])

    def _chosen(self, schema: Any, paths: Sequence[str]) -> Any:
        chosen = schema if self.columns is None else schema_of_columns(schema, self.columns)
        return plain_schema(self.folder_columns.extended(chosen, paths))

    @abstractmethod
    def schema_of(self, path: str) -> Any:
        """Returns the schema of a file.

        Raises: InputMalformed, InputUnreadable: the file is unusable.
        """

    def can_cut(self, split: FileSplit) -> bool:
        """Returns whether the file has more than one group."""
        return split.end - split.begin > 1

    @abstractmethod
    def groups_of(self, path: str) -> tuple[Any, list[int]]:
        """Returns the schema of a file, and the numbers of its groups that have rows.

        Raises: InputMalformed, InputUnreadable: the file is unusable.
        """

    def _paths(self) -> list[str]:
        return self.folder_columns.find(self.paths, may_be_empty=self.discovery_interval_ns > 0)

    def _splits_of(self, paths: list[str], parallelism: int, known: Sequence[bytes]) -> list[bytes]:
        return self._divided(paths)[0]

    def _divided(self, paths: list[str]) -> tuple[list[bytes], Any]:
        """Returns the splits of files, and the schema of the first file, None without files."""
        splits, first = [], None
        for path in paths:
            status, has_ranges = input_status(path)
            schema, groups = self.groups_of(path)
            first = schema if first is None else first
            self._check_columns(path, schema)
            cuts = [(group, group + 1) for group in groups]
            if (self.ordered or not has_ranges) and groups:
                cuts = [(groups[0], groups[-1] + 1)]
            for begin, end in cuts:
                split = FileSplit(SPLIT_FORMAT, path, status.size_bytes, status.mtime_ns, begin, end)
                splits.append(encode_split(split))
        return splits, first

    def _check_columns(self, path: str, schema: Any) -> None:
        missing = [column for column in self.columns or () if column not in schema.names]
        if missing:
            raise InvalidConnector(
                self.connector, f"{path} has no column {missing[0]!r}", f"It has {', '.join(schema.names)}."
            )
        wanted = schema if self.columns is None else [field for field in schema if field.name in self.columns]
        if repeated := repeated_name(wanted):
            raise InvalidConnector(
                self.connector,
                f"{path} has two columns with the name {repeated!r}",
                "Give each column its own name, or select others with columns=.",
            )

    def _check_sink(self) -> None:
        if self.columns is not None:
            raise InvalidConnector(self.connector, "a sink takes no columns=", "Name columns and types with schema=.")


class BatchReader(ABC):
    """Base of readers of the groups of a split, batch by batch. A subclass opens files and reads runs of groups."""

    kind = ""
    groups = "groups"

    def __init__(
        self,
        columns: list[str] | None,
        *,
        batch_rows: int = BATCH_ROWS,
        used: frozenset[str] | None = None,
        planned: Any = None,
    ) -> None:
        """Creates a reader of ``columns``, None for all; only of those that are ``used``, None for all.

        ``planned``: the schema of the plan; None if values of any type are taken.
        """
        self._columns, self._used, self._planned = columns, used, planned
        self._plain = PlainColumns()
        self._batch_rows = batch_rows
        self._split: FileSplit | None = None
        self._file: Any = None
        self._runs: Iterator[tuple[int, list[int]]] = iter(())
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = None
        self._given: Any = None  # the batch as it is in the file
        self._problems: dict[int, str] = {}  # of rows of the batch
        self._next = 0
        self._rows = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a split at a mark.

        Raises: InputChanged, InputUnreadable, InputMalformed: the file differs or is unusable. SplitMalformed: the
        split or mark is invalid.
        """
        self.close()
        part = decode_split(split)
        if mark is not None and len(mark) != MARK_BYTES:
            raise SplitMalformed(f"position in {self.groups} of a file", mark, f"it has {len(mark)} bytes")
        check_unchanged(part, regular_status(part.path))
        self._split = part
        with reading_input(part.path, self.kind):
            self._file = self._open(part.path)
            count = self._count()
        if is_url(part.path):  # the reads from now on are of the version that was opened
            check_unchanged(part, regular_status(part.path))
        if not part.begin < part.end <= count:
            raise SplitMalformed("split of a file", split, f"{part.path} has {count} {self.groups}")
        wanted = 0 if mark is None else int.from_bytes(mark, "big")
        self._batch, self._next, self._rows, self._batches = None, 0, 0, iter(())
        first = part.begin
        while first < part.end - 1 and self._rows + (rows := self._size(first)) <= wanted:
            self._rows, first = self._rows + rows, first + 1
        self._runs = self._runs_of(range(first, part.end))
        while self._rows < wanted and self._load():
            taken = min(max(0, wanted - self._rows), self._batch.num_rows)
            self._next, self._rows = taken, self._rows + taken

    def read(self, records_max: int) -> Any | None:
        """Returns the next batch of at most ``records_max`` rows, None at the end."""
        if (self._batch is None or self._next == self._batch.num_rows) and not self._load():
            return None
        if self._next in self._problems:
            return self._malformed(records_max)
        following = [row - self._next for row in self._problems if row > self._next]
        rows = self._batch.slice(self._next, min(records_max, *following) if following else records_max)
        self._next += rows.num_rows
        self._rows += rows.num_rows
        return rows

    def _malformed(self, records_max: int) -> PartlyMalformed:
        """Returns the next rows, which are errors."""
        assert self._split is not None, "a reader is opened before it is read"
        found = PartlyMalformed()
        before = sum(map(self._size, range(self._split.begin)))
        while self._next in self._problems and len(found) < records_max:
            reason = f"row {before + self._rows}: {self._problems.pop(self._next)}"
            error = InputMalformed(
                self._split.path, 0, reason, "Correct the file, or select others with columns=.", True
            )
            found.append(MalformedRecord(record_at(self._given, self._next), error))
            self._next, self._rows = self._next + 1, self._rows + 1
        return found

    def mark(self) -> bytes:
        """Returns the number of rows that were read or skipped."""
        return self._rows.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._batches, self._runs, self._batch = iter(()), iter(()), None
            self._file.close()
            self._file = None

    # --- what a kind of files defines

    @abstractmethod
    def _open(self, path: str) -> Any:
        """Opens a file."""

    @abstractmethod
    def _count(self) -> int:
        """Returns the number of groups of the open file."""

    @abstractmethod
    def _size(self, group: int) -> int:
        """Returns the number of rows of a group."""

    def _skips(self, group: int) -> bool:
        """Returns whether no row of a group is wanted."""
        return False

    @abstractmethod
    def _batches_of(self, groups: list[int]) -> Iterator[Any]:
        """Yields the batches of groups, with validated values."""

    def _problems_of(self, batch: RecordBatch) -> dict[int, str]:
        """Returns what is wrong with rows of a batch, which follows the one before; rows in rising order."""
        return {}

    # --- reading

    def _names_of(self, names: Sequence[str]) -> list[str] | None:
        """Returns the columns to read of those of a file; at least one, which has the number of rows. None for all.

        All are read if a step uses a column that is missing, so that its error names those that exist.
        """
        given = names if self._columns is None else self._columns
        if self._used is None or not self._used.issubset(given):
            return self._columns
        return [name for name in given if name in self._used] or list(given[:1])

    def _runs_of(self, groups: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Yields runs of wanted groups, each with the number of rows that are skipped before it."""
        skipped, run = 0, list[int]()
        for group in groups:
            if not self._skips(group):
                run.append(group)
                continue
            if run:
                yield skipped, run
                skipped, run = 0, []
            skipped += self._size(group)
        if run or skipped:
            yield skipped, run

    def _load(self) -> bool:
        """Loads the next batch that has rows, joined with those after it while it is small; False at the end."""
        assert self._split is not None, "a reader is opened before it is read"
        while True:
            small: list[Any] = []
            rows = 0
            try:
                with reading_input(self._split.path, self.kind):
                    while (
                        rows < min(JOINED_ROWS, self._batch_rows) and (batch := next(self._batches, None)) is not None
                    ):
                        if batch.num_rows:
                            small.append(batch)
                            rows += batch.num_rows
            finally:  # a file that changes while it is read may give anything
                check_still_unchanged(self._split)
            if small:
                self._batch = small[0] if len(small) == 1 else one_batch(pyarrow.Table.from_batches(small))
                self._next = 0
                with reading_input(self._split.path, self.kind):
                    self._problems = self._problems_of(self._batch)
                self._given = self._batch
                if self._planned is not None:
                    self._batch, misfits = as_planned(self._plain.of(self._given), self._planned)
                    texts = {row: error.set_aside_text() for row, error in misfits.items()}
                    self._problems = dict(sorted({**texts, **self._problems}.items()))
                return True
            following = next(self._runs, None)
            if following is None:
                return False
            skipped, run = following
            self._rows += skipped
            self._batches = self._batches_of(run) if run else iter(())


def schema_of_columns(schema: Any, columns: Sequence[str]) -> Any:
    """Returns the part of a schema that the given columns are, in their order."""
    return pyarrow.schema([schema.field(name) for name in columns if name in schema.names])


@contextmanager
def reading_input(path: str, kind: str) -> Iterator[None]:
    """Wraps code that reads an input file.

    Raises: InputMalformed: the bytes are not of that kind. InputUnreadable: the file system fails. InputChanged: the
    object was replaced.
    """
    try:
        yield
    except ObjectReplaced as error:
        raise object_replaced(path) from error
    except FormatUnreadable as error:
        problem = f"it is not a readable {kind} file: {error}"
        raise InputMalformed(path, 0, problem, "Repair it or leave it out.") from error
    except OSError as error:
        raise InputUnreadable(path, error.strerror or str(error)) from error
