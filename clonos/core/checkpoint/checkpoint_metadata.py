"""Metadata of a completed checkpoint: an entry of the store's chain, from which a resume starts (protocol 5 and 9).

A checkpoint is complete when its metadata is durable. An entry is created only if absent, so a coordinator that was
replaced finds the entry's number taken and learns that it has been replaced.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated

import msgspec

from clonos.core.checkpoint.plan_shape import REGROUPED, PlanShape, differences, shape_of, state_shape_of
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.plan import Plan
from clonos.core.wire.decoding import DECODE_ERRORS, ObjectName, check_format
from clonos.core.wire.log_delta import NUMBER, Count

DIFFERENCES_MAX = 8
"""Differences between two plans that a message names."""

METADATA_FORMAT = 2


class TaskEntry(msgspec.Struct, frozen=True, array_like=True):
    """Entry of one task in a checkpoint.

    ``snapshot`` is the checkpoint that its snapshot was taken for: this one, or an earlier one for a final state.
    ``objects`` is the chain to restore from, oldest (full) first, and empty at the job's start. ``prepared`` lists
    (checkpoint, part) of a transactional sink that no earlier checkpoint has committed.
    """

    task: TaskId
    incarnation: Incarnation  # incarnation that acknowledged the checkpoint; 0 at the job's start
    snapshot: CheckpointId
    objects: tuple[ObjectName, ...]
    log_offset_bytes: Count
    final: bool
    prepared: tuple[tuple[CheckpointId, bytes], ...]


class VertexParts(msgspec.Struct, frozen=True, array_like=True):
    """Argument of a transactional sink's ``commit``: new parts of all tasks of a vertex, by task, oldest first."""

    vertex: int
    parts: tuple[bytes, ...]


class CheckpointMetadata(msgspec.Struct, frozen=True):
    """Completed checkpoint. ``highest_checkpoint`` is the highest number in use when the metadata was written.

    ``widths``: the number of tasks of each vertex, by its name, in the generation that goes on from here; empty if they
    are those of the job's plan. ``is_cut``: they may differ from those of ``tasks``, and no task has made a step after
    the checkpoint (protocol 6.12). ``is_placed_anew``: all tasks are spread over the slots when they go on from it.

    ``retired`` has each task with output outside the job that ran once and does not run any more, by its name, and the
    number of its next row as of this checkpoint.
    """

    format: int
    job_id: str
    job_name: str
    term: Count
    generation: Count
    checkpoint: Annotated[CheckpointId, NUMBER]
    highest_checkpoint: Annotated[CheckpointId, NUMBER]
    tasks: tuple[TaskEntry, ...]  # index = task
    plan: PlanShape
    widths: tuple[tuple[str, Count], ...] = ()
    retired: dict[str, Count] = {}
    is_cut: bool = False
    is_placed_anew: bool = False

    @property
    def is_final(self) -> bool:
        """Whether every task had reached the end of its stream, so that only the commit is left to do."""
        return all(entry.final for entry in self.tasks)

    def objects(self) -> frozenset[str]:
        """Returns the names of all objects that the checkpoint needs."""
        return frozenset(name for entry in self.tasks for name in entry.objects)


class MetadataMalformed(EnvironmentFault):
    """Error for an entry of the store's chain that is no valid metadata."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the checkpoint metadata {self.name} cannot be read: {self.reason}."
            " Restore the entry from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


class PlanChanged(JobError):
    """Error for a stored checkpoint that does not fit the job. ``differences`` says in words what has changed."""

    job_name: str
    checkpoint: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        what = "; ".join(self.differences[:DIFFERENCES_MAX])
        if len(self.differences) > DIFFERENCES_MAX:
            what += f"; and {len(self.differences) - DIFFERENCES_MAX} more"
        return (
            f"job {self.job_name} cannot resume from checkpoint {self.checkpoint}, because the job has changed:"
            f" {what}. {self._remedy()}"
        )

    def _remedy(self) -> str:
        if not any(each.startswith(REGROUPED) for each in self.differences):
            return "Resume with the job as it was, or start afresh with --overwrite."
        return (
            "Steps run in one task while parallelism= gives them one number of tasks. Resume with the former"
            " parallelism=. To change it, stop that job with a savepoint, and start a job from it (--from-savepoint)."
        )


def plan_fingerprint(plan: Plan) -> str:
    """Returns 32 hex digits that are equal in every process and change with everything that stored state depends on."""
    return blake2b(msgspec.msgpack.encode(state_shape_of(plan)), digest_size=16).hexdigest()


def metadata_of_start(plan: Plan, job_id: str, term: int) -> CheckpointMetadata:
    """Returns the metadata of checkpoint 0, the job's start, which is complete without being written."""
    return CheckpointMetadata(
        format=METADATA_FORMAT,
        job_id=job_id,
        job_name=plan.job_name,
        term=term,
        generation=0,
        checkpoint=CheckpointId(0),
        highest_checkpoint=CheckpointId(0),
        tasks=tuple(TaskEntry(task, Incarnation(0), CheckpointId(0), (), 0, False, ()) for task in plan.tasks),
        plan=shape_of(plan),
    )


def check_resumable(plan: Plan, metadata: CheckpointMetadata) -> None:
    """Checks that the state of a checkpoint fits this plan.

    Raises: PlanChanged, if it does not; its text names each difference.
    """
    found = differences(metadata.plan, shape_of(plan))
    if not found and len(metadata.tasks) != len(plan.tasks):
        found = (f"it had {len(metadata.tasks)} tasks, and has {len(plan.tasks)}",)
    if found:
        raise PlanChanged(plan.job_name, metadata.checkpoint, found)


def parts_by_vertex(plan: Plan, metadata: CheckpointMetadata) -> tuple[VertexParts, ...]:
    """Returns the parts that this checkpoint commits, for the vertices that have new ones."""
    found: dict[int, list[bytes]] = {}
    for entry in metadata.tasks:
        for _, part in entry.prepared:
            found.setdefault(plan.vertex_of[entry.task], []).append(part)
    return tuple(VertexParts(vertex, tuple(parts)) for vertex, parts in sorted(found.items()))


class _Format(msgspec.Struct, frozen=True):
    """Metadata of any format."""

    format: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CheckpointMetadata)
_shape_decoder = msgspec.msgpack.Decoder(PlanShape)
_format_decoder = msgspec.msgpack.Decoder(_Format)

encode_metadata = _encoder.encode


def decode_metadata(data: bytes | memoryview, name: str) -> CheckpointMetadata:
    """Returns the metadata in ``data``; ``name`` is the name of the entry, for the error.

    Raises: MetadataMalformed, if the bytes are no valid metadata. FormatUnknown: another version wrote them.
    """
    try:
        # Check the format first: fields of another format may look malformed to this schema.
        check_format(f"the checkpoint metadata {name}", _format_decoder.decode(data).format, METADATA_FORMAT)
        metadata = _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise MetadataMalformed(name, str(error)) from None
    if any(entry.task != index for index, entry in enumerate(metadata.tasks)):
        raise MetadataMalformed(name, "its tasks are not numbered from 0")
    return metadata


def encoded_shape(plan: Plan) -> bytes:
    """Returns the shape of a plan as the start of a job stores it that begins its input."""
    return _encoder.encode(shape_of(plan))


def decode_shape(data: bytes | memoryview, name: str) -> PlanShape:
    """Returns the shape in ``data``; ``name`` is the name of the entry, for the error.

    Raises: MetadataMalformed, if the bytes are no shape of a plan.
    """
    try:
        return _shape_decoder.decode(data)
    except DECODE_ERRORS as error:
        raise MetadataMalformed(name, str(error)) from None
