"""Unpacking of a submitted file: a Python file, or an archive, within limits.

Names of an archive that lead out of the folder, links, devices and doubled names are refused, not corrected. Sizes are
counted as bytes arrive, because those in an archive may lie.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from clonos.core.model.errors import JobError

UPLOAD_BYTES_MAX: Final = 64 << 20
PIECE_BYTES: Final = 1 << 16
ARCHIVES: Final = (".zip", ".tar.gz", ".tgz")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what a submission may unpack to."""

    files: int = 2_000
    bytes: int = 256 << 20
    depth: int = 20
    name_characters: int = 200


class SubmissionRefused(JobError):
    """A submission is not fit to be unpacked or run."""

    reason: str

    def __str__(self) -> str:
        return f"the submission was refused: {self.reason}"


def unpack(upload: IO[bytes], name: str, folder: Path, limits: Limits | None = None) -> list[str]:
    """Unpacks a submitted file into a folder and returns the names of its files. ``name``: as the sender calls it.

    Raises: SubmissionRefused.
    """
    base = PurePosixPath(name.replace("\\", "/")).name
    target = _Target(folder, limits or Limits())
    if base.endswith(".py"):
        target.write(base, upload)
    elif base.endswith(".zip"):
        _unpack_zip(upload, target)
    elif base.endswith((".tar.gz", ".tgz")):
        _unpack_tar(upload, target)
    else:
        raise SubmissionRefused(f"{base!r:.100} is neither a .py file nor an archive ({', '.join(ARCHIVES)}).")
    if not target.names:
        raise SubmissionRefused(f"the archive {base!r:.100} has no file.")
    return target.names


class _Target:
    """Folder that is filled within limits."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._bytes = 0
        self.names: list[str] = []

    def write(self, name: str, data: IO[bytes]) -> None:
        """Writes one file. Raises: SubmissionRefused."""
        path = self._path(name)
        if len(self.names) >= self._limits.files:
            raise SubmissionRefused(f"it has more than {self._limits.files:,} files.")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with path.open("xb") as file:
                while piece := data.read(PIECE_BYTES):
                    self._bytes += len(piece)
                    if self._bytes > self._limits.bytes:
                        raise SubmissionRefused(f"its files have more than {self._limits.bytes:,} bytes.")
                    file.write(piece)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise SubmissionRefused(f"two of its entries have the place {name!r:.100}.") from None
        self.names.append(name)

    def _path(self, name: str) -> Path:
        """Returns the place of a name. Raises: SubmissionRefused."""
        parts = PurePosixPath(name).parts
        is_inside = bool(parts) and not name.startswith("/") and ".." not in parts
        if not is_inside or "\\" in name or not name.isprintable() or ":" in parts[0]:
            raise SubmissionRefused(f"the name {name!r:.100} leads out of the job's folder or cannot be used.")
        if len(parts) > self._limits.depth or max(map(len, parts)) > self._limits.name_characters:
            raise SubmissionRefused(f"the name {name!r:.100} is too long or too deep.")
        return self._folder.joinpath(*parts)


def _unpack_zip(upload: IO[bytes], target: _Target) -> None:
    with _readable("zip"), zipfile.ZipFile(upload) as archive:
        for entry in archive.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise SubmissionRefused(f"its entry {entry.filename!r:.100} is a link or no file.")
            if not entry.is_dir():
                with archive.open(entry) as data:
                    target.write(entry.filename, data)


def _unpack_tar(upload: IO[bytes], target: _Target) -> None:
    with _readable("tar.gz"), tarfile.open(fileobj=upload, mode="r|gz") as archive:  # a stream: nothing is kept
        for entry in archive:
            if not (entry.isfile() or entry.isdir()) or entry.issparse():
                raise SubmissionRefused(f"its entry {entry.name!r:.100} is a link or no file.")
            data = archive.extractfile(entry) if entry.isfile() else None
            if data is not None:
                target.write(entry.name, data)


@contextmanager
def _readable(kind: str) -> Iterator[None]:
    """Raises: SubmissionRefused when the archive in the context is damaged."""
    try:
        yield
    except SubmissionRefused:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error, zipfile.BadZipFile) as error:
        raise SubmissionRefused(f"it is no {kind} archive that can be read: {error!s:.200}") from None
    except tarfile.TarError as error:
        raise SubmissionRefused(f"it is no {kind} archive that can be read: {error!s:.200}") from None


def find_target(names: list[str], file: str | None) -> str:
    """Returns FILE or FILE:NAME of the job among the files of a submission. ``file``: as its sender names it; None lets
    the only Python file at the top count, or ``job.py``.

    Raises: SubmissionRefused.
    """
    if file is not None:
        if os.path.normpath(file.partition(":")[0]) not in names:
            raise SubmissionRefused(f"it has no file {file.partition(':')[0]!r:.100}.")
        return file
    top = [name for name in names if name.endswith(".py") and "/" not in name]
    if len(top) == 1:
        return top[0]
    if "job.py" in top:
        return "job.py"
    found = ", ".join(top) or "none"
    raise SubmissionRefused(f"name the file that has the job: its Python files at the top are {found:.200}.")
