"""Objects of a checkpoint store below ``az://container/prefix``, through ``obstore`` alone.

``pyarrow.fs``, which holds the data of stores in S3 and GCS, creates an empty object in Azure before it has content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from clonos.io.store.bucket import Bucket
from clonos.io.store.bucket_lists import is_readable
from clonos.io.store.cloud_files import CloudLocation
from clonos.io.store.object_files import ObjectMissing, StoreFailed

Result = TypeVar("Result")


class BucketFiles:
    """Objects of a bucket, or of a prefix in it."""

    def __init__(self, url: str) -> None:
        self.url = url.partition("?")[0]
        location = CloudLocation.parse(url)
        self._prefix = f"{location.prefix}/" if location.prefix else ""
        self._bucket = Bucket(location)

    def read(self, name: str) -> bytes:
        """Returns all bytes of an object."""
        return self._try(f"read {name}", lambda: self._bucket.content(self._prefix + name), name)

    def write(self, name: str, data: bytes) -> None:
        """Writes an object in one upload, which is atomic."""
        self.write_parts(name, (data,))

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Writes an object part by part, which is atomic too."""
        self._try(f"write {name}", lambda: self._bucket.upload(self._prefix + name, iter(parts)))

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Creates an object by a conditional put. Returns False when it exists."""
        return self._try(f"create {name}", lambda: self._bucket.create(self._prefix + name, data))

    def exists(self, name: str) -> bool:
        """Returns True when the object exists."""
        try:
            self._try(f"look for {name}", lambda: self._bucket.status(self._prefix + name), name)
        except ObjectMissing:
            return False
        return True

    def delete(self, name: str) -> None:
        """Removes an object, if it exists."""
        self._try(f"delete {name}", lambda: self._bucket.delete(self._prefix + name))

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns nothing: an object appears whole. A lifecycle rule of the bucket ends incomplete uploads."""
        return []

    def list(self, folder: str) -> list[str]:
        """Returns the names of all objects below a folder, sorted."""
        found = self._try(f"list {folder}", lambda: self._bucket.keys_below(self._prefix + folder))
        return [key.removeprefix(self._prefix) for key in found if is_readable(key)]

    def _try(self, action: str, call: Callable[[], Result], name: str = "") -> Result:
        try:
            return call()
        except OSError as error:
            if name and isinstance(error, FileNotFoundError):
                raise ObjectMissing(self.url, name) from None
            raise StoreFailed(self.url, action, error.strerror or str(error)) from None
