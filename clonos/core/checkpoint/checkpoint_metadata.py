"""The metadata of a completed checkpoint: what the store's chain keeps, and all that a resume starts from.

Pure data. A checkpoint is complete when its metadata is durable; entries are created only if absent, so that of two
coordinators one learns that it is coordinator no longer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated

import msgspec

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.plan import Plan
from clonos.core.wire.decoding import DECODE_ERRORS, ObjectName
from clonos.core.wire.log_delta import NUMBER, Count

METADATA_FORMAT = 1
"""Format number of these bytes: an older one is read, a newer one is refused by name."""


class TaskEntry(msgspec.Struct, frozen=True, array_like=True):
    """One task in a checkpoint.

    ``snapshot``: the number that its snapshot was made for: the checkpoint's, or a lower one of a final state.
    ``objects``: the chain to restore from, oldest (full) first; empty at the job's start. ``prepared``: (checkpoint,
    part) of a transactional sink that no earlier checkpoint has committed.
    """

    task: TaskId
    incarnation: Incarnation  # whose acknowledgement counted; 0 at the job's start
    snapshot: CheckpointId
    objects: tuple[ObjectName, ...]
    log_offset_bytes: Count
    final: bool
    prepared: tuple[tuple[CheckpointId, bytes], ...]


class VertexParts(msgspec.Struct, frozen=True, array_like=True):
    """What a transactional sink's ``commit`` gets: the new parts of all tasks of a vertex, by task, oldest first."""

    vertex: int
    parts: tuple[bytes, ...]


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """A completed checkpoint. ``highest_checkpoint``: the highest number that was used when it was written."""

    format: int
    job_id: str
    job_name: str
    term: Count
    generation: Count
    checkpoint: Annotated[CheckpointId, NUMBER]
    highest_checkpoint: Annotated[CheckpointId, NUMBER]
    plan_fingerprint: str
    tasks: tuple[TaskEntry, ...]  # index = task

    @property
    def is_final(self) -> bool:
        """True when every task had reached the end of its stream: nothing is left to do but to commit."""
        return all(entry.final for entry in self.tasks)

    def objects(self) -> frozenset[str]:
        """Names of all objects that it needs."""
        return frozenset(name for entry in self.tasks for name in entry.objects)


class MetadataMalformed(EnvironmentFault):
    """An entry of the store's chain is no metadata of a checkpoint."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the checkpoint metadata {self.name} cannot be read: {self.reason}."
            " Restore the entry from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


class PlanChanged(JobError):
    """The stored checkpoint belongs to another plan."""

    job_name: str
    checkpoint: int
    stored: str
    current: str

    def __str__(self) -> str:
        return (
            f"job {self.job_name} cannot resume from checkpoint {self.checkpoint}: it was made by plan {self.stored},"
            f" this is plan {self.current}. Steps, names or parallelism have changed: resume with the job as it was,"
            " or start afresh with --overwrite."
        )


def plan_fingerprint(plan: Plan) -> str:
    """32 hex digits, the same in every process, that change with all that stored state or numbers depend on."""
    shape = (
        plan.max_parallelism,
        [(v.name, v.parallelism, v.is_source, v.has_effects, v.is_transactional) for v in plan.vertices],
        [(e.source, e.target, str(e.partitioning), e.port) for e in plan.edges],
    )
    return blake2b(msgspec.msgpack.encode(shape), digest_size=16).hexdigest()


def metadata_of_start(plan: Plan, job_id: str, term: int) -> CheckpointMetadata:
    """Checkpoint 0, the job's start: complete without having been written."""
    return CheckpointMetadata(
        format=METADATA_FORMAT,
        job_id=job_id,
        job_name=plan.job_name,
        term=term,
        generation=0,
        checkpoint=CheckpointId(0),
        highest_checkpoint=CheckpointId(0),
        plan_fingerprint=plan_fingerprint(plan),
        tasks=tuple(TaskEntry(task, Incarnation(0), CheckpointId(0), (), 0, False, ()) for task in plan.tasks),
    )


def check_resumable(plan: Plan, metadata: CheckpointMetadata) -> None:
    """Raises ``PlanChanged`` when the checkpoint is not one of this plan."""
    current = plan_fingerprint(plan)
    if metadata.plan_fingerprint != current or len(metadata.tasks) != len(plan.tasks):
        raise PlanChanged(plan.job_name, metadata.checkpoint, metadata.plan_fingerprint, current)


def parts_by_vertex(plan: Plan, metadata: CheckpointMetadata) -> tuple[VertexParts, ...]:
    """What this checkpoint has to commit; vertices without a new part are left out."""
    found: dict[int, list[bytes]] = {}
    for entry in metadata.tasks:
        for _, part in entry.prepared:
            found.setdefault(plan.vertex_of[entry.task], []).append(part)
    return tuple(VertexParts(vertex, tuple(parts)) for vertex, parts in sorted(found.items()))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CheckpointMetadata)
_format_decoder = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])

encode_metadata = _encoder.encode


def decode_metadata(data: bytes | memoryview, name: str) -> CheckpointMetadata:
    """The metadata in ``data``; ``name`` is that of the entry, for the error ``MetadataMalformed``."""
    try:
        # The format comes first: a newer one may have fields that this schema would call malformed.
        found = msgspec.msgpack.decode(_format_decoder.decode(data).get("format", msgspec.Raw(b"\xc0")))
        if isinstance(found, int) and found > METADATA_FORMAT:
            raise MetadataMalformed(name, f"format {found} is newer than {METADATA_FORMAT}: update clonos")
        metadata = _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise MetadataMalformed(name, str(error)) from None
    if any(entry.task != index for index, entry in enumerate(metadata.tasks)):
        raise MetadataMalformed(name, "its tasks are not numbered from 0")
    return metadata
