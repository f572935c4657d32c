"""Files of an output: what its folder does with names and contents, on a mounted file system and in an object store."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from clonos.connectors.connector_errors import InvalidConnector, OutputFailed
from clonos.connectors.filesystem import durable_files
from clonos.connectors.filesystem.durable_files import DurableFile, output_errors, sync_folder
from clonos.connectors.object_stores.urls import is_url, split_url
from clonos.connectors.partitions.folder_names import is_partition
from clonos.io.local.links import error_text


class OutputFile(Protocol):
    """File that is written once, sequentially; ``discard`` removes it unless it is published."""

    size_bytes: int

    def write(self, data: bytes) -> int:
        """Appends data."""

    def publish(self, final_path: str) -> str:
        """Makes the whole file appear under a path, durably; returns the xxh3 of its content."""

    def discard(self) -> None:
        """Removes what is not published. May be called at any time, also after an error."""


class OutputFiles(Protocol):
    """Files by path, below one output and its hidden folder.

    Raises: OutputFailed: the disk or the store fails.
    """

    def state_folder(self, output: str) -> str:
        """Returns the hidden folder beside an output."""

    def input_path(self, path: str) -> str:
        """Returns the path by which a source reads a file."""

    def names(self, folder: str) -> list[str]:
        """Returns the names in a folder, sorted; none if it is missing."""

    def files_in(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder, sorted; none if it is missing."""

    def files_below(self, folder: str) -> list[str]:
        """Returns the paths of the files in a folder and in its folders ``column=value``, relative to it, sorted."""

    def content(self, path: str) -> bytes | None:
        """Returns the bytes of a file, None if it is missing."""

    def size_bytes(self, path: str) -> int:
        """Returns the size of a file.

        Raises: OSError: it is missing or cannot be reached.
        """

    def create(self, path: str, data: bytes) -> bool:
        """Creates a file at once; returns False if it exists with other bytes."""

    def new_file(self, path: str) -> OutputFile:
        """Begins a file; it gets its final path when it is published. ``path`` is its name while it is written."""

    def new_file_beside(self, path: str) -> OutputFile:
        """Begins a file that will get this path or another one in its folder; several processes may do so at once."""

    def move(self, path: str, final_path: str) -> None:
        """Makes a file appear under another path, which another driver may have done in the meantime.

        Raises: OSError: it cannot be moved, or neither path exists.
        """

    def sync(self, folder: str) -> None:
        """Makes the names in a folder durable."""

    def remove(self, path: str) -> None:
        """Removes a file, if it exists."""

    def make_folder(self, path: str) -> None:
        """Creates a folder, and those above it, durably."""

    def remove_folder(self, path: str) -> None:
        """Removes a folder if it is empty."""

    def exists(self, path: str) -> bool:
        """Returns whether there is a file or a folder."""

    def is_file(self, path: str) -> bool:
        """Returns whether there is a file."""

    def is_folder(self, path: str) -> bool:
        """Returns whether there is a folder."""

    def is_in_use(self, path: str) -> bool:
        """Returns whether a process writes an unfinished file."""

    def check_place(self, path: str, is_single: bool, is_part: Callable[[str], bool]) -> None:
        """Checks that a path can be an output.

        Raises: InvalidConnector: it cannot.
        """


def state_folder(output: str) -> str:
    """Returns the hidden folder beside a local output. It has what readers of the output must not see."""
    parent, name = os.path.split(os.path.realpath(output))
    return os.path.join(parent, f".{name}.clonos")


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def files_of(output: str) -> tuple[OutputFiles, str]:
    """Returns the files of an output, and its path there: without the options of a URL."""
    if not is_url(output):
        return LocalOutputFiles(), output
    from clonos.connectors.object_stores.object_output import ObjectOutputFiles

    url = split_url(output)
    return ObjectOutputFiles(url), url.without_options


class LocalOutputFiles:
    """Files of a local or mounted file system."""

    def state_folder(self, output: str) -> str:
        return state_folder(output)

    def input_path(self, path: str) -> str:
        return path

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise OutputFailed(folder, "listed", error.strerror or str(error)) from error

    def files_in(self, folder: str) -> list[str]:
        return [name for name in self.names(folder) if os.path.isfile(f"{folder}/{name}")]

    def files_below(self, folder: str) -> list[str]:
        found = []
        with output_errors(folder, "listed"):
            for parent, folders, names in os.walk(folder, onerror=_raise_unless_missing):
                folders[:] = filter(is_partition, folders)
                found += [os.path.relpath(f"{parent}/{name}", folder) for name in names]
        return sorted(found)

    def content(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise OutputFailed(path, "read", error.strerror or str(error)) from error

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def create(self, path: str, data: bytes) -> bool:
        file = DurableFile.create_beside(path)
        try:
            file.write(data)
            return file.publish_if_absent(path)
        finally:
            file.discard()

    def new_file(self, path: str) -> OutputFile:
        return DurableFile(path)

    def new_file_beside(self, path: str) -> OutputFile:
        return DurableFile.create_beside(path)

    def move(self, path: str, final_path: str) -> None:
        try:
            os.rename(path, final_path)
        except FileNotFoundError:
            if not os.path.exists(final_path):
                raise

    def sync(self, folder: str) -> None:
        with output_errors(folder, "synced"):
            sync_folder(folder)

    def remove(self, path: str) -> None:
        with output_errors(path, "removed"):
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                return
            sync_folder(os.path.dirname(path))

    def make_folder(self, path: str) -> None:
        with output_errors(path, "created"):
            if os.path.isdir(path):
                return
            try:
                os.makedirs(path, exist_ok=True)
            except FileExistsError as error:
                raise OutputFailed(path, "created", error_text(error, path)) from error
            sync_folder(os.path.dirname(path))

    def remove_folder(self, path: str) -> None:
        with suppress(OSError):  # it is not empty
            os.rmdir(path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_in_use(self, path: str) -> bool:
        return durable_files.is_in_use(path)

    def check_place(self, path: str, is_single: bool, is_part: Callable[[str], bool]) -> None:
        """Raises InvalidConnector if parts cannot be renamed into the folder, or it is a file or below a file."""
        real = os.path.realpath(path)
        if os.path.exists(real) and not os.path.isdir(real) and not os.path.isfile(real):
            raise InvalidConnector(path, "it is a device, a pipe or a socket", "Name a folder, or a file.")
        if not os.path.isdir(real):
            self._check_file(path, real, is_single)
            return
        with output_errors(path, "opened"):
            is_mount = os.stat(real).st_dev != os.stat(os.path.dirname(real)).st_dev
        if is_single and not all(map(is_part, self.names(real))):
            raise InvalidConnector(path, "it is a folder with files, and single=True writes a file", "Name a file.")
        if is_mount and not is_single:
            hidden = self.state_folder(path)
            problem = f"it is the root of a mounted file system, and parts cannot be renamed into it from {hidden}"
            raise InvalidConnector(path, problem, "Name a folder inside it.")

    def _check_file(self, path: str, real: str, is_single: bool) -> None:
        """Refuses a folder of parts in the place of a file, unless the file is the output of a job; or below a file."""
        if os.path.isfile(real) and not is_single and not os.path.isdir(self.state_folder(path)):
            problem = "it is a file, and this sink writes a folder of part files"
            raise InvalidConnector(path, problem, "Name a folder, or give single=True for one file.")
        above = os.path.dirname(real)
        while not os.path.exists(above):
            above = os.path.dirname(above)
        if not os.path.isdir(above):
            raise InvalidConnector(path, f"{above} is a file, not a folder", "Name a place in a folder.")
