"""Source of the rows of a DataFrame: Spark's executors write them once, and the job reads what they wrote.

The files are written when the job first starts, before its slots take cores of Spark. They stay with the checkpoint
store, so every recovery and every resume reads the same rows, even if the DataFrame would give others today.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Self

from clonos.connectors.columns.parquet_files import ParquetFiles
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.history import HistorySource
from clonos.operators.column_contract import Bound
from clonos.operators.columnar.plain_columns import plain_schema
from clonos.operators.connector_contract import SplitReader
from clonos.spark.frames.part_writer import arrow_schema, checked_frame, write_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECTOR = "frames.source"
PARTS = "*/part-*.parquet"


class FrameSource(HistorySource):
    """Source of ``pyarrow.RecordBatch`` with the columns of a DataFrame. See ``frames.source``."""

    is_columnar = True

    def __init__(self, frame: Any, folder: str | os.PathLike[str] | None, ordered: bool | None) -> None:
        self._frame: DataFrame | None = checked_frame(CONNECTOR, frame)
        self._schema = arrow_schema(CONNECTOR, self._frame)
        self._files: ParquetFiles | None = None
        self._is_empty = False
        self._ordered = ordered
        self.input_folder = "" if folder is None else os.path.abspath(os.path.expanduser(os.fspath(folder)))
        """Folder for the files, if the user has given one; else "", and they are beside the checkpoint store."""

    def __repr__(self) -> str:
        return f"{CONNECTOR}({', '.join(self._schema.names)})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_frame": None}  # a DataFrame lives in the driver

    @property
    def session(self) -> Any:
        """Returns the session of the DataFrame."""
        return None if self._frame is None else self._frame.sparkSession

    def write_input(self, folder: str) -> None:
        """Writes the DataFrame into a new folder. Called in the driver at each fresh start.

        Raises: FrameFailed: Spark could not write it.
        """
        assert self._frame is not None, "the driver has the DataFrame"
        parts = write_frame(CONNECTOR, self._frame, folder, "part-0000000000-frame", 0)
        self._is_empty = not parts
        self._files = self._files_of([f"{folder}/{part.name}" for part in parts] or [f"{folder}/part-*"])

    def find_input(self, root: str) -> None:
        """Reads what an earlier start has written into a folder below ``root``. Called when the job is resumed."""
        self._files = self._files_of([f"{root}/{PARTS}"])

    def _files_of(self, paths: Sequence[str]) -> ParquetFiles:
        return ParquetFiles(paths, columns=None, schema=None, ordered=self._ordered)

    def _written(self) -> ParquetFiles:
        if self._files is None:
            problem = "a DataFrame is written when its job starts, so that its rows can be read again"
            raise InvalidConnector(CONNECTOR, problem, "Start the job, or use values(...) where nothing is started.")
        return self._files

    # --- see connector_contract.Source and those that it may be besides

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the row groups of the files, or whole files.

        Raises: InvalidConnector: the DataFrame is not written yet.
        """
        files = self._written()
        return [] if self._is_empty else files.splits(parallelism)

    def reader(self) -> SplitReader[Any]:
        """Creates a reader of record batches."""
        return self._written().reader()

    def check_split(self, split: bytes) -> None:
        """See ``connector_contract.CheckingSource``."""
        self._written().check_split(split)

    def in_order(self) -> Self:
        """See ``connector_contract.OrderedSource``: the order within each partition."""
        source = copy.copy(self)
        source._ordered = True if self._ordered is None else self._ordered
        source._files = None if self._files is None else self._files.in_order()
        return source

    def order_note(self, splits: Sequence[bytes], parallelism: int) -> str:
        """See ``connector_contract.OrderedSource``."""
        return self._written().order_note(splits, parallelism) if splits else ""

    def column_schema(self) -> Any:
        """See ``column_contract.DescribedSource``."""
        return plain_schema(self._schema)

    def narrowed(self, columns: Collection[str] | None, bounds: Sequence[Bound]) -> Self:
        """See ``column_contract.NarrowableSource``."""
        source = copy.copy(self)
        source._files = None if self._files is None else self._files.narrowed(columns, bounds)
        return source
