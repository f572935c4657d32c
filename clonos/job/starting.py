"""How a job starts: afresh, in place of an earlier run, or from the checkpoint of an unfinished one.

A finished job starts afresh by itself, and so does a job that ended before its first checkpoint and has no effects.
An unfinished one needs the decision of the user, a running one is left alone, and another job's store is never
used without ``overwrite``. A start that fails removes what it has created.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from clonos.api.graph import JobGraph
from clonos.config import RunOptions
from clonos.core.checkpoint.checkpoint_metadata import (
    CheckpointMetadata,
    decode_metadata,
    decode_shape,
    encoded_shape,
    plan_fingerprint,
)
from clonos.core.checkpoint.plan_shape import differences, shape_of
from clonos.core.coordinator.coordinator_effects import Alarm
from clonos.core.model.errors import ClonosError
from clonos.core.model.ids import CheckpointId
from clonos.core.model.plan import Plan
from clonos.io.store.driver_mark import NO_MARKS, DriverMark, Marks, refuse_running
from clonos.io.store.store import (
    CheckpointStore,
    NothingToResume,
    StoredJob,
    StoreInUse,
    StoreOfAnotherJob,
    remove_leftovers,
)
from clonos.io.system.wall_clock import wall_ns
from clonos.job.continuing.from_savepoint import SavepointStart, StoreNotEmpty, refuse_half_copied
from clonos.job.continuing.resuming import checkpoint_to_resume, metadata_of, retained_before
from clonos.job.continuing.start_widths import as_stored, at_widths
from clonos.job.continuing.state_transfer import head_of
from clonos.job.continuing.width_change import WidthChange, changed_widths
from clonos.job.continuing.withdrawal import Stage, retired_since, stages_of, stages_of_begun, withdraw_rows
from clonos.job.staging import StagedInput
from clonos.operators.chain_outputs import CombinedSinks
from clonos.operators.connector_contract import RollbackSink, TransactionalSink
from clonos.operators.job_image import JobImage

logger = logging.getLogger("clonos.run")

DEFAULT_STORE: Final = "./.clonos"


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Identity of a job: its name, and the file that describes it; "" if that is unknown."""

    name: str
    file: str


class JobStart:
    """One start of a job on its store. ``find`` reads the store, ``decide`` checks, ``begin`` changes it."""

    def __init__(self, store: CheckpointStore, identity: JobIdentity, run: RunOptions) -> None:
        self.store, self._identity, self._run = store, identity, run
        self._found: StoredJob | None = None
        self._resumed: CheckpointMetadata | None = None
        self._replaces = ""
        self._replaced_sinks: set[int] = set()
        self._created: StoredJob | None = None
        self._sinks: list[Any] = []
        self._mark: DriverMark | None = None
        self._is_taken_over = False
        self._dead: Marks = NO_MARKS  # marks of drivers that have died
        self._staged: StagedInput | None = None
        self._savepoint: SavepointStart | None = None
        self._change: WidthChange | None = None  # of a job that goes on with other widths
        self._stages: tuple[Stage, ...] = ()  # rows to withdraw before a task runs
        self.alarms: list[Alarm] = []  # of rows that may come again of tasks that do not run any more

    # ------------------------------------------------------------------ reading

    def find(self) -> StoredJob | None:
        """Returns the record of the job to resume, or of the savepoint to start from; None for a fresh start.

        Raises: JobRunning: a driver runs the job. StoreOfAnotherJob. NothingToResume: there is no such checkpoint.
        SavepointMissing, SavepointCorrupt: there is no such savepoint. StoreNotEmpty: the store has a job.
        """
        found = self.store.read_job()
        if found is not None:
            self._dead = refuse_running(found.name, self.store.url, self.store.files)
            if found.name != self._identity.name and not self._run.overwrite:
                raise StoreOfAnotherJob(self.store.url, f"{found.name!r}", f"{self._identity.name!r}")
        elif self._run.resume and not self._run.from_savepoint:
            self._refuse_other_folder()
            if self._run.checkpoint is not None:
                raise NothingToResume(self.store.url, f"checkpoint {self._run.checkpoint}")
            logger.warning(
                "the checkpoint store %s is empty, so there is nothing to resume: %s starts afresh",
                *(self.store.url, self._identity.name),
            )
        self._found = found
        run = self._run
        if run.from_savepoint and not self.is_resume:
            if found is not None and not run.overwrite:
                raise StoreNotEmpty(self.store.url, found.job_id)
            self._savepoint = SavepointStart(run.from_savepoint, run.allow_dropped_state)
            return self._savepoint.record
        return found if self._run.resume else None

    @property
    def is_resume(self) -> bool:
        """Whether the start resumes the job of the store."""
        return self._run.resume and self._found is not None

    def splits(self, graph: JobGraph) -> Mapping[str, Sequence[bytes] | None] | None:
        """Returns the splits that the sources go on with; None, for all or for one, if they are to be listed now."""
        if self._savepoint is not None:
            return self._savepoint.splits(graph)
        return self._found.splits if self._run.resume and self._found is not None else None

    def check_fit(self, image: JobImage) -> None:
        """Checks that the state of the savepoint, if there is one, fits the job. Reads none of it.

        Raises: SavepointUnfit, StateWouldBeDropped, WidthsRefused.
        """
        if self._savepoint is not None:
            self._savepoint.check_fit(self._savepoint.at_widths(image, self._run.widths))

    def stage(self, graph: JobGraph) -> None:
        """Writes the input of the sources that need it, or finds that of the job to resume.

        Raises: StoreInUse: the job of the store has not finished. InvalidConnector, FrameFailed: see ``StagedInput``.
        """
        self._staged = StagedInput(graph, self.store)
        if self._savepoint is not None:
            self._staged.refuse_savepoint()
        if self.is_resume:
            self._staged.find()
            return
        if self._found is not None and not self._run.overwrite:
            self.store.find_job()
            checkpoints = self.store.checkpoints()
            if checkpoints and not self.store.is_finished(self._found):  # seen before the input is written, not after
                raise StoreInUse(self.store.url, self._found.job_id, checkpoints[-1])
        self._staged.write()

    def decide(self, image: JobImage) -> JobImage:
        """Decides from what the job goes on; returns it with the numbers of tasks with which it starts.

        Raises: StoreInUse: the job of the store has not finished. StoreOfAnotherJob. PlanChanged. OutputInUse.
        WidthsRefused.
        """
        run, self._sinks = self._run, list(_transactional_sinks(image))
        for _, sink in _sinks(image):
            if (check_start := getattr(sink, "check_start", None)) is not None:
                check_start()
        if self._found is not None:
            self.store.find_job()
            if not run.overwrite:
                self._refuse_another_job(self._found, image.plan)
                refuse_half_copied(self.store, self._found)
        if self._savepoint is not None:
            image = self._savepoint.at_widths(image, run.widths)
            self._savepoint.check(image)
        elif self.is_resume:
            assert self._found is not None
            resumed = checkpoint_to_resume(self.store, self._found, run, image.plan)
            return self._resumes(resumed, image) if resumed is not None else self._begins_again(image)
        else:
            image = at_widths(image, run.widths, None)
        if run.overwrite:
            return image
        if self._found is not None:
            self._replaces = self._id_to_replace(self._found, image)
        for number, sink in enumerate(self._sinks):
            check: Callable[[str], bool] | None = getattr(sink, "check_output", None)
            if check is not None and check(self._replaces):
                self._replaced_sinks.add(number)
        return image

    def _resumes(self, resumed: CheckpointMetadata, image: JobImage) -> JobImage:
        """Decides the numbers of tasks of a job that goes on from a checkpoint, and what is withdrawn before."""
        name = f"the chain of {self.store.url}"
        later = [decode_metadata(each, name) for each in self.store.metadata_after(resumed.checkpoint)]
        self._resumed = msgspec.structs.replace(resumed, retired=retired_since(resumed, later))
        image, self._change = changed_widths(self.store, self._resumed, image, self._run.widths)
        head = partial(head_of, read_object=self.store.read_object)
        self._stages = stages_of([self._resumed, *later], self._change is not None, head)
        return image

    def _begins_again(self, image: JobImage) -> JobImage:
        """Decides the numbers of tasks of a job that has no checkpoint, and what is withdrawn of its earlier starts."""
        name = f"the chain of {self.store.url}"
        begun_as = [decode_shape(each, name) for each in self.store.begun_as()]
        is_same = begun_as and not differences(begun_as[0], shape_of(as_stored(image.plan, begun_as[0])))
        image = at_widths(image, self._run.widths, begun_as[0] if is_same else None)
        self._stages = stages_of_begun(begun_as, image)
        return image

    def _refuse_other_folder(self) -> None:
        """Refuses a resume whose default store is empty here, while the one beside the job's file has the job.

        The folder from which a job is started decides where its default store is.
        """
        folder = os.path.dirname(self._identity.file)
        beside = os.path.normpath(f"{folder}/{default_store(self._identity.name)}")
        if self._run.store or not folder or not os.path.isdir(beside):
            return
        if CheckpointStore(beside).read_job() is not None:
            advice = f"But {beside} has a job of this name: start from {folder}, where its relative paths lead too."
            raise NothingToResume(self.store.url, "job", advice)

    def _refuse_another_job(self, found: StoredJob, plan: Plan) -> None:
        """Refuses a store whose job has both another file and another plan: a file may be renamed, and a plan may be
        changed."""
        own = self._identity
        if found.file and own.file and found.file != own.file and found.plan != plan_fingerprint(plan):
            raise StoreOfAnotherJob(self.store.url, f"{found.name!r} of {found.file}", f"{own.name!r} of {own.file}")

    def _id_to_replace(self, found: StoredJob, image: JobImage) -> str:
        """Returns the identity of the earlier run whose state and output a fresh start replaces."""
        checkpoints = self.store.checkpoints()
        if checkpoints and metadata_of(self.store, found).is_final and self.store.is_finished(found):
            logger.warning(
                "%s has finished earlier (checkpoint %d): it starts afresh%s",
                *(found.name, checkpoints[-1], _replaced_text(image)),
            )
            return found.job_id
        if checkpoints or any(vertex.has_effects or vertex.is_journalled for vertex in image.plan.vertices):
            raise StoreInUse(self.store.url, found.job_id, checkpoints[-1] if checkpoints else 0)
        logger.warning("%s ended before its first checkpoint and has no output: it starts afresh", found.name)
        return found.job_id

    # ------------------------------------------------------------------ changing

    def begin(self, image: JobImage, hash_seed: str, is_taken_over: bool = False) -> StoredJob:
        """Marks the store as used by this process, begins a term, copies a savepoint, and prepares the outputs.

        ``is_taken_over``: the tasks of an earlier driver live and go on.

        Raises: JobRunning: another start has done so since ``find``. SavepointCorrupt, StoreFailed.
        """
        self._is_taken_over = is_taken_over
        self._mark = DriverMark.claimed(self._identity.name, self.store.url, self.store.files, self._dead)
        if self.is_resume:
            assert self._found is not None
            record = self._found
            begun_as = encoded_shape(image.plan) if self._resumed is None else b""
            self.store.acquire_term(self._run.checkpoint or 0, free=max(0, len(self._stages) - 1), begun_as=begun_as)
            if not is_taken_over:
                logger.warning("%s", self._continued_text(record.name))
        else:
            record = self._created = self.store.open_job(
                self._identity.name,
                overwrite=self._run.overwrite or bool(self._replaces),
                splits={name: tuple(splits) for name, splits in image.splits.items()},
                hash_seed=hash_seed,
                file=self._identity.file,
                plan=plan_fingerprint(image.plan),
                savepoint=self._run.from_savepoint if self._savepoint is not None else "",
                term_before=self._savepoint.term if self._savepoint is not None else 0,
                begun_as=encoded_shape(image.plan) if self._savepoint is None else b"",
            )
            if self._savepoint is not None:
                self._resumed = self._savepoint.copy(self.store, image, record)
                logger.warning("%s starts from %s", record.name, self._savepoint)
            if self._staged is not None:
                self._staged.remove_others()
        self._prepare_outputs(image, record.job_id, is_taken_over)
        if not is_taken_over:
            self.alarms = withdraw_rows(image, record.job_id, self.store.term, self._stages)
            self.alarms += self._lost_calls(image)
            if self.is_resume:
                remove_leftovers(self.store)  # after the withdrawal, which reads snapshots of void checkpoints
        if self._change is not None:
            job_id = record.job_id
            self._resumed = self._change.take_over(job_id) if is_taken_over else self._change.write(job_id)
        return record

    def _lost_calls(self, image: JobImage) -> list[Alarm]:
        """Returns an alarm if calls with an effect may be made again: the logs that had them died with a driver, or are
        those of later checkpoints."""
        if not (image.acting and self.is_resume and (self._dead or self._run.checkpoint is not None)):
            return []
        since = "the beginning" if self._resumed is None else f"checkpoint {self._resumed.checkpoint}"
        text = f"calls with an effect that were made since {since} may be made again"
        logger.warning("%s, by %s", text, ", ".join(image.acting))
        return [Alarm(text, (("steps", ", ".join(image.acting)),))]

    def why_not_taken_over(self) -> str:
        """Returns why slots that have outlived their driver cannot go on as if nothing had happened; "" if they can."""
        if self._resumed is None or not self.is_resume or self._run.checkpoint is not None:
            return "the job does not continue from its last checkpoint"
        if self._change is not None and not self._change.follows_cut:
            return "other numbers of tasks are asked for"
        return ""

    def as_slots_have(self, image: JobImage) -> JobImage:
        """Returns the job with the numbers of tasks that slots of an earlier driver have until the next view: those of
        a cut come with it."""
        return image if self._change is None else replace(image, plan=self._change.before)

    @property
    def how(self) -> str:
        """How the job has begun: afresh, resumed, took_over or from_savepoint."""
        if self._savepoint is not None:
            return "from_savepoint"
        return "took_over" if self._is_taken_over else "resumed" if self.is_resume else "afresh"

    @property
    def resumed(self) -> CheckpointMetadata | None:
        """Metadata from which the job goes on, once it has begun; None at the beginning of the input."""
        return self._resumed

    def retained(self, retained: int) -> tuple[CheckpointMetadata, ...]:
        """Returns the checkpoints before that one whose objects are to be kept."""
        if not self.is_resume or self._found is None or self._resumed is None:
            return ()
        return retained_before(self.store, self._found, self._resumed, retained)

    def _continued_text(self, name: str) -> str:
        resumed = self._resumed
        if resumed is None:
            return f"{name} ended before its first checkpoint: it begins its input again"
        if resumed.is_final:
            return f"{name} had read all its input at checkpoint {resumed.checkpoint}: only its output is completed"
        age_s = (wall_ns() - self.store.written_ns(resumed.checkpoint)) / 1e9
        return f"{name} continues from checkpoint {resumed.checkpoint}, which is {age_text(age_s)} old"

    def _prepare_outputs(self, image: JobImage, job_id: str, is_taken_over: bool) -> None:
        """Prepares each output, and withdraws what was committed after the checkpoint from which the job resumes.

        Later commits exist only when a driver resumed from an earlier checkpoint than the last one; that driver may
        have ended before it withdrew them. Tasks that are taken over keep what they have prepared for the next
        checkpoints, which would be withdrawn too.
        """
        checkpoint = CheckpointId(0) if self._resumed is None else self._resumed.checkpoint
        number = 0
        for name, sink in _sinks(image):
            if isinstance(sink, TransactionalSink):
                is_replaced = self._run.overwrite or number in self._replaced_sinks
                sink.prepare_output(job_id, self.is_resume, is_replaced)
                number += 1
            elif (self._run.overwrite or self._replaces) and _may_have_rows(sink):
                logger.warning("%s", _rows_that_stay(name, sink))
            if self.is_resume and not is_taken_over:
                _roll_back(name, sink, job_id, checkpoint, is_going_back=self._run.checkpoint is not None)

    def outputs(self) -> list[str]:
        """Returns where the output of transactional sinks is, with the number of rows, as far as the sinks know."""
        found: list[str] = []
        for sink in self._sinks:
            folder: Callable[[], str] | None = getattr(sink, "folder", None)
            where = folder() if callable(folder) else getattr(sink, "name", "")
            count: Callable[[], int] | None = getattr(sink, "rows_written", None)
            if where:
                found.append(where if count is None else f"{where} ({rows_text(count())})")
        return found

    def undo(self) -> None:
        """Removes what a fresh start has created, because the job did not begin, and ends the mark."""
        created, self._created = self._created, None
        if self._staged is not None:
            self._staged.remove()
        try:
            if created is not None and not self.store.has_latest_term():
                created = None  # another driver has taken the job over: everything is its own now
            if created is not None:
                for sink in self._sinks:
                    release: Callable[[str], None] | None = getattr(sink, "release_output", None)
                    if release is not None:
                        release(created.job_id)
        except ClonosError as error:
            logger.warning("an output could not be given back after the failed start: %s", error)
        self.close()
        try:
            if created is not None:
                self.store.discard_job(created)
        except ClonosError as error:
            logger.warning("the checkpoint store could not be emptied after the failed start: %s", error)

    def finish(self) -> None:
        """Notes that the job has ended with all its output: the next start begins afresh."""
        self.store.write_finished()

    def close(self) -> None:
        """Removes the mark of this process from the store."""
        if self._mark is not None:
            self._mark.close()


def rows_text(count: int) -> str:
    """Returns a number of rows as text."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def age_text(seconds: float) -> str:
    """Returns a length of time as text: whole seconds, or minutes, hours or days from 100 of the smaller unit on."""
    for unit, size in (("s", 1), ("min", 60), ("h", 3_600)):
        if seconds < 100 * size:
            return f"{max(0, int(seconds // size))} {unit}"
    return f"{int(seconds // 86_400)} d"


def default_store(name: str) -> str:
    """Returns the store of a job without ``store=``, relative to the working folder."""
    return f"{DEFAULT_STORE}/{name}"


def identity_of(graph: JobGraph) -> JobIdentity:
    """Returns the identity of a job."""
    return JobIdentity(graph.name, graph.file)


def _sinks(image: JobImage) -> Iterator[tuple[str, Any]]:
    """Returns each sink with the name of its vertex, in the order of the plan."""
    for vertex, sink in sorted(image.sinks.items()):
        for each in sink.sinks if isinstance(sink, CombinedSinks) else (sink,):
            yield image.plan.vertices[vertex].name, each


def _transactional_sinks(image: JobImage) -> Iterator[Any]:
    return (sink for _, sink in _sinks(image) if isinstance(sink, TransactionalSink))


def _replaced_text(image: JobImage) -> str:
    """Returns which output of the earlier run a fresh start replaces, as the end of a sentence."""
    immediate = dict.fromkeys(name for name, sink in _sinks(image) if not isinstance(sink, TransactionalSink))
    if not immediate:
        return " and replaces the output of that run"
    if not any(_transactional_sinks(image)):
        return ""
    return f" and replaces the output of that run, except that of {', '.join(immediate)}"


def _may_have_rows(sink: Any) -> bool:
    has_table: Callable[[], bool] | None = getattr(sink, "has_table", None)
    return has_table is None or has_table()


def _rows_that_stay(name: str, sink: Any) -> str:
    """Returns what becomes of the rows that an earlier start has written to an immediate sink."""
    table = getattr(sink, "table", "")
    where = f"table {table}" if table else f"the output of {name}"
    if key := getattr(sink, "key_columns", ()):
        return (
            f"the rows of earlier starts stay in {where}, except those whose {', '.join(key)} this start writes again:"
            " these are replaced"
        )
    if not table:
        return f"rows of earlier starts, if there were any, stay in {where}, and this start adds its own"
    return f"the rows of earlier starts stay in {where}, and this start adds its own"


def _roll_back(name: str, sink: Any, job_id: str, checkpoint: CheckpointId, is_going_back: bool) -> None:
    if not isinstance(sink, RollbackSink):
        if is_going_back and not getattr(sink, "can_roll_back", False):
            logger.warning("the output of %s after checkpoint %d cannot be withdrawn: it stays", name, checkpoint)
        return
    taken = sink.roll_back(job_id, checkpoint)
    if taken:
        logger.warning("the output of %s was withdrawn for checkpoints %s", name, ", ".join(map(str, sorted(taken))))
