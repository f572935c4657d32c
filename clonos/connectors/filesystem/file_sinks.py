"""Base of all file sinks: an output folder, prepared part files, commits by checkpoint."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.filesystem.file_splits import format_suffix
from clonos.connectors.filesystem.output_folder import OutputFolder
from clonos.connectors.filesystem.output_parts import PartsWriter, Rolling, RowsFormat, decode_parts
from clonos.connectors.formats.compressed_parts import CompressedFormat, compression_of
from clonos.connectors.object_stores.urls import WILDCARDS, checked_url, is_url, local_path, split_url
from clonos.connectors.partitions.folder_names import partition_columns
from clonos.connectors.secrets import masked
from clonos.operators.lineage import Dataset, dataset_at

if TYPE_CHECKING:
    from clonos.connectors.partitions.partitioned_writer import PartitionedWriter

logger = logging.getLogger("clonos.run")

PLACEHOLDER = re.compile(r"\$\{?\w+|\{\w+\}")
"""Parts of a path that somebody may expect to be replaced."""

FILE_SUFFIXES = (".arrow", ".avro", ".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".txt")


class FileSink:
    """Transactional sink into a folder, or into a single file. A subclass defines the format."""

    routes_refused = False

    def __init__(
        self,
        connector: str,
        paths: Sequence[str],
        *,
        single: bool = False,
        partition_by: str | Sequence[str] | None = None,
        compression: str | None = None,
        part_rows: int | None = None,
        part_bytes: int | None = None,
    ) -> None:
        self.connector = connector
        self.paths = tuple(paths)
        self.is_single_file = single
        self.partition_by = partition_columns(connector, partition_by)
        if self.partition_by and single:
            raise InvalidConnector(connector, "single=True writes one file", "Leave out partition_by=.")
        self.compression = compression
        self.rolling = Rolling(part_rows, part_bytes)
        self._check_rolling()
        self._has_advised = False
        self.flush_refused = "single=True shows its rows once, when the job has ended" if single else ""
        # Absolute, because slots may have another working folder.
        self._folder = absolute(self.paths[0]) if self.paths else ""

    def __repr__(self) -> str:
        return f"{self.connector}({', '.join(repr(masked(path)) for path in self.paths)})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(path) for path in self.paths]

    def rows_format(self) -> RowsFormat:
        """Returns the format of the part files.

        Raises: InvalidConnector: an option is for reading only.
        """
        raise NotImplementedError

    def parts_format(self) -> RowsFormat:
        """Returns the format of the part files with their compression; raises what ``rows_format`` raises.

        Raises: InvalidConnector: the compression is unknown, or does not fit the name of a single file.
        """
        rows_format = self.rows_format()
        compression = compression_of(self.connector, self.compression, self._folder if self.is_single_file else "")
        return rows_format if compression is None else CompressedFormat(rows_format, compression)

    def folder(self) -> str:
        """Returns the absolute path of the output.

        Raises: InvalidConnector: the path does not name a single folder or file.
        """
        if len(self.paths) != 1:
            raise InvalidConnector(
                self.connector, f"a sink writes to one folder, not to {len(self.paths)}", "Name one."
            )
        path = self.paths[0]
        if is_url(path):
            if WILDCARDS.search(path):
                raise InvalidConnector(self.connector, f"{path!r} is a pattern", "Name one folder or file, without *.")
            checked_url(self.connector, path)
            return path
        if glob.has_magic(path) and not os.path.isdir(self._folder):
            raise InvalidConnector(self.connector, f"{path!r} is a pattern", "Name one folder or file, without * ? [].")
        if (found := PLACEHOLDER.search(path)) and not os.path.exists(self._folder):
            advice = "Compute the path in Python; partition_by= puts rows into folders by their values."
            if found[0].startswith("$"):
                advice = "Write os.path.expandvars(...) around it."
            raise InvalidConnector(self.connector, f"{path!r} has {found[0]}, which nothing replaces", advice)
        return self._folder

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares: the path without symbolic links, and whether it is a single file."""
        form = "a single file" if self.is_single_file else "a folder"
        partitions = [("partition_by", ", ".join(self.partition_by))] if self.partition_by else []
        return [("output", _real_path(self.folder())), ("form of the output", form), *partitions]

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Claims the output for this job.

        Raises: OutputInUse, UnexpectedOutput, NotOutputOwner: another job or other files occupy it. OutputFailed: the
        disk fails.
        """
        self.parts_format()
        is_new = OutputFolder(self.folder()).prepare(job_id, resume, overwrite, self.is_single_file)
        if is_new and not self.is_single_file and format_suffix(self._folder) in FILE_SUFFIXES:
            logger.warning(
                "%s: %s becomes a folder of part files; with single=True it becomes a file when the job has ended",
                self.connector,
                self.paths[0],
            )

    def check_output(self, replaces: str) -> bool:
        """Checks that a fresh start can claim the folder; returns whether it holds output of the job ``replaces``.

        Raises: OutputInUse, UnexpectedOutput: it holds other content.
        """
        return OutputFolder(self.folder()).check(replaces, self.is_single_file)

    def release_output(self, job_id: str) -> None:
        """Gives the folder back when the start of the job has failed."""
        OutputFolder(self.folder()).release(job_id)

    def row_names(self) -> tuple[str, ...] | None:
        """Returns the names of the fields of rows that have no names, also of those in ``partition_by``."""
        return None

    def _check_rolling(self) -> None:
        for name, limit in zip(("part_rows", "part_bytes"), self.rolling, strict=True):
            if limit is None:
                continue
            check_number(self.connector, name, limit, name.removeprefix("part_"))
            if self.is_single_file or self.partition_by:
                other = "single=" if self.is_single_file else "partition_by="
                raise InvalidConnector(self.connector, f"{name}= does not go with {other}", "Leave out one of them.")

    def in_files(self, names: Any) -> Any:
        """Returns the given columns, or a ``pyarrow.Schema``, without those that only the folders have.

        Raises: InvalidConnector: none is left.
        """
        if names is None or not self.partition_by:
            return names
        is_schema = hasattr(names, "get_field_index")
        if is_schema:
            import pyarrow  # Arrow takes long to load

            left: Any = pyarrow.schema([field for field in names if field.name not in self.partition_by])
        else:
            left = tuple(name for name in names if name not in self.partition_by)
        if not len(left):
            problem = f"partition_by={', '.join(self.partition_by)} leaves no column for the files"
            raise InvalidConnector(self.connector, problem, "Partition by fewer columns.")
        return left

    def writer(self) -> PartsWriter | PartitionedWriter:
        """Creates a writer of part files."""
        if not self.partition_by:
            return PartsWriter(self.folder(), self.parts_format(), self.rolling)
        from clonos.connectors.partitions.partitioned_writer import PartitionColumns, PartitionedWriter

        partitioning = PartitionColumns(self.connector, self.partition_by, self.row_names())
        return PartitionedWriter(self.folder(), self.parts_format(), partitioning)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Makes the parts visible; a repeated call with equal parts does nothing."""
        OutputFolder(self.folder()).commit(job_id, checkpoint, parts)
        if not self.is_single_file and not self._has_advised:
            self._advise(parts)

    def _advise(self, parts: list[bytes]) -> None:
        """Logs the first advice about a part that this process commits."""
        found = (part for data in parts for part in decode_parts(data, self.connector))
        advice = next((part.advice for part in found if part.advice), "")
        if advice:
            self._has_advised = True
            logger.warning("%s: in a part file of %s %s", self.connector, self.folder(), advice)

    def finish_output(self, job_id: str) -> None:
        """Writes the single file of a job that has ended; without ``single`` does nothing. May be repeated.

        Raises: NotOutputOwner: the output belongs to another job. OutputFailed: the disk fails. OutputCorrupt: a part
        is damaged. RowNotWritable: parts do not fit together.
        """
        if not self.is_single_file:
            return
        output = OutputFolder(self.folder())
        output.check_job(job_id)
        file = output.files.new_file_beside(f"{output.state}/{os.path.basename(output.path)}")
        try:
            self.parts_format().join([path for _, _, path in output.committed_files()], file)
            file.publish(output.path)
        finally:
            file.discard()

    def rows_written(self) -> int:
        """Returns how many rows the output has, as its manifests say.

        Raises: OutputCorrupt: a manifest cannot be read.
        """
        manifests = OutputFolder(self.folder()).manifests()
        return sum(part.rows for manifest in manifests for part in manifest.parts)

    def abort(self, job_id: str, checkpoint: int, generation: int) -> None:
        """Removes the part files that no checkpoint will commit."""
        OutputFolder(self.folder()).abort(job_id, checkpoint, generation)

    def roll_back(self, job_id: str, checkpoint: int) -> list[int]:
        """Removes the output committed after ``checkpoint``; returns the numbers of the removed checkpoints."""
        return OutputFolder(self.folder()).roll_back(job_id, checkpoint)


def absolute(path: str) -> str:
    """Returns the absolute path of an output, a URL as it is."""
    return path if is_url(path) else os.path.abspath(os.path.expanduser(path))


def _real_path(path: str) -> str:
    return split_url(path).without_options if is_url(path) else os.path.realpath(path)


def paths_of(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Returns one path or several as a tuple of str.

    Raises: InvalidConnector: a path is the empty str, which would match nothing or the working folder.
    """
    several = [path] if isinstance(path, str | os.PathLike) else list(path)
    paths = tuple(local_path(os.fspath(one)) for one in several)
    if "" in paths:
        raise InvalidConnector("files", "a path is empty", 'Name a file, a folder or a pattern such as "in/*.txt".')
    return paths
