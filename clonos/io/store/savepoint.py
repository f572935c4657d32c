"""Savepoints: a checkpoint copied into one folder or bucket that is complete by itself and may be moved.

::

    savepoint                               the manifest, created last: without it there is no savepoint
    objects/<random digits>/snapshots/...   the objects of the checkpoint, as the store has them

The manifest has everything else: the metadata of the checkpoint, the splits of the sources, and the size and checksum
of each object. This library never deletes a savepoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from xxhash import xxh3_128_hexdigest

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, decode_metadata, encode_metadata
from clonos.core.model.errors import JobError
from clonos.core.wire.decoding import DECODE_ERRORS, FormatUnknown, check_format
from clonos.core.wire.log_delta import Count
from clonos.io.store.envelope import (
    ObjectCorrupt,
    digest_of_object,
    name_of_object,
    seal,
    unseal,
    unseal_pieces,
)
from clonos.io.store.object_files import LocalFiles, ObjectFiles, ObjectMissing
from clonos.io.store.store import JOB_NAME, OBJECTS, STORE_FORMAT, CheckpointStore, HashSeed, StoredJob, open_files
from clonos.io.system.entropy import random_bytes
from clonos.io.system.shown_progress import Progress, WorkUnit, shown_progress
from clonos.io.system.wall_clock import wall_ns

SAVEPOINT_FORMAT: Final = 1
MANIFEST_NAME: Final = "savepoint"


class SavepointObject(msgspec.Struct, frozen=True, array_like=True):
    """Object of a savepoint: its name in the checkpoint store, its size, and the checksum of its bytes."""

    name: str
    size_bytes: Count
    checksum: str


class SavepointManifest(msgspec.Struct, frozen=True):
    """Content of a savepoint. ``folder``: where its objects are. ``hash_seed`` is secret, like the state."""

    format: int
    job_name: str
    job_id: str
    checkpoint: Count
    created_ns: Count
    splits: dict[str, tuple[bytes, ...]]
    hash_seed: HashSeed
    file: str
    plan: str
    folder: str
    objects: tuple[SavepointObject, ...]
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Complete savepoint. ``path``: a path or URL, as it was given. ``created_ns``: since the Unix epoch."""

    path: str
    job: str
    job_id: str
    checkpoint: int
    created_ns: int
    size_bytes: int


class SavepointExists(JobError):
    """The place of a new savepoint is taken."""

    url: str
    what: str

    def __str__(self) -> str:
        return f"{self.url} holds {self.what}, so no savepoint can be written there. Name another folder."


class SavepointNotWritten(JobError):
    """A job ended without the savepoint that its stop asked for."""

    url: str
    job: str

    def __str__(self) -> str:
        return (
            f"no savepoint was written to {self.url}: {self.job} was aborted, so it has no final checkpoint."
            " Its last completed checkpoint stays: continue it with --resume, and stop it again with the savepoint."
        )


class SavepointMissing(JobError):
    """There is no complete savepoint at this place."""

    url: str

    def __str__(self) -> str:
        return (
            f"{self.url} holds no complete savepoint: it has no object {MANIFEST_NAME!r}, which is written last."
            " Correct the path, or take the savepoint again."
        )


class SavepointCorrupt(JobError):
    """A savepoint is damaged, or was not copied completely."""

    url: str
    reason: str

    def __str__(self) -> str:
        return f"the savepoint {self.url} cannot be used: {self.reason}. Copy it again, or use another savepoint."


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(SavepointManifest)


def check_free(url: str) -> None:
    """Checks that a savepoint can be written to this place.

    Raises: SavepointExists: it holds a savepoint or the checkpoint store of a job. StoreUnsupported, StoreFailed.
    """
    files = open_files(url)
    for name, what in ((MANIFEST_NAME, "a savepoint"), (JOB_NAME, "the checkpoint store of a job")):
        if files.exists(name):
            raise SavepointExists(url, what)


def writing_of(metadata: CheckpointMetadata, url: str) -> Progress:
    """Returns the progress of ``write_savepoint``, which has not begun."""
    return Progress(f"writing the savepoint {url}", len(metadata.objects()), WorkUnit.OBJECTS)


def write_savepoint(store: CheckpointStore, metadata: CheckpointMetadata, url: str, writing: Progress) -> Savepoint:
    """Copies a completed checkpoint from a store into a savepoint. ``writing``: from ``writing_of``.

    Raises: SavepointExists: the place is taken, or was taken meanwhile. ObjectMissing, ObjectCorrupt: the checkpoint is
    damaged. StoreUnsupported, StoreFailed.
    """
    check_free(url)
    files, record = open_files(url), store.record
    folder = f"{OBJECTS}/{random_bytes(8).hex()}"
    objects = []
    with shown_progress(writing):
        for name in sorted(metadata.objects()):
            full_name = f"{OBJECTS}/{name_of_object(name)}"
            data = store.files.read(full_name)
            for _ in unseal_pieces(data, full_name, digest_of_object(name)):  # verifies each piece
                pass
            files.write(f"{folder}/{name_of_object(name)}", data)
            objects.append(SavepointObject(name, len(data), xxh3_128_hexdigest(data)))
            writing.add(1)
    manifest = SavepointManifest(
        format=SAVEPOINT_FORMAT,
        job_name=record.name,
        job_id=record.job_id,
        checkpoint=metadata.checkpoint,
        created_ns=wall_ns(),
        splits=record.splits,
        hash_seed=record.hash_seed,
        file=record.file,
        plan=record.plan,
        folder=folder,
        objects=tuple(objects),
        metadata=encode_metadata(metadata),
    )
    content = seal(_encoder.encode(manifest), MANIFEST_NAME)
    # An existing manifest may be our own, if a library has retried the call after a lost reply.
    if not files.create_if_absent(MANIFEST_NAME, content) and files.read(MANIFEST_NAME) != content:
        raise SavepointExists(url, "a savepoint")
    return _described(url, manifest)


def _described(url: str, manifest: SavepointManifest) -> Savepoint:
    return Savepoint(
        path=url,
        job=manifest.job_name,
        job_id=manifest.job_id,
        checkpoint=manifest.checkpoint,
        created_ns=manifest.created_ns,
        size_bytes=sum(each.size_bytes for each in manifest.objects),
    )


class SavepointReader:
    """Reader of one savepoint, whose manifest it has read.

    Raises: SavepointMissing: there is no manifest. SavepointCorrupt: it cannot be read.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._files: ObjectFiles = open_files(url)
        self._note: Callable[[int], None] | None = None
        try:
            content = unseal(self._files.read(MANIFEST_NAME), MANIFEST_NAME)
            self.manifest = _decoder.decode(content)
            check_format("the manifest", self.manifest.format, SAVEPOINT_FORMAT)
        except ObjectMissing:
            raise SavepointMissing(url) from None
        except (ObjectCorrupt, FormatUnknown, *DECODE_ERRORS) as error:
            raise SavepointCorrupt(url, str(error).rstrip(".")) from None
        self._objects = {each.name: each for each in self.manifest.objects}

    @property
    def savepoint(self) -> Savepoint:
        """The savepoint in short."""
        return _described(self.url, self.manifest)

    def record(self) -> StoredJob:
        """Returns the record of the job that the savepoint was taken of."""
        m = self.manifest
        return StoredJob(STORE_FORMAT, m.job_name, m.job_id, m.splits, m.hash_seed, m.file, m.plan, "")

    def metadata(self) -> CheckpointMetadata:
        """Returns the metadata of its checkpoint. Raises: MetadataMalformed."""
        return decode_metadata(self.manifest.metadata, f"of the savepoint {self.url}")

    @contextmanager
    def shown(self, doing: str) -> Iterator[None]:
        """Shows how much of the savepoint is read in a ``with`` block."""
        total_bytes = sum(self._objects[name].size_bytes for name in self.metadata().objects() if name in self._objects)
        with shown_progress(Progress(f"{doing} the savepoint {self.url}", total_bytes, WorkUnit.BYTES)) as progress:
            self._note = progress.add
            try:
                yield
            finally:
                self._note = None

    def check(self) -> None:
        """Checks that each object that the checkpoint needs is there, with its size and checksum.

        Raises: SavepointCorrupt.
        """
        with self.shown("checking"):
            for name in sorted(self.metadata().objects()):
                self.read_bytes(name)

    def read_bytes(self, name: str) -> bytes:
        """Returns the bytes of an object as the store had them. Raises: SavepointCorrupt."""
        expected = self._objects.get(name)
        if expected is None:
            raise SavepointCorrupt(self.url, f"its manifest does not have the object {name}")
        try:
            data = self._files.read(f"{self.manifest.folder}/{name_of_object(name)}")
        except ObjectMissing:
            raise SavepointCorrupt(self.url, f"its object {name} is missing") from None
        if len(data) != expected.size_bytes:
            raise SavepointCorrupt(self.url, f"its object {name} has {len(data)} bytes, expected {expected.size_bytes}")
        if (actual := xxh3_128_hexdigest(data)) != expected.checksum:
            raise SavepointCorrupt(self.url, f"checksum {actual} of its object {name}, expected {expected.checksum}")
        if self._note is not None:
            self._note(len(data))
        return data

    def read_head(self, name: str) -> Iterator[bytes | memoryview]:
        """Returns the pieces of an object, which counts for no progress: it is copied, too.

        Raises: SavepointCorrupt, ObjectCorrupt.
        """
        note, self._note = self._note, None
        try:
            return self.read_object(name)
        finally:
            self._note = note

    def read_object(self, name: str) -> Iterator[bytes | memoryview]:
        """Returns the pieces of an object. Raises: SavepointCorrupt, ObjectCorrupt."""
        return unseal_pieces(self.read_bytes(name), f"{OBJECTS}/{name_of_object(name)}", digest_of_object(name))

    def copy_objects(self, store: CheckpointStore, names: Iterable[str]) -> None:
        """Copies objects into a checkpoint store. Raises: SavepointCorrupt, StoreFailed."""
        for name in names:
            store.files.write(f"{OBJECTS}/{name_of_object(name)}", self.read_bytes(name))


def is_savepoint(url: str) -> bool:
    """Returns whether a place holds a savepoint. Raises: StoreUnsupported, StoreFailed."""
    files = open_files(url)
    if isinstance(files, LocalFiles) and not files.root.is_dir():
        return False
    return files.exists(MANIFEST_NAME)
