"""Unpacking of a submitted file: a Python file, or an archive, within limits.

Names of an archive that lead out of the folder, links, devices and doubled names are refused, not corrected. Sizes are
counted as bytes arrive, because those in an archive may lie, and no read is larger than its purpose needs. Whatever
reading an archive raises means that it cannot be read; what writing raises is the fault of this machine.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Self, cast

from clonos.core.model.errors import EnvironmentFault, JobError

UPLOAD_BYTES_MAX: Final = 64 << 20
PIECE_BYTES: Final = 1 << 16
HEADER_BYTES_MAX: Final = 1 << 20
"""Bytes that may describe one file of a tar archive, with its long name and its extended header."""
DIRECTORY_BYTES_MAX: Final = 4 << 20
"""Bytes of the list of entries of a zip archive, and of a read in general."""
ARCHIVES: Final = (".zip", ".tar.gz", ".tgz")
ZIP_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Methods of compression whose readers give out bytes in pieces. The others unpack what they are given as a whole."""
UNUSABLE_NAME_ERRNOS: Final = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ELOOP})


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what a submission may unpack to. ``entries``: files and folders."""

    files: int = 2_000
    entries: int = 10_000
    bytes: int = 256 << 20
    depth: int = 20
    name_bytes: int = 200


class SubmissionRefused(JobError):
    """A submission is not fit to be unpacked or run."""

    reason: str

    def __str__(self) -> str:
        return f"the submission was refused: {self.reason}"


class SubmissionNotStored(EnvironmentFault):
    """The machine of the server could not store or check a submission."""

    reason: str

    def __str__(self) -> str:
        return f"the server could not take the submission: {self.reason}. Its machine needs a look; then submit again."


def unpack(upload: IO[bytes], name: str, folder: Path, limits: Limits | None = None) -> list[str]:
    """Unpacks a submitted file into a folder and returns the names of its files. ``name``: as the sender calls it.

    Raises: SubmissionRefused. OSError: a file cannot be written.
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
        self._bytes = self._entries = 0
        self.names: list[str] = []

    def count_entry(self) -> None:
        """Counts one entry of an archive. Raises: SubmissionRefused."""
        self._entries += 1
        if self._entries > self._limits.entries:
            raise SubmissionRefused(f"it has more than {self._limits.entries:,} entries.")

    def write(self, name: str, data: IO[bytes]) -> None:
        """Writes one file. Raises: SubmissionRefused. OSError."""
        parts = self._parts(name)
        if len(self.names) >= self._limits.files:
            raise SubmissionRefused(f"it has more than {self._limits.files:,} files.")
        path = self._folder.joinpath(*parts)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = path.open("xb")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise SubmissionRefused(f"two of its entries have the place {name!r:.100}.") from None
        except OSError as error:
            if error.errno in UNUSABLE_NAME_ERRNOS:
                raise SubmissionRefused(f"the name {name!r:.100} cannot be used: {error.strerror}.") from None
            raise
        with file:
            while piece := _piece(data):
                self._bytes += len(piece)
                if self._bytes > self._limits.bytes:
                    raise SubmissionRefused(f"its files have more than {self._limits.bytes:,} bytes.")
                file.write(piece)
        self.names.append("/".join(parts))

    def _parts(self, name: str) -> tuple[str, ...]:
        """Returns the folders and the name of a file. Raises: SubmissionRefused."""
        parts = PurePosixPath(name).parts
        is_inside = bool(parts) and not name.startswith("/") and not name.endswith("/") and ".." not in parts
        if not is_inside or "\\" in name or not name.isprintable() or ":" in parts[0]:
            raise SubmissionRefused(f"the name {name!r:.100} leads out of the job's folder or cannot be used.")
        if len(parts) > self._limits.depth or max(len(os.fsencode(part)) for part in parts) > self._limits.name_bytes:
            raise SubmissionRefused(f"the name {name!r:.100} is too long or too deep.")
        return parts


def _piece(data: IO[bytes]) -> bytes:
    """Returns the next piece of a file. Raises: SubmissionRefused."""
    with _reading("file"):
        return data.read(PIECE_BYTES)


class _Zipped:
    """Upload for the reader of zip archives, without reads of more bytes than a list of entries may have."""

    def __init__(self, upload: IO[bytes]) -> None:
        self._upload = upload

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upload, name)

    def read(self, size: int = -1) -> bytes:
        """Returns that many bytes, or the rest. Raises: SubmissionRefused."""
        data = self._upload.read(DIRECTORY_BYTES_MAX + 1 if size < 0 else min(size, DIRECTORY_BYTES_MAX + 1))
        if len(data) > DIRECTORY_BYTES_MAX:
            raise SubmissionRefused(f"the list of its entries has more than {DIRECTORY_BYTES_MAX:,} bytes.")
        return data


def _unpack_zip(upload: IO[bytes], target: _Target) -> None:
    with _reading("zip archive"):
        archive = zipfile.ZipFile(cast(IO[bytes], _Zipped(upload)))
    with archive:
        for entry in archive.infolist():
            target.count_entry()
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise SubmissionRefused(f"its entry {entry.filename!r:.100} is a link or not a file.")
            if entry.filename.endswith("/"):
                continue
            if entry.compress_type not in ZIP_METHODS:
                raise SubmissionRefused(f"its entry {entry.filename!r:.100} is not compressed with deflate.")
            with _reading("zip archive"):
                data = archive.open(entry)
            with data:
                target.write(entry.filename, data)


class _Unzipped:
    """Stream of a tar archive that gives out only as many bytes as its present part may have."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.bytes_left = HEADER_BYTES_MAX

    def read(self, size: int) -> bytes:
        """Returns up to that many bytes. Raises: SubmissionRefused."""
        data = self._source.read(size)
        self.bytes_left -= len(data)
        if self.bytes_left < 0:
            raise SubmissionRefused(f"one of its headers, or what follows its end, exceeds {HEADER_BYTES_MAX:,} bytes.")
        return data


class _TarEntry(tarfile.TarInfo):
    """Entry of a tar archive. The reader takes a damaged header for the end of the archive; this one does not."""

    @classmethod
    def frombuf(cls, header: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Returns an entry from its header. Raises: SubmissionRefused: it is damaged."""
        if not header.strip(b"\0"):
            return super().frombuf(header, encoding, errors)  # which raises the error that is the end
        try:
            return super().frombuf(header, encoding, errors)
        except tarfile.HeaderError as error:
            raise SubmissionRefused(f"a header in it is damaged: {error}.") from None


def _unpack_tar(upload: IO[bytes], target: _Target) -> None:
    with gzip.GzipFile(fileobj=upload) as file:
        stream = _Unzipped(cast(IO[bytes], file))
        with _opened_tar(stream) as archive:
            while (entry := _next_of(archive, stream)) is not None:
                target.count_entry()
                if not (entry.isfile() or entry.isdir()) or entry.issparse():
                    raise SubmissionRefused(f"its entry {entry.name!r:.100} is a link or not a file.")
                if (data := archive.extractfile(entry)) is not None:
                    stream.bytes_left += entry.size
                    target.write(entry.name, data)
        with _reading("tar.gz archive"):
            while stream.read(PIECE_BYTES):  # to the checksum of the whole
                pass


def _opened_tar(stream: _Unzipped) -> tarfile.TarFile:
    with _reading("tar.gz archive"):
        return tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|", tarinfo=_TarEntry)


def _next_of(archive: tarfile.TarFile, stream: _Unzipped) -> tarfile.TarInfo | None:
    """Returns the next entry; None at the end. Raises: SubmissionRefused."""
    with _reading("tar.gz archive"):
        stream.bytes_left = HEADER_BYTES_MAX
        entry = archive.next()
        cast(Any, archive).members.clear()  # it would keep all of them
        return entry


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raises: SubmissionRefused: what the context reads is damaged. Readers of archives raise errors of many kinds."""
    try:
        yield
    except (SubmissionRefused, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 they have no base of their own
        raise SubmissionRefused(f"it is not a {what} that can be read: {error!s:.200}") from None


def find_target(names: list[str], file: str | None) -> str:
    """Returns FILE or FILE:NAME of the job among the files of a submission. ``file``: as its sender names it; None lets
    the only Python file at the top count, or ``job.py``.

    Raises: SubmissionRefused.
    """
    if file is not None:
        path, colon, name = file.partition(":")
        if (path := os.path.normpath(path)) not in names:
            raise SubmissionRefused(f"it has no file {path!r:.100}.")
        if colon and not name.isidentifier():
            raise SubmissionRefused(f"{name!r:.100} cannot be the name of a job in {path}.")
        return f"{path}{colon}{name}"
    top = [name for name in names if name.endswith(".py") and "/" not in name]
    if len(top) == 1:
        return top[0]
    if "job.py" in top:
        return "job.py"
    found = ", ".join(top) or "none"
    raise SubmissionRefused(f"name the file that has the job: its Python files at the top are {found:.200}.")
