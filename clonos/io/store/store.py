"""Checkpoint store of one job: objects with checksums, the chain of terms and checkpoints, and the job's identity.

The driver and every slot use ``CheckpointStore(url)``; a slot only reads and writes objects. Calls block.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import dropwhile, islice, takewhile
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from clonos.core.checkpoint.checkpoint_metadata import decode_metadata
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.wire.decoding import DECODE_ERRORS, check_format
from clonos.io.store.bucket_files import BucketFiles
from clonos.io.store.cloud_files import CloudFiles
from clonos.io.store.envelope import (
    ObjectCorrupt,
    ObjectDigest,
    digest_of_object,
    name_of_object,
    seal,
    seal_pieces,
    unseal,
    unseal_pieces,
)
from clonos.io.store.hadoop_files import HadoopFiles
from clonos.io.store.metadata_chain import CHAIN_FORMAT, FOLDER, AppendOutcome, ChainEntry, EntryKind, StoreChain
from clonos.io.store.object_files import LocalFiles, ObjectFiles, ObjectMissing, StoreUnsupported
from clonos.io.store.postgres_files import SCHEMES as POSTGRES_SCHEMES
from clonos.io.store.postgres_files import PostgresFiles
from clonos.io.system.entropy import random_bytes, random_hash_seed
from clonos.io.system.wall_clock import wall_ns

STORE_FORMAT = 1
JOB_NAME = "job"
FINISHED_NAME = "finished"
OBJECTS = "objects"


HashSeed: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,9})\Z")]


class StoredJob(msgspec.Struct, frozen=True):
    """Identity of a job, created at its first start. ``splits``: the splits of its sources at that time.

    ``hash_seed``: PYTHONHASHSEED of its slots, which is secret. ``file`` and ``plan``: the file that describes the job
    and the fingerprint of its plan. ``savepoint``: the savepoint from which it started, "" without one; its first
    checkpoint is the copy of that.
    """

    format: int
    name: str
    job_id: str
    splits: dict[str, tuple[bytes, ...]]
    hash_seed: HashSeed
    file: str
    plan: str
    savepoint: str


class StoreInUse(JobError):
    """A fresh start would use the store of an unfinished job. ``checkpoint``: its last one, or 0."""

    url: str
    job_id: str
    checkpoint: int = 0

    def __str__(self) -> str:
        progress = f"stopped after checkpoint {self.checkpoint}" if self.checkpoint else "stopped before a checkpoint"
        return (
            f"the checkpoint store {self.url} holds the state of job {self.job_id}, which is unfinished: it {progress}."
            " Resume it with --resume, discard it with --overwrite, or set another store."
        )


class StoreOfAnotherJob(JobError):
    """The store holds another job. ``stored`` and ``own``: names of both jobs, with their files where those differ."""

    url: str
    stored: str
    own: str

    def __str__(self) -> str:
        return (
            f"the checkpoint store {self.url} holds another job: {self.stored}, but this is {self.own}."
            " Give this job another name, or set another store; --overwrite discards the state of the other job."
        )


class NothingToResume(JobError):
    """The store lacks what a resume needs. ``advice``: what to do instead."""

    url: str
    what: str
    advice: str = "Start without --resume."

    def __str__(self) -> str:
        return f"cannot resume from the checkpoint store {self.url}: it has no {self.what}. {self.advice}"


class AnotherCoordinator(JobError):
    """Another driver has begun a term of this job."""

    url: str

    def __str__(self) -> str:
        return f"another driver runs the job of the checkpoint store {self.url}. Stop it first, or set another store."


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredJob)


def open_files(url: str) -> ObjectFiles:
    """Returns the files at a URL or a path. Raises: StoreUnsupported: it is neither."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreUnsupported(url, f"it is not a URL: {error}") from None
    if "\0" in url:
        raise StoreUnsupported(url.replace("\0", "\\0"), "it has a zero byte")
    if parts.scheme == "file":
        return LocalFiles(Path(parts.path))
    if not parts.scheme or len(parts.scheme) == 1:  # a path; one letter is a drive
        return LocalFiles(Path(url).absolute())
    if parts.scheme in ("hdfs", "webhdfs"):
        return HadoopFiles(url)
    if parts.scheme in POSTGRES_SCHEMES:
        return PostgresFiles(url, open_files)
    if parts.scheme == "az":
        return BucketFiles(url)
    return CloudFiles(url)


class CheckpointStore:
    """Checkpoint store of one job. Slots use its objects only; everything else is for the driver."""

    def __init__(self, url: str) -> None:
        self.files = open_files(url)
        self.url = self.files.url if isinstance(self.files, LocalFiles) else url
        self.objects_url = self.files.objects_url if isinstance(self.files, PostgresFiles) else self.url  # for slots
        self.chain = StoreChain(self.files)
        self._record: StoredJob | None = None
        self._term = 0
        self._claimant = random_bytes(8)
        self._appended: ChainEntry | None = None

    # ------------------------------------------------------------------ objects

    def write_object(self, name: str, pieces: Iterable[bytes]) -> str:
        """Writes an object, which is durable on return; returns its name with its digest, for ``read_object``.

        Pieces are requested while it is written.
        """
        full_name, digest = f"{OBJECTS}/{name}", ObjectDigest()
        self.files.write_parts(full_name, seal_pieces(pieces, full_name, digest))
        return f"{name}.{digest}"

    def read_object(self, stored_as: str, reached: Callable[[float], object] = float) -> Iterator[bytes | memoryview]:
        """Returns the pieces of an object, each verified when it is reached. ``stored_as``: its name and its digest.
        ``reached``: see ``unseal_pieces``.

        Raises: ObjectMissing at once; ObjectCorrupt at a damaged piece, or if it is another object.
        """
        full_name = f"{OBJECTS}/{name_of_object(stored_as)}"
        return unseal_pieces(self.files.read(full_name), full_name, digest_of_object(stored_as), reached)

    def delete_objects(self, names: Iterable[str]) -> None:
        """Removes the objects that exist."""
        for name in names:
            self.files.delete(f"{OBJECTS}/{name_of_object(name)}")

    # ------------------------------------------------------------------ the job's identity

    def open_job(
        self,
        name: str,
        resume: bool = False,
        overwrite: bool = False,
        splits: Mapping[str, tuple[bytes, ...]] | None = None,
        hash_seed: str = "",
        file: str = "",
        plan: str = "",
        savepoint: str = "",
        term_before: int = 0,
        begun_as: bytes = b"",
    ) -> StoredJob:
        """Finds the job (``resume``), or creates it in a store that is empty or may be overwritten; then begins a term.

        ``hash_seed``: for a new job; empty draws a random one. ``savepoint``: see ``StoredJob``. ``term_before``: the
        new term is a later one. ``begun_as``: see ``acquire_term``.

        Raises: StoreInUse when the store holds a job and ``overwrite`` is False; NothingToResume when it holds none to
        resume.
        """
        if resume:
            record = self.find_job()
            self.acquire_term()
            return record
        found = self.read_job()
        if found is not None and not overwrite:
            raise StoreInUse(self.url, found.job_id)
        job_id = f"{name}-{random_bytes(8).hex()}"
        seed = hash_seed or random_hash_seed()
        record = StoredJob(STORE_FORMAT, name, job_id, dict(splits or {}), seed, file, plan, savepoint)
        if found is None:
            made = self.files.create_if_absent(JOB_NAME, seal(_encoder.encode(record), JOB_NAME))
            # An existing record may be our own, if a library has retried the call after a lost reply.
            if not made and (other := self.read_job()) != record:
                raise StoreInUse(self.url, other.job_id if other else "")
            self._open_chain(record)
            self.acquire_term(term_before=term_before, begun_as=begun_as)
            return record
        self._open_chain(record)
        self.acquire_term(
            term_before=term_before, begun_as=begun_as
        )  # from here on, a driver that still runs the old job is superseded
        self.chain.remove_old(keep=1)
        self.files.write(JOB_NAME, seal(_encoder.encode(record), JOB_NAME))
        for old in self.files.list(OBJECTS):
            self.files.delete(old)
        return record

    def find_job(self) -> StoredJob:
        """Returns the record of the job to resume and reads its chain. It begins no term: call ``acquire_term`` after
        all checks.

        Raises: NothingToResume when the store holds no job.
        """
        found = self.read_job()
        if found is None:
            raise NothingToResume(self.url, "job")
        self._open_chain(found)
        return found

    def has_latest_term(self) -> bool:
        """Returns whether no other driver has begun a term since this one did."""
        self.chain.refresh()
        latest = next(self.chain.backwards(), None)
        return latest is not None and (latest.term, latest.claimant) == (self._term, self._claimant)

    def write_finished(self) -> None:
        """Notes that the job has ended and all its output is complete."""
        assert self._record is not None, "open_job or find_job comes first"
        self.files.write(FINISHED_NAME, seal(self._record.job_id.encode(), FINISHED_NAME))

    def is_finished(self, record: StoredJob) -> bool:
        """Returns whether this job has ended with all its output. A final checkpoint alone does not say so: its output
        may not be committed yet."""
        try:
            return unseal(self.files.read(FINISHED_NAME), FINISHED_NAME) == record.job_id.encode()
        except ObjectMissing:
            return False

    def discard_job(self, record: StoredJob) -> None:
        """Removes a job that has just been created, with everything of it, if the store still holds this job."""
        if self.read_job() != record:
            return
        for folder in (OBJECTS, FOLDER):
            for name in self.files.list(folder):
                self.files.delete(name)
        self.files.delete(JOB_NAME)
        if isinstance(self.files, LocalFiles | PostgresFiles):
            self.files.remove_empty_folders()

    def read_job(self) -> StoredJob | None:
        """Returns the record of the job in the store; None when the store is empty. Raises: ObjectCorrupt,
        FormatUnknown."""
        try:
            content = unseal(self.files.read(JOB_NAME), JOB_NAME)
        except ObjectMissing:
            return None
        try:
            record = _decoder.decode(content)
        except DECODE_ERRORS as error:
            raise ObjectCorrupt(JOB_NAME, str(error)) from None
        check_format("the record of the job", record.format, STORE_FORMAT)
        return record

    # ------------------------------------------------------------------ the chain

    @property
    def record(self) -> StoredJob:
        """Record of the job that was found or opened."""
        assert self._record is not None, "open_job or find_job comes first"
        return self._record

    @property
    def term(self) -> int:
        """Term of this coordinator."""
        return self._term

    def _open_chain(self, record: StoredJob) -> None:
        self.chain.refresh()
        self._record = record

    def acquire_term(self, resume_from: int = 0, term_before: int = 0, free: int = 0, begun_as: bytes = b"") -> None:
        """Begins a new term of the job that was found.

        ``resume_from``: a checkpoint; later ones become void, even if this driver ends at once. ``term_before``: terms
        up to this one are not used. ``free``: number of terms before the new one for this driver too. ``begun_as``: the
        encoded shape of the plan, if the job begins its input.

        Raises: AnotherCoordinator when the chain has grown since it was read.
        """
        assert self._record is not None, "find_job comes first"
        last = max((entry.term for entry in islice(self.chain.backwards(), 1)), default=0)
        self._term = max(last, term_before) + free + 1  # terms grow
        own = self._record.job_id, self._term, self._claimant
        entry = ChainEntry(CHAIN_FORMAT, EntryKind.TERM, *own, resume_from, begun_as, 0)
        if self.chain.append(entry) is AppendOutcome.TAKEN:
            raise AnotherCoordinator(self.url)

    def _of_job(self) -> Iterator[ChainEntry]:
        """Returns the entries of the job, the last one first."""
        return (entry for entry in self.chain.backwards() if entry.job_id == self.record.job_id)

    def _completed(self, entries: Iterable[ChainEntry] | None = None) -> Iterator[ChainEntry]:
        """Returns the entries of completed checkpoints, the last one first, without void ones."""
        limit: int | None = None
        for entry in self._of_job() if entries is None else entries:
            if entry.kind is EntryKind.TERM:
                if entry.checkpoint:
                    limit = entry.checkpoint if limit is None else min(limit, entry.checkpoint)
            elif limit is None or entry.checkpoint <= limit:
                yield entry

    def metadata_after(self, checkpoint: int) -> list[bytes]:
        """Returns the metadata of later checkpoints that counted when the last checkpoint was completed, ascending.

        The starts since then may have made some of them void, and may have ended before their output was withdrawn.
        """
        entries = dropwhile(lambda entry: entry.kind is EntryKind.TERM, self._of_job())
        later = takewhile(lambda entry: entry.checkpoint > checkpoint, self._completed(entries))
        return [entry.metadata for entry in later][::-1]

    def begun_as(self) -> list[bytes]:
        """Returns the ``begun_as`` of the starts that began the input of the job, the last one first; of those since
        its last checkpoint if it has one."""
        entries = takewhile(lambda entry: entry.kind is EntryKind.TERM, self._of_job())
        return [entry.metadata for entry in entries if entry.metadata]

    def completed_metadata(self) -> Iterator[bytes]:
        """Returns the metadata of all checkpoints in the chain that a job can resume from, the last one first."""
        for entry in self._completed():
            yield entry.metadata

    def checkpoint_metadata(self, checkpoint: int | None = None) -> bytes:
        """Returns the metadata of a checkpoint by number; by default, of the last completed one when the job was found.

        Raises: NothingToResume when there is none.
        """
        for entry in self._completed():
            if checkpoint in (None, entry.checkpoint):
                return entry.metadata
        if checkpoint is None:
            raise NothingToResume(self.url, "completed checkpoint")
        there = ", ".join(map(str, self.checkpoints())) or "none"
        raise NothingToResume(self.url, f"checkpoint {checkpoint}", f"Its checkpoints are: {there}.")

    def checkpoints(self) -> list[int]:
        """Returns the numbers of the checkpoints that were complete when the job was found, ascending."""
        return sorted(entry.checkpoint for entry in self._completed())

    def written_ns(self, checkpoint: int) -> int:
        """Returns the time of a completed checkpoint in nanoseconds since the Unix epoch."""
        return next(entry.written_ns for entry in self._completed() if entry.checkpoint == checkpoint)

    def append_checkpoint(self, checkpoint: int, metadata: bytes) -> AppendOutcome:
        """Completes a checkpoint. Returns TAKEN when another coordinator has begun a term; may be repeated after
        ``StoreFailed``."""
        assert self._record is not None, "open_job comes first"
        own = self._record.job_id, self._term, self._claimant
        entry = ChainEntry(CHAIN_FORMAT, EntryKind.CHECKPOINT, *own, checkpoint, metadata, 0)
        if self._appended is None or entry != msgspec.structs.replace(self._appended, written_ns=0):
            self._appended = msgspec.structs.replace(entry, written_ns=wall_ns())  # a repetition writes equal bytes
        outcome = self.chain.append(self._appended)
        if outcome is AppendOutcome.CREATED:
            self.chain.remove_old()
        return outcome


logger = logging.getLogger("clonos.run")

SNAPSHOT_NAME: Final = re.compile(rf"{OBJECTS}/snapshots/[0-9]+/[0-9]{{12,}}-[0-9a-f]+-(full|delta|final|moved)")
UNFINISHED_NAME: Final = re.compile(
    rf"({FOLDER}/\.[0-9]{{20}}|{OBJECTS}/snapshots/[0-9]+/\.[0-9]{{12,}}-[0-9a-f]+-(full|delta|final|moved))\.[0-9a-f]{{12}}"
)


def remove_leftovers(store: CheckpointStore) -> int:
    """Removes what killed processes have left: snapshots that no checkpoint of the chain names, and unfinished files.

    For the start of a driver whose job has no living tasks, after its term has begun; nothing else will remove them,
    since the coordinator that knew of them is gone. Of checkpoints that starts have made void, the last snapshot of
    each task stays until a later one is complete: each start until then withdraws their output, and reads it. Returns
    the number of files. Files with other names stay. A fault of the store leaves everything as it is, with a warning.
    """
    try:
        # The list comes first. What another driver's tasks write is not in it if no other term has begun until then.
        found = [name for name in store.files.list(OBJECTS) if SNAPSHOT_NAME.fullmatch(name)]
        unfinished = [
            name
            for folder in (OBJECTS, FOLDER)
            for name in store.files.unfinished(folder)
            if UNFINISHED_NAME.fullmatch(name)
        ]
        chain = f"the chain of {store.url}"
        completed = [decode_metadata(each, chain) for each in store.completed_metadata()]
        names = {name for metadata in completed for name in metadata.objects()}
        resumed_from = max((metadata.checkpoint for metadata in completed), default=0)
        for void in store.metadata_after(resumed_from):
            names.update(entry.objects[-1] for entry in decode_metadata(void, chain).tasks if entry.objects)
        needed = {f"{OBJECTS}/{name_of_object(name)}" for name in names}
        if not store.has_latest_term():
            return 0
        left = [*(name for name in found if name not in needed), *unfinished]
        for name in left:
            store.files.delete(name)
    except EnvironmentFault as fault:
        logger.warning("what killed processes have left in the checkpoint store stays there: %s", fault)
        return 0
    if left:
        logger.info("%d files that killed processes had left in %s were removed", len(left), store.url)
    return len(left)
