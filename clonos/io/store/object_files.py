"""Where the objects of a store lie: a folder here, or what a URL names. Names are relative, with slashes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.io.system.entropy import random_bytes


class StoreFailed(EnvironmentFault):
    """The store did not do what it was asked to; trying again may help."""

    store: str
    action: str
    reason: str

    def __str__(self) -> str:
        return f"the checkpoint store {self.store} failed to {self.action}: {self.reason}."


class ObjectMissing(StoreFailed):
    """An object is not there."""

    def __init__(self, store: str, name: str) -> None:
        super().__init__(store, f"read {name}", "there is no such object")
        self.args = (store, name)
        self.name = name


class StoreUnsupported(JobError):
    """The store's URL names a kind of store that cannot be used."""

    url: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.url} cannot be the checkpoint store: {self.reason}."
            " Use a folder that all machines share, s3://, gs://, hdfs:// or webhdfs://."
        )


class ObjectFiles(Protocol):
    """Bytes by name. A write is all or nothing and durable when it returns; ``StoreFailed`` when that is not known."""

    url: str

    def read(self, name: str) -> bytes:
        """All bytes; ``ObjectMissing``."""

    def write(self, name: str, data: bytes) -> None:
        """Makes or replaces an object."""

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """The same for parts that are made while they are written; what raises there is raised: nothing
        whole is there."""

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Makes an object unless there is one; of several callers just one gets True."""

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""

    def delete(self, name: str) -> None:
        """Removes an object; one that is missing is no error."""

    def list(self, folder: str) -> list[str]:
        """Names of all objects below a folder, sorted."""


class LocalFiles:
    """A folder of this machine, or one that is mounted on all. It must be able to link files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            raise ObjectMissing(self.url, name) from None
        except OSError as error:
            raise StoreFailed(self.url, f"read {name}", str(error)) from None

    def write(self, name: str, data: bytes) -> None:
        """To a file beside it that then takes its name."""
        self.write_parts(name, (data,))

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """The same, part by part."""
        path = self.root / name
        try:
            part = _write_part(path, parts)
            os.replace(part, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise StoreFailed(self.url, f"write {name}", str(error)) from None

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """A hard link does not replace."""
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
        """Whether the file is there."""
        return (self.root / name).exists()

    def delete(self, name: str) -> None:
        """Removes the file."""
        try:
            (self.root / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreFailed(self.url, f"delete {name}", str(error)) from None

    def list(self, folder: str) -> list[str]:
        """Files below the folder, but for those that are being written."""
        found = []
        for path, _, names in os.walk(self.root / folder):
            relative = Path(path).relative_to(self.root)
            found += [(relative / name).as_posix() for name in names if not name.startswith(".")]
        return sorted(found)


def _write_part(path: Path, parts: Iterable[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
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
