"""Base of files as a source, by path, folder or pattern, and as a sink of one folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.connectors.filesystem.file_patterns import find_files
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.filesystem.file_splits import OrderedFiles, block_splits, check_split, new_files
from clonos.connectors.filesystem.output_folder import readable_files


class FilesByPath(OrderedFiles, FileSink):
    """Base of the formats of files.

    A source reads the files that there are when the job starts, and those that appear at each interval, if there is
    one.
    """

    block_bytes: int | None
    discovery_interval_ns: int

    def __init__(self, connector: str, paths: Sequence[str], **parts: Any) -> None:
        super().__init__(connector, paths, **parts)
        self.patterns = self.paths

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the parts of the files that exist now.

        Raises: InvalidConnector: they do not fit the options. InputMalformed: a file is unusable.
        """
        return self._splits_of(self._paths(), parallelism, ())

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """Returns the splits of files that have appeared since."""
        return self._splits_of(new_files(self._paths(), known, index, parallelism), 1, known)

    def check_split(self, split: bytes) -> None:
        """See ``connector_contract.CheckingSource``."""
        check_split(self.connector, self.paths, split)

    def _paths(self) -> list[str]:
        return find_files(self.connector, self.paths, readable_files, may_be_empty=self.discovery_interval_ns > 0)

    def _splits_of(self, paths: list[str], parallelism: int, known: Sequence[bytes]) -> list[bytes]:
        """Returns blocks of files, or whole files. ``known``: splits of the files before them."""
        return block_splits(paths, parallelism, self.block_bytes, self.ordered is True)
