"""Bucket of S3, GCS or Azure, through ``obstore``: what sources and sinks of files need. Every error is an ``OSError``.

A write and a copy are atomic: no reader sees a part of an object. A read names the version that it expects.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, TypeAlias, TypeVar

from clonos.io.store.bucket_lists import INVALID_KEY, listed_by_arrow, names_directly_in, without_folder_marks
from clonos.io.store.cloud_files import CONNECTOR_RETRIES_MAX, DEBUG_TEXT, CloudLocation, arrow_files, object_store
from clonos.io.store.hadoop_bucket import SCHEMES as HADOOP_SCHEMES
from clonos.io.store.hadoop_bucket import HadoopBucket
from clonos.io.store.object_files import StoreUnsupported
from clonos.io.store.object_status import ObjectReplaced, ObjectStatus

CLOUD_SCHEMES: Final = ("s3", "gs", "gcs", "az")
SCHEMES: Final = (*CLOUD_SCHEMES, *HADOOP_SCHEMES)
UPLOAD_PIECE_BYTES: Final = 16 << 20
"""Size of the pieces of a large upload. A store takes 10,000 pieces at most, so an object has at most 160 GB."""
UPLOADS_AT_ONCE: Final = 4
LISTED_AT_ONCE: Final = 1_000

SERVER_TEXT_CHARACTERS: Final = 500
REFUSALS: Final = ("401 Unauthorized", "403 Forbidden", "InvalidAccessKeyId")
"""Texts of errors by which the library does not class a refusal: that of a list."""
METADATA_ADDRESSES: Final = ("169.254.169.254", "metadata.google.internal")
"""Where the libraries ask for the credentials of a machine in a cloud when the environment has none."""

Result = TypeVar("Result")


class Bucket:
    """Objects of a bucket by their whole keys."""

    def __init__(self, location: CloudLocation) -> None:
        self._location = location
        self._store = object_store(location, "", CONNECTOR_RETRIES_MAX)
        self._may_copy_later = location.scheme == "az"

    def status(self, key: str) -> ObjectStatus:
        """Returns the status of an object. Raises: FileNotFoundError: there is none."""
        import obstore

        return _status(self._try(lambda: obstore.head(self._store, key)))

    def read(self, key: str, begin: int, end: int, e_tag: str = "") -> bytes:
        """Returns the bytes from ``begin`` to ``end`` of the version ``e_tag``.

        Raises: ObjectReplaced: the object has another version. FileNotFoundError: there is none.
        """
        import obstore

        options: Any = {"range": (begin, end)}
        if e_tag:
            options["if_match"] = e_tag
        return self._try(lambda: bytes(obstore.get(self._store, key, options=options).bytes()))

    def content(self, key: str) -> bytes:
        """Returns all bytes of an object. Raises: FileNotFoundError: there is none."""
        import obstore

        return self._try(lambda: bytes(obstore.get(self._store, key).bytes()))

    def names_in(self, folder: str) -> tuple[list[str], list[str]]:
        """Returns the names of the objects directly in a folder, and those of its folders, both sorted."""
        import obstore

        try:
            found = self._try(lambda: obstore.list_with_delimiter(self._store, f"{folder}/" if folder else None))
        except OSError as error:
            if INVALID_KEY not in str(error):
                raise
            return names_directly_in(folder, self._listed_by_arrow(folder))
        folders = [prefix.strip("/") for prefix in found["common_prefixes"]]
        objects = [(each["path"], _status(each)) for each in found["objects"]]
        keys = without_folder_marks(objects, folder, folders, self._is_missing)
        return [key.rpartition("/")[2] for key in keys], sorted(each.rpartition("/")[2] for each in folders)

    def keys_below(self, folder: str) -> list[str]:
        """Returns the keys of all objects below a folder, sorted. Empty objects that mark folders are none of them."""
        return list(self.statuses_below(folder))

    def statuses_below(self, folder: str) -> dict[str, ObjectStatus]:
        """Returns the status of the same objects by their keys, which are sorted. A key may be unreadable."""
        import obstore

        prefix = f"{folder}/" if folder else None
        try:
            found = self._try(lambda: obstore.list(self._store, prefix, chunk_size=LISTED_AT_ONCE).collect())
        except OSError as error:
            if INVALID_KEY not in str(error):
                raise
            return self._listed_by_arrow(folder)
        objects = ((each["path"], _status(each)) for each in found)
        return without_folder_marks(objects, folder, (), self._is_missing)

    def _listed_by_arrow(self, folder: str) -> dict[str, ObjectStatus]:
        """Lists a folder of which obstore cannot read a key."""
        location = self._location
        found = self._try(lambda: listed_by_arrow(arrow_files(location), location.bucket, folder))
        return without_folder_marks(found.items(), folder, (), self._is_missing)

    def _is_missing(self, key: str) -> bool:
        try:
            self.status(key)
        except FileNotFoundError:
            return True
        return False

    def upload(self, key: str, file: IO[bytes] | Iterator[bytes]) -> None:
        """Writes an object from an open file, from its present position on, or from pieces."""
        import obstore

        options: Any = {"chunk_size": UPLOAD_PIECE_BYTES, "max_concurrency": UPLOADS_AT_ONCE}
        self._try(lambda: obstore.put(self._store, key, file, **options))

    def create(self, key: str, data: bytes) -> bool:
        """Creates an object unless it exists; of several callers one gets True.

        The library may repeat a request whose answer was lost. Therefore False means only that the object exists.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            self._try(lambda: obstore.put(self._store, key, data, mode="create", use_multipart=False))
        except OSError as error:
            if isinstance(error.__cause__, AlreadyExistsError | PreconditionError):
                return False
            raise
        return True

    def move(self, key: str, target: str) -> None:
        """Copies an object within the store, and removes the first one. Raises: FileNotFoundError: there is none."""
        self.copy(key, target)
        self.delete(key)

    def copy(self, key: str, target: str) -> None:
        """Copies an object within the store.

        Raises: FileNotFoundError: there is none. OSError: Azure has accepted the request, but is still copying.
        """
        import obstore

        self._try(lambda: obstore.copy(self._store, key, target))
        if self._may_copy_later and self.status(key).size_bytes != self.status(target).size_bytes:
            raise OSError(errno.EBUSY, "the store is still copying it")

    def delete(self, key: str) -> None:
        """Removes an object, if it exists."""
        import obstore

        try:
            self._try(lambda: obstore.delete(self._store, key))
        except FileNotFoundError:
            return

    def remove_folder(self, key: str) -> None:
        """Does nothing: a folder without objects does not exist."""

    def _try(self, call: Callable[[], Result]) -> Result:
        from obstore.exceptions import BaseError

        try:
            return call()
        except (BaseError, OSError, ValueError) as error:
            raise _os_error(error) from error


def _os_error(error: Exception) -> OSError:
    from obstore.exceptions import PermissionDeniedError, PreconditionError, UnauthenticatedError

    text = " ".join(str(error).partition(DEBUG_TEXT)[0].split())[:SERVER_TEXT_CHARACTERS]
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        return OSError(errno.ENOENT, f"there is no such bucket: {text}")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "it does not exist")
    if isinstance(error, PreconditionError):
        return ObjectReplaced(errno.ESTALE, "it has been replaced")
    if any(address in text for address in METADATA_ADDRESSES):
        advice = (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS,"
            " or AZURE_STORAGE_ACCOUNT_KEY"
        )
        return PermissionError(errno.EACCES, f"there are no credentials for it in the environment: {advice}")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or any(mark in text for mark in REFUSALS):
        advice = "check the credentials in the environment, such as AWS_SECRET_ACCESS_KEY or AZURE_STORAGE_ACCOUNT_KEY"
        return PermissionError(errno.EACCES, f"the store refuses access ({advice}): {text}")
    return OSError(errno.EIO, text)


def _status(found: Any) -> ObjectStatus:
    modified_ns = int(found["last_modified"].timestamp() * 1_000_000) * 1_000
    return ObjectStatus(found["size"], modified_ns, found["e_tag"] or "")


AnyBucket: TypeAlias = Bucket | HadoopBucket


def bucket_of(url: str) -> AnyBucket:
    """Returns the bucket that a URL ``scheme://bucket?options`` names, or the files of ``hdfs://namenode``.

    Raises: StoreUnsupported: the scheme is not of an object store, or an option is unknown.
    """
    scheme, _, address = url.partition("://")
    if scheme in HADOOP_SCHEMES:
        if "?" in address:
            raise StoreUnsupported(url, "a Hadoop URL takes no options; set HADOOP_USER_NAME and HADOOP_CONF_DIR")
        return _hadoop_bucket(scheme, address, os.getpid())
    if scheme not in SCHEMES:
        raise StoreUnsupported(url, "it is not the URL of an object store")
    return _bucket(CloudLocation.parse(url), os.getpid())


@functools.lru_cache(maxsize=16)
def _bucket(location: CloudLocation, process: int) -> Bucket:
    return Bucket(location)


@functools.lru_cache(maxsize=16)
def _hadoop_bucket(scheme: str, address: str, process: int) -> HadoopBucket:
    return HadoopBucket(scheme, address)
