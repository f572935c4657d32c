"""Files of the store: a local folder, or the location that a URL names. Names are relative, with slashes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.io.local.links import error_text
from clonos.io.system.entropy import random_bytes


class StoreFailed(EnvironmentFault):
    """The store failed to perform an action; a retry may succeed."""

    store: str
    action: str
    reason: str

    def __str__(self) -> str:
        return f"the checkpoint store {self.store} failed to {self.action}: {self.reason}."


class ObjectMissing(StoreFailed):
    """The object does not exist."""

    def __init__(self, store: str, name: str) -> None:
        super().__init__(store, f"read {name}", "it does not exist")
        self.args = (store, name)
        self.name = name


class StoreUnsupported(JobError):
    """The URL names a store that cannot hold checkpoints."""

    url: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.url} cannot be used as the checkpoint store: {self.reason}."
            " Use a folder that all machines share, s3://, gs://, az://, hdfs://, webhdfs:// or postgresql://."
        )


class ObjectFiles(Protocol):
    """Objects by name. A write is atomic, and durable on return.

    Raises: StoreFailed when the outcome of a call is unknown.
    """

    url: str

    def read(self, name: str) -> bytes:
        """Returns all bytes of an object. Raises: ObjectMissing when it does not exist."""

    def write(self, name: str, data: bytes) -> None:
        """Creates or replaces an object."""

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Creates or replaces an object from parts that are made while it is written. An error of the iterator is
        raised, and leaves no object."""

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Creates an object unless it exists. Of several concurrent callers, exactly one gets True."""

    def exists(self, name: str) -> bool:
        """Returns True when the object exists."""

    def delete(self, name: str) -> None:
        """Removes an object, if it exists."""

    def list(self, folder: str) -> list[str]:
        """Returns the names of all objects below a folder, sorted."""

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the names of hidden files below a folder: those that are being written, or whose writer was
        killed."""


class LocalFiles:
    """Objects in a local folder or in a mounted one. Its file system must support hard links."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def read(self, name: str) -> bytes:
        """Returns all bytes of a file. Raises: ObjectMissing when it does not exist; StoreFailed for any other
        error."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            raise ObjectMissing(self.url, name) from None
        except OSError as error:
            raise StoreFailed(self.url, f"read {name}", str(error)) from None

    def write(self, name: str, data: bytes) -> None:
        """Writes a temporary file and renames it."""
        self.write_parts(name, (data,))

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Writes a temporary file part by part and renames it. Raises: StoreFailed."""
        path = self.root / name
        try:
            part = _write_part(path, parts)
            os.replace(part, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise StoreFailed(self.url, f"write {name}", str(error)) from None

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Links a temporary file to the name, which fails when the name exists. Raises: StoreFailed."""
        path = self.root / name
        try:
            part = _write_part(path, (data,))
            try:
                os.link(part, path)
            except FileExistsError:
                return False
            finally:
                part.unlink(missing_ok=True)
            _sync_folder(path.parent)
        except OSError as error:
            raise StoreFailed(self.url, f"create {name}", str(error)) from None
        return True

    def exists(self, name: str) -> bool:
        """Returns True when the file exists."""
        return (self.root / name).exists()

    def delete(self, name: str) -> None:
        """Removes a file, if it exists. Raises: StoreFailed."""
        try:
            (self.root / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreFailed(self.url, f"delete {name}", str(error)) from None

    def list(self, folder: str) -> list[str]:
        """Returns the names of the files below a folder, without those that are being written."""
        return sorted(self._files_below(folder, are_hidden=False))

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the names of the temporary files below a folder."""
        return sorted(self._files_below(folder, are_hidden=True))

    def _files_below(self, folder: str, are_hidden: bool) -> Iterator[str]:
        for path, _, names in os.walk(self.root / folder):
            relative = Path(path).relative_to(self.root)
            yield from ((relative / name).as_posix() for name in names if name.startswith(".") == are_hidden)

    def remove_empty_folders(self) -> None:
        """Removes the root and the folders below it that are empty."""
        for path, _, _ in os.walk(self.root, topdown=False):
            with suppress(OSError):
                os.rmdir(path)


def _write_part(path: Path, parts: Iterable[bytes]) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise OSError(error.errno, error_text(error, path.parent)) from None
    part = path.parent / f".{path.name}.{random_bytes(6).hex()}"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    return part


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
