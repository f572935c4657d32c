"""Start of a new job from a savepoint: the checks, and the copy of its state into the job's own store.

The new job has an id, a store and outputs of its own. State belongs to steps by name. Nothing that the old job has
prepared is committed again, and immediate sinks number their output from 0, as those of any new job.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from clonos.api.graph import JobGraph
from clonos.core.checkpoint.checkpoint_metadata import (
    DIFFERENCES_MAX,
    CheckpointMetadata,
    TaskEntry,
    encode_metadata,
)
from clonos.core.checkpoint.plan_shape import PlanShape, differences, shape_of
from clonos.core.checkpoint.snapshot import decode_snapshot, encode_snapshot
from clonos.core.model.errors import JobError
from clonos.core.model.ids import ChannelId
from clonos.core.model.plan import Plan
from clonos.core.ports.task_snapshot import Snapshot
from clonos.io.store.envelope import name_of_object
from clonos.io.store.metadata_chain import AppendOutcome
from clonos.io.store.savepoint import SavepointReader
from clonos.io.store.store import AnotherCoordinator, CheckpointStore, StoredJob
from clonos.job.continuing.start_widths import WidthsRefused, at_widths
from clonos.job.continuing.state_transfer import (
    StateTransfer,
    differences_of_transfer,
    source_of,
    sources_of,
    write_moved,
)
from clonos.operators.job_image import JobImage


class SavepointUnfit(JobError):
    """A savepoint does not fit the job. ``differences`` says in words what has changed."""

    job: str
    url: str
    differences: tuple[str, ...]

    def __str__(self) -> str:
        what = "; ".join(self.differences[:DIFFERENCES_MAX])
        if len(self.differences) > DIFFERENCES_MAX:
            what += f"; and {len(self.differences) - DIFFERENCES_MAX} more"
        return (
            f"job {self.job} cannot start from the savepoint {self.url}, because the job has changed: {what}."
            " Start it with the job as it was, or without a savepoint."
        )


class StateWouldBeDropped(JobError):
    """A savepoint has state of steps that the job does not have."""

    job: str
    url: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"the savepoint {self.url} has state of steps that job {self.job} does not have: {', '.join(self.steps)}."
            " Keep these steps and their names, or drop their state with allow_dropped_state=True"
            " (--option allow_dropped_state=true)."
        )


class StoreNotEmpty(JobError):
    """A job that starts from a savepoint would use the store of another one."""

    url: str
    job_id: str

    def __str__(self) -> str:
        return (
            f"the checkpoint store {self.url} holds the state of job {self.job_id}, but a start from a savepoint needs"
            " an empty store. Set another one with --store, discard this one with --overwrite, or resume its job with"
            " --resume."
        )


class HalfCopied(JobError):
    """A start from a savepoint was interrupted while its state was being copied."""

    url: str
    savepoint: str

    def __str__(self) -> str:
        return (
            f"the job of the checkpoint store {self.url} was to start from the savepoint {self.savepoint}, and was"
            f" interrupted while it copied that. Start it again: --from-savepoint {self.savepoint} --overwrite."
        )


def refuse_half_copied(store: CheckpointStore, record: StoredJob) -> None:
    """Refuses a job whose first checkpoint, the copy of a savepoint, is missing. Raises: HalfCopied."""
    if record.savepoint and not store.checkpoints():
        raise HalfCopied(store.url, record.savepoint)


class SavepointStart:
    """Start of a job from one savepoint. ``check`` reads, ``copy`` changes the store."""

    def __init__(self, url: str, allow_dropped_state: bool) -> None:
        self.reader = SavepointReader(url)
        self._allow_dropped_state = allow_dropped_state
        self._metadata = self.reader.metadata()
        #: If the tasks of the job are not those of the savepoint
        self._source_of: dict[int, str] | None = None
        self._transfer: StateTransfer | None = None

    def __str__(self) -> str:
        found = self.reader.manifest
        return f"the savepoint {self.reader.url}: checkpoint {found.checkpoint} of job {found.job_id}"

    @property
    def record(self) -> StoredJob:
        """Record of the job that the savepoint was taken of, whose splits the new job reads."""
        return self.reader.record()

    def splits(self, graph: JobGraph) -> dict[str, Sequence[bytes] | None]:
        """Returns the splits of each source of the job: those of the savepoint, None for a source that is new."""
        known = self.reader.manifest.splits
        return {step.name: known.get(step.name) for step in graph.steps if step.source is not None}

    @property
    def term(self) -> int:
        """Term of the old job, which that of the new one exceeds: incarnations are never named twice."""
        return self._metadata.term

    def at_widths(self, image: JobImage, asked: Sequence[str]) -> JobImage:
        """Returns the job with the numbers of tasks with which it starts. Raises: see ``start_widths.at_widths``."""
        return at_widths(image, asked, self._metadata.plan, dict(self._metadata.widths))

    def check(self, image: JobImage) -> None:
        """Checks that the state fits the job, and that the savepoint is complete.

        Raises: SavepointUnfit, StateWouldBeDropped, WidthsRefused, SavepointCorrupt.
        """
        self.check_fit(image)
        self.reader.check()
        if self._source_of is not None:
            self._transfer = StateTransfer(self._metadata, image, self._source_of, self.reader.read_head)
            if reasons := tuple(self._transfer.refusals()):
                raise WidthsRefused(image.plan.job_name, reasons)

    def check_fit(self, image: JobImage) -> None:
        """Checks that the state fits the job. Raises: SavepointUnfit, StateWouldBeDropped."""
        plan, url, stored = image.plan, self.reader.url, self._metadata.plan
        current, sources = shape_of(plan), tuple(self.reader.manifest.splits)
        own = {step.name for vertex in current.vertices for step in vertex.steps}
        dropped = [step.name for vertex in stored.vertices for step in vertex.steps if step.name not in own]
        dropped += [name for name in sources if name not in image.splits]
        renamed = _with_names_of(stored, current, sources)
        is_same = len(self._metadata.tasks) == len(plan.tasks) and not differences(_without_outputs(renamed), current)
        if dropped or not is_same or set(image.splits) != set(sources):
            by_vertex = sources_of(stored, sources)
            if found := differences_of_transfer(self._metadata, image, by_vertex):
                raise SavepointUnfit(plan.job_name, url, found)
            self._source_of = by_vertex
        if dropped and not self._allow_dropped_state:
            raise StateWouldBeDropped(plan.job_name, url, tuple(dropped))

    def copy(self, store: CheckpointStore, image: JobImage, record: StoredJob) -> CheckpointMetadata:
        """Copies the state into the store of the new job, whose term has begun, as its first checkpoint; returns that.

        Raises: SavepointCorrupt, StoreFailed. AnotherCoordinator: another driver has begun a term meanwhile.
        """
        plan = image.plan
        with self.reader.shown("copying"):
            if self._transfer is not None:
                entries = self._transferred(store, self._transfer)
            else:
                entries = tuple(self._copied(store, plan, entry) for entry in self._metadata.tasks)
        metadata = msgspec.structs.replace(
            self._metadata,
            job_id=record.job_id,
            job_name=plan.job_name,
            term=store.term,
            tasks=entries,
            plan=shape_of(plan),
            widths=(),
            retired={},  # no external system knows the new job
        )
        if store.append_checkpoint(metadata.checkpoint, encode_metadata(metadata)) is AppendOutcome.TAKEN:
            raise AnotherCoordinator(store.url)
        return metadata

    def _transferred(self, store: CheckpointStore, transfer: StateTransfer) -> tuple[TaskEntry, ...]:
        """Copies the state for the tasks of the job, which take what they need of it in their slots."""
        entries = transfer.entries(self._metadata.checkpoint, partial(write_moved, store))
        needed = {name for entry in entries for name in entry.objects}
        self.reader.copy_objects(store, sorted(needed & self._metadata.objects()))
        return entries

    def _copied(self, store: CheckpointStore, plan: Plan, entry: TaskEntry) -> TaskEntry:
        """Copies the state of a task. Its last object is written anew where something in it belongs to the old job."""
        entry = msgspec.structs.replace(entry, prepared=())
        if not entry.objects:
            return entry
        external = [channel.id for channel in plan.outputs[entry.task] if channel.receiver is None]
        last = entry.objects[-1]
        self.reader.copy_objects(store, entry.objects[:-1] if external else entry.objects)
        if external:
            head, *pieces = self.reader.read_object(last)
            own = encode_snapshot(_renumbered(decode_snapshot(head, last), external))
            stored_as = store.write_object(name_of_object(last), [own, *map(bytes, pieces)])
            entry = msgspec.structs.replace(entry, objects=(*entry.objects[:-1], stored_as))
        return entry


def _renumbered(snapshot: Snapshot, external: list[ChannelId]) -> Snapshot:
    """Returns a snapshot whose output to external systems begins at 0: they know nothing of the new job."""
    outputs = tuple((channel, 0 if channel in external else number) for channel, number in snapshot.outputs)
    return msgspec.structs.replace(snapshot, outputs=outputs)


def _with_names_of(stored: PlanShape, current: PlanShape, sources: tuple[str, ...]) -> PlanShape:
    """Returns a shape whose tasks have the names of the current ones at their places.

    A task is named after all its steps, so a step that is added or removed renames it. A source must stay the same.
    """
    if len(stored.vertices) != len(current.vertices):
        return stored
    before, now = ({vertex.name for vertex in shape.vertices} for shape in (stored, current))
    names = {
        was.name: vertex.name
        for was, vertex in zip(stored.vertices, current.vertices, strict=True)
        if was.name not in now and vertex.name not in before and source_of(was, sources) == source_of(vertex, sources)
    }
    return msgspec.structs.replace(
        stored,
        vertices=tuple(
            msgspec.structs.replace(vertex, name=names.get(vertex.name, vertex.name)) for vertex in stored.vertices
        ),
        edges=tuple(
            msgspec.structs.replace(
                edge, source=names.get(edge.source, edge.source), target=names.get(edge.target, edge.target)
            )
            for edge in stored.edges
        ),
    )


def _without_outputs(stored: PlanShape) -> PlanShape:
    """Returns a shape without sinks: those of the new job have none of its output."""
    vertices = tuple(msgspec.structs.replace(vertex, outputs=()) for vertex in stored.vertices)
    return msgspec.structs.replace(stored, vertices=vertices)
