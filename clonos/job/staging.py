"""Input that is written when a job first starts, such as a DataFrame: where it is, and when it is removed.

::

    <store>/frames/<step>-<random>/         the input of one step, beside the objects of the checkpoint store
    <folder>/<store, 16 digits>/<step>-...  the same, if the source names a folder

The record of the job has the splits of this input, so it is in use from the moment at which the record is created.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from xxhash import xxh3_64_hexdigest

from clonos.connectors.connector_errors import InvalidConnector
from clonos.io.store.object_files import LocalFiles
from clonos.io.system.entropy import random_bytes

if TYPE_CHECKING:
    from clonos.api.graph import JobGraph
    from clonos.io.store.store import CheckpointStore

FOLDER: Final = "frames"


@runtime_checkable
class StagedSource(Protocol):
    """``Source`` whose input the driver has written into a folder before it lists its splits.

    ``input_folder``: the folder that the user wants for it; "" for one in the checkpoint store. ``session``: the Spark
    session that writes it.
    """

    input_folder: str

    @property
    def session(self) -> Any: ...

    def write_input(self, folder: str) -> None:
        """Writes the input into a new folder."""

    def find_input(self, root: str) -> None:
        """Finds the input below the folder of an earlier start."""


class StagedInput:
    """Staged sources of a job, with the folders of one start."""

    def __init__(self, graph: JobGraph, store: CheckpointStore) -> None:
        found: list[tuple[str, object]] = [(step.name, step.source) for step in graph.steps]
        self._sources = {name: source for name, source in found if isinstance(source, StagedSource)}
        self._store = store
        self._own: list[str] = []

    def write(self) -> None:
        """Writes the input of all sources, each into a new folder; removes it again if one fails.

        Raises: InvalidConnector: a source names no folder, and the store is none. FrameFailed: Spark fails.
        """
        for name, source in self._sources.items():
            folder = f"{self._root(source)}/{name}-{random_bytes(6).hex()}"
            self._own.append(folder)
            try:
                source.write_input(folder)
            except BaseException:
                self.remove()
                raise

    def refuse_savepoint(self) -> None:
        """Refuses a start from a savepoint: the input that was written for the old job is not in it.

        Raises: InvalidConnector: a source has such input.
        """
        for name in self._sources:
            problem = f"the step {name} reads input that the old job has written into its own store"
            raise InvalidConnector("a savepoint", problem, "Let the source read files that both jobs can reach.")

    def find(self) -> None:
        """Lets all sources find the input of the job that is resumed."""
        for source in self._sources.values():
            source.find_input(self._root(source))

    def remove_others(self) -> None:
        """Removes the input of earlier starts on this store, which the present one replaces."""
        roots = {self._root(source) for source in self._sources.values()}
        if isinstance(self._store.files, LocalFiles):
            roots.add(f"{self._store.files.root}/{FOLDER}")
        for root in roots:
            for name in os.listdir(root) if os.path.isdir(root) else ():
                if (folder := f"{root}/{name}") not in self._own:
                    shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Removes the input that this start has written."""
        own, self._own = self._own, []
        for folder in own:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another start has its input there
                os.rmdir(os.path.dirname(folder))
        if own and isinstance(self._store.files, LocalFiles):
            self._store.files.remove_empty_folders()

    def _root(self, source: StagedSource) -> str:
        if source.input_folder:
            return f"{source.input_folder}/{xxh3_64_hexdigest(self._store.url.encode())}"
        if not isinstance(self._store.files, LocalFiles):
            raise InvalidConnector(
                "frames.source",
                f"the checkpoint store {self._store.url} is no folder into which Spark could write the rows",
                "Name a folder that all machines of the job share: frames.source(df, folder=...).",
            )
        return f"{self._store.files.root}/{FOLDER}"


def session_of(graph: JobGraph) -> Any:
    """Returns the Spark session of the first staged source; None without one."""
    sources: list[object] = [step.source for step in graph.steps]
    return next((source.session for source in sources if isinstance(source, StagedSource)), None)
