"""Sink into a Delta table: each checkpoint is one transaction that adds the Parquet files of the tasks.

::

    orders/_delta_log/...                              the table, as every reader of Delta Lake sees it
    orders/day=2026-11-22/part-<checkpoint>-...        data files; readers see those that the log names
    .orders.clonos/<job>/...                           prepared parts, and the names of the files of each checkpoint
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from clonos.connectors.connector_errors import (
    InvalidConnector,
    OutputFailed,
    OutputInUse,
    UnexpectedOutput,
    check_number,
)
from clonos.connectors.delta.table_log import CONNECTOR, DeltaFile, TableLog, check_url
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.file_sinks import absolute
from clonos.connectors.filesystem.output_files import OutputFiles, files_of
from clonos.connectors.filesystem.output_folder import OutputFolder
from clonos.connectors.filesystem.output_parts import PART_NAME, PARTS, PREPARED, Part, Rolling, decode_parts
from clonos.connectors.object_stores.urls import is_url, split_url
from clonos.connectors.partitions.folder_names import partition_columns, partition_values
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.lineage import Dataset, dataset_at

if TYPE_CHECKING:
    from clonos.connectors.delta.delta_writer import DeltaWriter

TRANSACTIONS: Final = "transactions"
_NAME: Final = re.compile(r"(?P<checkpoint>[0-9]{20})\.files")


class DeltaTableSink:
    """Transactional sink into one Delta table."""

    is_columnar = True
    routes_refused = True

    def __init__(
        self, path: str, *, schema: Any, partition_by: str | Sequence[str] | None, part_rows: int | None
    ) -> None:
        if not path:
            raise InvalidConnector(CONNECTOR, "the path is empty", "Name a folder, or the URL of one.")
        if is_url(path):
            check_url(path)
        if part_rows is not None:
            check_number(CONNECTOR, "part_rows", part_rows, "rows")
        if part_rows is not None and partition_by:
            raise InvalidConnector(CONNECTOR, "part_rows= does not go with partition_by=", "Leave out one of them.")
        self.path = absolute(path)
        self.schema = schema
        self.partition_by = partition_columns(CONNECTOR, partition_by) if partition_by is not None else None
        self.rolling = Rolling(part_rows)

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.path!r})"

    @property
    def needs_names(self) -> bool:
        """Whether rows need names for their fields, because no schema has them."""
        return self.schema is None

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(self.path)]

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        path = split_url(self.path).without_options if is_url(self.path) else os.path.realpath(self.path)
        return [("table", path)]

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Creates the table if it is missing, and claims a folder for the prepared parts of this job.

        Raises: InvalidConnector: the table has other columns, or another sink of the job writes to it.
        """
        log = TableLog(self.path)
        if not log.exists():
            self._create(log)
        self._check_schema(log)
        try:
            OutputFolder(self._staging(job_id)).prepare(job_id, resume, overwrite=False)
        except OutputInUse:
            problem = f"another sink of this job writes to the table {self.path}"
            raise InvalidConnector(CONNECTOR, problem, "Join the streams with union() in front of one sink.") from None
        self._files().make_folder(self._transactions(job_id))

    def check_output(self, replaces: str) -> bool:
        """Returns False: a start leaves the rows of earlier ones in the table."""
        return False

    def release_output(self, job_id: str) -> None:
        """Gives the folder of the job back when its start has failed."""
        if not self._files_by_checkpoint(job_id):
            self._files().remove_folder(self._transactions(job_id))
            OutputFolder(self._staging(job_id)).release(job_id)
            self._files().remove_folder(self._folder(job_id))

    def writer(self) -> DeltaWriter:
        """Creates a writer of part files."""
        from clonos.connectors.delta.delta_writer import DeltaWriter  # Arrow takes long to load

        return DeltaWriter(self.path, self._staging, self.rolling)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Adds the parts to the table in one transaction; a repeated call does nothing.

        Raises: OutputFailed: the disk fails, or a part is missing.
        """
        found = [part for data in parts for part in decode_parts(data, self.path)]
        log = TableLog(self.path)
        if not found or (log.last_checkpoint(job_id) or -1) >= checkpoint:
            return
        files = [_file_of(part, checkpoint, job_id) for part in sorted(found, key=lambda part: part.name)]
        names = msgspec.json.encode([file.path for file in files])
        note = f"{self._transactions(job_id)}/{checkpoint:020}.files"
        self._files().remove(note)  # of a checkpoint with this number that a rollback has removed
        self._files().create(note, names)
        for part, file in zip(sorted(found, key=lambda part: part.name), files, strict=True):
            self._show(self._prepared(job_id, part), file)
        log.add(job_id, checkpoint, files)
        self._sweep(job_id, lambda number: number <= checkpoint)

    def roll_back(self, job_id: str, checkpoint: int) -> list[int]:
        """Withdraws the files that the job has added after ``checkpoint``; returns those checkpoints, latest first.

        Raises: OutputCorrupt: another writer has replaced one of the files.
        """
        log = TableLog(self.path)
        last = log.last_checkpoint(job_id)
        added = self._files_by_checkpoint(job_id)
        withdrawn = sorted(
            (number for number in added if last is not None and checkpoint < number <= last), reverse=True
        )
        paths = [path for number in withdrawn for path in added[number]]
        if withdrawn:
            log.withdraw(job_id, checkpoint, paths)
        for number in [number for number in added if number > checkpoint]:
            if number not in withdrawn:  # the driver died between the files and their transaction
                for path in added[number]:
                    self._files().remove(f"{self._place()}/{path}")
            self._files().remove(f"{self._transactions(job_id)}/{number:020}.files")
        self._sweep(job_id, lambda number: number > checkpoint)
        return withdrawn

    def _create(self, log: TableLog) -> None:
        if any(not name.startswith(".") for name in self._files().names(self._place())):
            raise UnexpectedOutput(self.path, "is a folder with files, and no Delta table", "which does not help here")
        if self.schema is None:
            problem = f"there is no table {self.path}, and without schema= its columns are not known"
            raise InvalidConnector(CONNECTOR, problem, "Give a pyarrow.Schema, or create the table.")
        lowered = [name.lower() for name in self.schema.names]
        if repeated := [name for name in self.schema.names if lowered.count(name.lower()) > 1]:
            problem = f"the columns {repeated[0]!r} and {repeated[1]!r} of schema= are one column of a Delta table"
            raise InvalidConnector(CONNECTOR, problem, "Give each column a name of its own.")
        missing = [name for name in self.partition_by or () if name not in self.schema.names]
        if missing or len(self.partition_by or ()) == len(self.schema.names):
            problem = f"partition_by={self.partition_by!r} and the columns {', '.join(self.schema.names)} do not fit"
            raise InvalidConnector(CONNECTOR, problem, "Partition by some of the columns.")
        log.create(self.schema, self.partition_by or ())

    def _check_schema(self, log: TableLog) -> None:
        log.check_writable()
        actual, partitions = log.schema(), log.partition_columns()
        if self.partition_by is not None and self.partition_by != partitions:
            problem = f"the table {self.path} is partitioned by {', '.join(partitions) or 'nothing'}"
            raise InvalidConnector(CONNECTOR, problem, "Correct partition_by=, or leave it out.")
        if self.schema is None:
            return
        for field in self.schema:
            if field.name not in actual.names:
                problem = f"the table {self.path} has no column {field.name!r}; it has {', '.join(actual.names)}"
                raise InvalidConnector(CONNECTOR, problem, "Correct schema=, or add the column to the table.")
            if not _is_alike(actual.field(field.name).type, field.type):
                types = f"{actual.field(field.name).type} in the table {self.path}, and {field.type} in schema="
                raise InvalidConnector(CONNECTOR, f"the column {field.name!r} is {types}", "Correct schema=.")

    def _show(self, prepared: str, file: DeltaFile) -> None:
        """Moves a prepared part into the folder of the table, where no reader sees it before the transaction."""
        path, files = f"{self._place()}/{file.path}", self._files()
        folder = self._place()
        for name in os.path.dirname(file.path).split("/") if os.path.dirname(file.path) else ():
            folder = f"{folder}/{name}"
            files.make_folder(folder)
        with output_errors(path, "created"):
            files.move(prepared, path)
            found_bytes = files.size_bytes(path)
        files.sync(folder)
        if found_bytes != file.size_bytes:
            raise OutputFailed(path, "committed", f"it should have {file.size_bytes} bytes, and has {found_bytes}")

    def _sweep(self, job_id: str, is_dead: Callable[[int], bool]) -> None:
        """Removes prepared parts that no commit will name, by the number of their checkpoint."""
        folder, files = f"{OutputFolder(self._staging(job_id)).state}/{PARTS}", self._files()
        for name in files.names(folder):
            match = PART_NAME.fullmatch(name.removesuffix(PREPARED))
            if match and is_dead(int(match["checkpoint"])):
                files.remove(f"{folder}/{name}")

    def _prepared(self, job_id: str, part: Part) -> str:
        return f"{OutputFolder(self._staging(job_id)).state}/{PARTS}/{part.name}{PREPARED}"

    def _files_by_checkpoint(self, job_id: str) -> dict[int, list[str]]:
        """Returns the names of the files of each checkpoint; that of a crash may not be in the table."""
        folder, files = self._transactions(job_id), self._files()
        matches = [match for name in files.names(folder) if (match := _NAME.fullmatch(name))]
        return {
            int(match["checkpoint"]): msgspec.json.decode(
                files.content(f"{folder}/{match[0]}") or b"[]", type=list[str]
            )
            for match in matches
        }

    def _files(self) -> OutputFiles:
        return files_of(self.path)[0]

    def _place(self) -> str:
        """Returns the path of the table for ``_files``: without the options of a URL."""
        return files_of(self.path)[1]

    def _folder(self, job_id: str) -> str:
        return f"{self._files().state_folder(self._place())}/{job_id}"

    def _staging(self, job_id: str) -> str:
        """Returns the output whose hidden folder has the prepared parts of a job."""
        return self._files().input_path(f"{self._folder(job_id)}/table")

    def _transactions(self, job_id: str) -> str:
        return f"{self._folder(job_id)}/{TRANSACTIONS}"


def _file_of(part: Part, checkpoint: int, job_id: str) -> DeltaFile:
    """Returns the file of a part in the table. Its name is that of no other job, and of no other checkpoint."""
    name = f"part-{checkpoint:010}-{job_id}-{part.name.removeprefix('part-')}"
    path = f"{part.folder}/{name}" if part.folder else name
    return DeltaFile(path, part.size_bytes, part.rows, partition_values(path))


def _is_alike(actual: Any, given: Any) -> bool:
    import pyarrow  # Arrow takes long to load

    table = pyarrow.schema([("c", given)]).empty_table()
    try:
        return bool(actual == given or _delta_type(table) == actual)
    except Exception:  # noqa: BLE001  the library has no class for a type that it does not know
        return False


def _delta_type(table: Any) -> Any:
    import pyarrow
    from deltalake import Schema

    return pyarrow.schema(Schema.from_arrow(table.schema).to_arrow()).field(0).type


@explains_calls
def table(
    path: str | os.PathLike[str],
    *,
    schema: Any = None,
    partition_by: str | Sequence[str] | None = None,
    part_rows: int | None = None,
) -> DeltaTableSink:
    """Sink that appends rows to a Delta table, those of a checkpoint in one transaction.

    Args:
        path: folder of the table, or its URL in an object store: ``s3://``, ``gs://`` or ``az://``.
        schema: ``pyarrow.Schema`` of the table, which is created if it is missing. Without it the table must exist.
        partition_by: columns by which a new table is partitioned. An existing table has its own.
        part_rows: rows after which a data file ends and the next one begins. By default a task writes one file per
            checkpoint and partition.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        orders.sink(delta.table("orders", schema=pyarrow.schema([("id", pyarrow.int64()), ("day", pyarrow.date32())])))
    """
    return DeltaTableSink(os.fspath(path), schema=schema, partition_by=partition_by, part_rows=part_rows)
