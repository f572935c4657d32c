"""Format of a record of an epoch: a folder with a head and six parts (docs/design/records.md).

A record holds all that a task is a function of: the compiled job, the state at the barrier, the causal log after it,
and the input. ``record_writer`` and ``record_reader`` write and read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.task_snapshot import SinkRows
from clonos.core.wire.capture_messages import DIGEST_BYTES, LENGTH_BYTES, Elements, digest_of
from clonos.core.wire.log_delta import Count

RECORD_FORMAT: Final = 2

HEAD: Final = "record.json"


class RecordPart(StrEnum):
    """File of a record."""

    JOB = "job"  # the cloudpickled ``JobImage``, as every slot gets it
    STATE = "state"  # ``StatePiece``s
    LOG = "log"  # the task's causal log from ``log_offset_bytes`` on
    INPUT = "input"  # ``Elements`` and ``SourceRecords``
    EXPECTED = "expected"  # ``EmittedOutput``s
    SOURCES = "sources"  # ``SourceFile``s


class RecordedWay(StrEnum):
    """Way in which a record was made."""

    CAPTURED = "captured"  # of a running job, on request
    FAILED = "failed"  # of the task whose failure has ended the job
    RUNNING = "running"  # written while the task ran


class StatePiece(msgspec.Struct, frozen=True, array_like=True):
    """Piece of an object of the checkpoint store. Those of one object follow each other, the first is its snapshot."""

    name: str  # of the object in the checkpoint store
    data: bytes


class SourceRecords(msgspec.Struct, frozen=True, array_like=True, tag="source"):
    """Records of one ``READ`` of the log, in its order: what the readers of the source gave for it.

    ``batch``: pickled; a list of rows, a RecordBatch, or a ``PartlyMalformed``. A ``READ`` of 0 records has none.
    """

    split: Count
    count: Count
    batch: bytes


class JournalBytes(msgspec.Struct, frozen=True, array_like=True, tag="journal"):
    """Journal of a source that cannot be read again, from ``journal_offset_bytes`` of the snapshot on."""

    data: bytes


Input = Elements | SourceRecords | JournalBytes


class EmittedOutput(msgspec.Struct, frozen=True, array_like=True):
    """Output of the live task for one channel, in the order in which it left. ``digest``: of the payload, as the
    ``DigestKind`` in the head says."""

    channel: ChannelId
    first_seq: Count
    kind: ElementKind
    count: Count
    checkpoint: CheckpointId
    digest: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class SourceFile(msgspec.Struct, frozen=True, array_like=True):
    """Source file of the job's own code, for the lines that a replay shows. ``name``: as the code has it."""

    name: str
    text: str


class EpochContent(NamedTuple):
    """Content of a record. ``unfinished``: entries of the log, after ``log``, of a step that did not end."""

    state: list[StatePiece]
    log: bytes
    unfinished: bytes
    input: list[Input]
    expected: list[EmittedOutput]
    sinks: tuple[SinkRows, ...] = ()


class PartDigest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Size of a part, and its XXH3 of 128 bits; earlier records have SHA-256 instead."""

    bytes: Count
    xxh3: str = ""
    sha256: str = ""


class DigestKind(StrEnum):
    """Function of the digests of payloads."""

    BLAKE2B = "blake2b"  # of earlier records, whose heads do not say so
    XXH3 = "xxh3"


PAYLOAD_DIGESTS: Final[dict[DigestKind, Callable[[bytes], bytes]]] = {
    DigestKind.BLAKE2B: lambda payload: blake2b(payload, digest_size=DIGEST_BYTES).digest(),
    DigestKind.XXH3: digest_of,
}
"""What gives the digest of a payload."""


class FailedHere(msgspec.Struct, frozen=True):
    """Failure with which the epoch ends. ``channel`` None and ``count`` above 0: records of a source, numbered from the
    job's start. ``count`` 0: a timer, or the end of the stream."""

    error: str
    step: str
    record: str
    channel: ChannelId | None
    first_seq: Count
    count: Count
    frames: str


class RecordHead(msgspec.Struct, frozen=True):
    """Head of a record.

    ``epoch``: the checkpoint at whose barrier it begins; 0 is the job's start, without state. ``widths``: numbers of
    tasks by vertex, where they differ from the plan of the job. ``unfinished_bytes``: how many of the last bytes of the
    log are of a step that did not end. ``versions``: of Python and of the libraries, and ``hash_seed``.
    ``missing`` and ``redacted``: sentences about what the record lacks. ``options``: of the job, if the record has no
    code; ``widths`` has all of them then. ``sinks``: what the sinks of the task were given, if that was recorded.
    ``digests``: of the payloads in ``expected``.
    """

    format: int
    way: RecordedWay
    job: str
    job_id: str
    task: str
    task_id: TaskId
    epoch: CheckpointId
    generation: int
    incarnation: Incarnation
    widths: tuple[tuple[str, int], ...]
    log_offset_bytes: int
    unfinished_bytes: int
    is_whole: bool  # the log reaches the next barrier or the end of the stream
    written_ns: int  # since the Unix epoch
    versions: dict[str, str]
    failure: FailedHere | None
    missing: tuple[str, ...]
    redacted: tuple[str, ...]
    parts: dict[str, PartDigest]
    options: Options | None = None
    sinks: tuple[SinkRows, ...] = ()
    digests: DigestKind = DigestKind.BLAKE2B


class RecordDamaged(EnvironmentFault):
    """A record cannot be read."""

    folder: str
    reason: str

    def __str__(self) -> str:
        return f"the record {self.folder} cannot be used: {self.reason}."


def frames_in(path: Path) -> Iterator[bytes]:
    """Yields the contents of the frames in a file. Raises: RecordDamaged: the last one is not whole."""
    with path.open("rb") as file:
        while head := file.read(LENGTH_BYTES):
            content = file.read(int.from_bytes(head, "little"))
            if len(head) < LENGTH_BYTES or len(content) < int.from_bytes(head, "little"):
                raise RecordDamaged(str(path.parent), f"its part {path.name} ends in the middle of a piece")
            yield content
