"""``delta.read``: the rows of one version of a Delta table, as a bounded source of columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from clonos.connectors.columns.batch_files import reading_input
from clonos.connectors.columns.parquet_batches import metadata_of
from clonos.connectors.connector_errors import InputUnreadable, UnexpectedInput
from clonos.connectors.delta.data_files import (
    WHOLE,
    DataFileReader,
    DataFileSource,
    DataFileSplit,
    decode_data_file,
    encode_data_file,
    packed_schema,
    place_of,
    unpacked_schema,
)
from clonos.connectors.delta.delta_errors import DataFileGone
from clonos.connectors.delta.table_commits import version_at
from clonos.connectors.delta.table_versions import READ, DataFile, TableVersion, open_version
from clonos.connectors.filesystem.file_sinks import absolute
from clonos.connectors.filesystem.file_splits import SPLIT_FORMAT, FileStatus, OrderedFiles, regular_status
from clonos.connectors.object_stores.object_input import stamp_ns, statuses_of
from clonos.connectors.object_stores.urls import is_url
from clonos.core.model.errors import ClonosError
from clonos.operators.columnar.plain_columns import plain_schema
from clonos.operators.lineage import Dataset, dataset_at

FILES_PER_TASK: Final = 4
"""Files of a task from which on they are not cut into their row groups, for which the driver reads each of them."""


class DeltaRead(DataFileSource, OrderedFiles):
    """Bounded source of the rows of a version, which does not change after the first start."""

    is_columnar = True
    routes_malformed = True

    def __init__(self, path: str, version: int | None, timestamp: datetime | None, ordered: bool | None) -> None:
        self.path = absolute(path)
        self.version, self.timestamp, self.ordered = version, timestamp, ordered
        self.patterns = (self.path,)

    def __repr__(self) -> str:
        return f"{READ}({self.path!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [dataset_at(self.path)]

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the data files of the version; their row groups if there are few files.

        Raises: InvalidConnector: there is no such version, or it cannot be read. InputUnreadable, DataFileGone.
        """
        found = self._open()
        files = found.files()
        places = [place_of(self.path, file.path) for file in files]
        statuses = self._statuses(places, found.version)
        is_cut = not self.ordered and len(files) < FILES_PER_TASK * parallelism
        schema = packed_schema(found.schema)
        return [
            encode_data_file(
                DataFileSplit(SPLIT_FORMAT, place, *status, begin, end, found.version, file.partition, schema)
            )
            for place, status, file in zip(places, statuses, files, strict=True)
            for begin, end in _cuts(place, status, file, is_cut)
        ]

    def can_cut(self, split: Any) -> bool:
        """Returns that a file may have several row groups."""
        return True

    def check_split(self, split: bytes) -> None:
        """Checks that a split is of this table.

        Raises: UnexpectedInput: it is of another one. SplitMalformed: it is none.
        """
        path = decode_data_file(split).path
        if not path.startswith(f"{place_of(self.path, '').partition('?')[0].rstrip('/')}/"):
            raise UnexpectedInput(READ, path, self.patterns, os.getcwd())

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``."""
        try:
            return plain_schema(self._open().schema)
        except ClonosError:
            return None

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """See ``column_contract.SampledSource``: the columns of the version that the job began with."""
        if not splits:
            return self.column_schema()
        return plain_schema(unpacked_schema(decode_data_file(splits[0]).schema))

    def reader(self) -> DataFileReader:
        """Creates a reader of record batches."""
        return self.file_reader()

    def _open(self) -> TableVersion:
        version = self.version
        if self.timestamp is not None:
            version = version_at(self.path, open_version(READ, self.path).version, self.timestamp)
        return open_version(READ, self.path, version)

    def _statuses(self, places: Sequence[str], version: int) -> list[FileStatus]:
        try:
            if not is_url(self.path):
                return [regular_status(place) for place in places]
            listed = statuses_of(places)
            return [FileStatus(listed[place].size_bytes, stamp_ns(listed[place])) for place in places]
        except KeyError as error:
            raise DataFileGone(str(error.args[0]), version) from None
        except InputUnreadable as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise DataFileGone(error.path, version) from None
            raise


def _cuts(place: str, status: FileStatus, file: DataFile, is_cut: bool) -> list[tuple[int, int]]:
    if not is_cut:
        return [(0, WHOLE)]
    with reading_input(place, "Parquet"):
        metadata = metadata_of(place, *status)
    return [(group, group + 1) for group in range(metadata.num_row_groups) if metadata.row_group(group).num_rows]
