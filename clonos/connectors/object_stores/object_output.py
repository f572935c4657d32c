"""Files of an output in an object store or HDFS: a file is uploaded whole, and a commit moves it.

A part is written to an unnamed local file and uploaded when it is complete, so that nothing of an interrupted part is
left. A commit moves it to its visible name. An object store has no rename: it copies the object within the store,
atomically, and then removes the first copy. A later driver may repeat both steps. HDFS renames.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Final

import xxhash

from clonos.connectors.connector_errors import InvalidConnector, OutputFailed
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.object_stores.urls import ObjectUrl, split_url
from clonos.connectors.partitions.folder_names import is_partition
from clonos.io.store.bucket import AnyBucket
from clonos.io.store.bucket_lists import readable_keys

COPY_BYTES_MAX: Final = 5 << 30
"""Largest object that S3 copies in one request."""


class UploadedFile:
    """File in the temporary folder of this machine, without a name; ``publish`` uploads it."""

    def __init__(self, bucket: AnyBucket, path: str) -> None:
        self.size_bytes = 0
        self._bucket = bucket
        self._path = path
        self._checksum = xxhash.xxh3_64()
        with output_errors(path, f"buffered in {tempfile.gettempdir()}"):
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed by discard()

    def write(self, data: bytes) -> int:
        """Appends data to the local file."""
        self._checksum.update(data)
        self.size_bytes += len(data)
        with output_errors(self._path, f"buffered in {tempfile.gettempdir()}"):
            return self._file.write(data)

    def publish(self, final_path: str) -> str:
        """Uploads the file.

        Returns the xxh3 of the content. Raises: OutputFailed: the store fails, or a part is too large for a commit.
        """
        if self.size_bytes > COPY_BYTES_MAX:
            reason = f"it has {self.size_bytes} bytes, of at most {COPY_BYTES_MAX} in one copy: checkpoint more often"
            raise OutputFailed(final_path, "uploaded", reason)
        with output_errors(final_path, "uploaded"):
            self._file.flush()
            self._file.seek(0)
            self._bucket.upload(split_url(final_path).key, self._file)
        self.discard()
        return self._checksum.hexdigest()

    def discard(self) -> None:
        """Removes the local file."""
        self._file.close()


class ObjectOutputFiles:
    """Files below one URL. Paths are URLs without options. A folder exists as long as an object is in it."""

    def __init__(self, url: ObjectUrl) -> None:
        self._bucket = url.store()
        self._options = url.options

    def state_folder(self, output: str) -> str:
        parent, _, name = output.rpartition("/")
        return f"{parent}/.{name}.clonos"

    def input_path(self, path: str) -> str:
        return f"{path}{self._options}"

    def names(self, folder: str) -> list[str]:
        with output_errors(folder, "listed"):
            objects, folders = self._bucket.names_in(_key(folder))
        return sorted({*objects, *folders})

    def files_in(self, folder: str) -> list[str]:
        with output_errors(folder, "listed"):
            return self._bucket.names_in(_key(folder))[0]

    def files_below(self, folder: str) -> list[str]:
        with output_errors(folder, "listed"):
            keys = self._bucket.keys_below(_key(folder))
        found = [key.removeprefix(f"{_key(folder)}/") for key in keys]
        return readable_keys(folder, [path for path in found if all(map(is_partition, path.split("/")[:-1]))])

    def content(self, path: str) -> bytes | None:
        try:
            return self._bucket.content(_key(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OutputFailed(path, "read", error.strerror or str(error)) from error

    def size_bytes(self, path: str) -> int:
        return self._bucket.status(_key(path)).size_bytes

    def create(self, path: str, data: bytes) -> bool:
        with output_errors(path, "created"):
            # An object of the same bytes may be our own: the library repeats a request whose answer was lost.
            return self._bucket.create(_key(path), data) or self._bucket.content(_key(path)) == data

    def new_file(self, path: str) -> UploadedFile:
        return UploadedFile(self._bucket, path)

    def new_file_beside(self, path: str) -> UploadedFile:
        return UploadedFile(self._bucket, path)

    def move(self, path: str, final_path: str) -> None:
        try:
            self._bucket.move(_key(path), _key(final_path))
        except FileNotFoundError:
            self._bucket.status(_key(final_path))  # another driver may have moved it

    def sync(self, folder: str) -> None:
        """Does nothing: each request is durable when it is answered."""

    def remove(self, path: str) -> None:
        with output_errors(path, "removed"):
            self._bucket.delete(_key(path))

    def make_folder(self, path: str) -> None:
        """Does nothing: a folder is the common begin of keys, or appears with its first file."""

    def remove_folder(self, path: str) -> None:
        self._bucket.remove_folder(_key(path))

    def exists(self, path: str) -> bool:
        return self.is_file(path) or self.is_folder(path)

    def is_file(self, path: str) -> bool:
        with output_errors(path, "opened"):
            try:
                self._bucket.status(_key(path))
            except FileNotFoundError:
                return False
            return True

    def is_folder(self, path: str) -> bool:
        return bool(self.names(path))

    def is_in_use(self, path: str) -> bool:
        return False

    def check_place(self, path: str, is_single: bool, is_part: Callable[[str], bool]) -> None:
        """Raises InvalidConnector if the URL names a whole bucket, or if single=True names a folder with files."""
        if not _key(path):
            raise InvalidConnector(path, "it is a whole bucket", "Name a folder in it.")
        if is_single and not all(map(is_part, self.names(path))):
            raise InvalidConnector(path, "it is a folder with files, and single=True writes a file", "Name a file.")


def _key(path: str) -> str:
    return split_url(path).key
