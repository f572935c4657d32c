"""Base of all file sinks: an output folder, prepared part files, commits by checkpoint."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from clonos.connectors.connector_errors import ConnectorMisused
from clonos.connectors.filesystem.output_folder import OutputFolder
from clonos.connectors.filesystem.output_parts import PartsWriter, RowsFormat


class FileSink:
    """Transactional sink into a folder. A subclass defines the format."""

    def __init__(self, connector: str, paths: Sequence[str]) -> None:
        self.connector = connector
        self.paths = tuple(paths)
        # Absolute, because slots may have another working folder.
        self._folder = os.path.abspath(os.path.expanduser(self.paths[0])) if self.paths else ""

    def rows_format(self) -> RowsFormat:
        """Returns the format of the part files.

        Raises: ConnectorMisused: an option is for reading only.
        """
        raise NotImplementedError

    def folder(self) -> str:
        """Returns the absolute path of the output folder.

        Raises: ConnectorMisused: the path does not name a single folder.
        """
        if len(self.paths) != 1:
            raise ConnectorMisused(
                self.connector, f"a sink writes to one folder, not to {len(self.paths)}", "Name one."
            )
        path = self.paths[0]
        if "://" in path:
            raise ConnectorMisused(self.connector, f"{path!r} is a URL", "A sink of files writes to a mounted folder.")
        if glob.has_magic(path) and not os.path.isdir(self._folder):
            raise ConnectorMisused(
                self.connector, f"{path!r} is a pattern", "A sink writes to one folder: name it without * ? []."
            )
        return self._folder

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Claims the folder for this job.

        Raises: OutputInUse, OutputTaken: another job or other files occupy it. OutputFailed: the disk fails.
        """
        self.rows_format()
        OutputFolder(self.folder()).prepare(job_id, resume, overwrite)

    def check_output(self, replaces: str) -> bool:
        """Checks that a fresh start can claim the folder; returns whether it holds output of the job ``replaces``.

        Raises: OutputInUse: it holds other content.
        """
        return OutputFolder(self.folder()).check(replaces)

    def release_output(self, job_id: str) -> None:
        """Gives the folder back when the start of the job has failed."""
        OutputFolder(self.folder()).release(job_id)

    def writer(self) -> PartsWriter:
        """Creates a writer of part files."""
        return PartsWriter(self.folder(), self.rows_format())

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Makes the parts visible at once; a repeated call with equal parts does nothing."""
        OutputFolder(self.folder()).commit(job_id, checkpoint, parts)

    def withdraw(self, job_id: str, checkpoint: int) -> list[int]:
        """Removes the output committed after ``checkpoint``; returns the numbers of the removed checkpoints."""
        return OutputFolder(self.folder()).withdraw(job_id, checkpoint)


def paths_of(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Returns one path or several as a tuple of str.

    Raises: ConnectorMisused: a path is the empty str, which would match nothing or the working folder.
    """
    several = [path] if isinstance(path, str | os.PathLike) else list(path)
    paths = tuple(os.fspath(one) for one in several)
    if "" in paths:
        raise ConnectorMisused("files", "a path is empty", 'Name a file, a folder or a pattern such as "in/*.txt".')
    return paths
