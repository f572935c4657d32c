"""Files of HDFS by their paths, for sources and sinks of files, as ``Bucket`` has objects.

Every error is an ``OSError``. A file is written under a hidden name and then renamed, so no reader sees a
part of it. Time and length tell versions apart, and are looked up after each read.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final

from clonos.io.store.hadoop_files import connect, without_stack_trace
from clonos.io.store.hadoop_rpc import CALL_S_MAX
from clonos.io.store.object_status import HadoopStatus, ObjectReplaced, ObjectStatus
from clonos.io.system.entropy import random_bytes

SCHEMES: Final = ("hdfs", "webhdfs")
PIECE_BYTES: Final = 4 << 20
NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
UNFINISHED: Final = re.compile(r"\..+\.[0-9a-f]{12}")
"""Names of files that are being written, or whose writer was killed."""
REFUSALS: Final = ("AccessControlException", "Permission denied", "SecurityException")


class HadoopBucket:
    """Files of ``hdfs://address`` or ``webhdfs://address``. Keys are paths without the leading slash."""

    def __init__(self, scheme: str, address: str, *, call_s_max: float = CALL_S_MAX) -> None:
        self._client = connect(f"{scheme}://{address}", scheme, address, call_s_max)

    def status(self, key: str) -> ObjectStatus:
        """Returns the status of a file. Raises: FileNotFoundError: there is none, or a folder."""
        with _os_errors():
            found = self._client.status(f"/{key}")
        if found.is_folder:
            raise FileNotFoundError(errno.ENOENT, "it is a folder")
        return _object_status(found)

    def read(self, key: str, begin: int, end: int, e_tag: str = "") -> bytes:
        """Returns the bytes from ``begin`` to ``end`` of the version ``e_tag``.

        Raises: ObjectReplaced: the file has another version. FileNotFoundError: there is none.
        """
        with _os_errors():
            content = self._client.read_range(f"/{key}", begin, end)
        if e_tag and self.status(key).e_tag != e_tag:
            raise ObjectReplaced(errno.ESTALE, "it has been replaced")
        return content

    def content(self, key: str) -> bytes:
        """Returns all bytes of a file. Raises: FileNotFoundError: there is none."""
        with _os_errors():
            return self._client.read(f"/{key}")

    def names_in(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the names of the files directly in a folder, and those of its folders, both sorted."""
        with _os_errors():
            found = self._client.entries(f"/{folder}")
        names = sorted(name for name, is_folder in found if not is_folder and not UNFINISHED.fullmatch(name))
        return names, sorted(name for name, is_folder in found if is_folder)

    def keys_below(self, folder: str) -> list[str]:
        """Returns the keys of all files below a folder, sorted."""
        return list(self.statuses_below(folder))

    def statuses_below(self, folder: str) -> dict[str, ObjectStatus]:
        """Returns the status of all files below a folder, by their keys, which are sorted."""
        with _os_errors():
            found = self._client.files_below(f"/{folder}".rstrip("/"))
        paths = sorted(path for path in found if not UNFINISHED.fullmatch(path.rpartition("/")[2]))
        return {path[1:]: _object_status(found[path]) for path in paths}

    def upload(self, key: str, file: IO[bytes]) -> None:
        """Writes a file from an open one, from its beginning on."""
        size_bytes = file.seek(0, 2)
        file.seek(0)
        self._put(key, iter(lambda: file.read(PIECE_BYTES), b""), size_bytes, replaces=True)

    def create(self, key: str, data: bytes) -> bool:
        """Creates a file unless it exists; of several callers one gets True."""
        try:
            self._put(key, iter((data,)), len(data), replaces=False)
        except FileExistsError:
            return False
        return True

    def move(self, key: str, target: str) -> None:
        """Renames a file, and replaces the target. Raises: FileNotFoundError: there is none."""
        with _os_errors():
            self._client.make_folder(f"/{target}".rpartition("/")[0] or "/")
            self._client.rename(f"/{key}", f"/{target}", True)

    def delete(self, key: str) -> None:
        """Removes a file, if it exists."""
        with _os_errors():
            self._client.delete(f"/{key}")

    def remove_folder(self, key: str) -> None:
        """Removes a folder if it is empty."""
        with suppress(OSError):  # it is not empty, or gone
            self._client.delete(f"/{key}")

    def _put(self, key: str, pieces: Iterator[bytes], size_bytes: int, replaces: bool) -> None:
        folder, _, name = f"/{key}".rpartition("/")
        part = f"{folder}/.{name}.{random_bytes(6).hex()}"
        with _os_errors():
            try:
                self._client.create(part, pieces, size_bytes)
                self._client.rename(part, f"/{key}", replaces)
            except OSError:
                with suppress(OSError):
                    self._client.delete(part)
                raise


def _object_status(found: HadoopStatus) -> ObjectStatus:
    version = f"{found.modified_ms}-{found.size_bytes}"
    return ObjectStatus(found.size_bytes, found.modified_ms * NANOSECONDS_PER_MILLISECOND, version)


@contextmanager
def _os_errors() -> Iterator[None]:
    """Gives errors of the clients a number and a text without the stack trace of the namenode."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "it does not exist") from None
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "it exists") from None
    except OSError as error:
        text = without_stack_trace(str(error))
        if any(refusal in text for refusal in REFUSALS):
            advice = "check the rights there, and the user in HADOOP_USER_NAME"
            raise PermissionError(errno.EACCES, f"HDFS refuses access ({advice}): {text}") from None
        raise OSError(errno.EIO, text) from None
