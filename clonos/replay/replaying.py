"""One replay: the task's own code on its recorded state, log and input, in the thread that calls it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from clonos.core.checkpoint.snapshot import is_moved, restore_from, restore_moved
from clonos.core.model.code_location import user_frames_of
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import JobError, ReplayDiverged
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.model.options import OnDivergence
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import Mirror, StepFailed
from clonos.core.ports.task_port import Activation, TaskStopped
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.task.task import Task
from clonos.kernels import choice
from clonos.operators.chain import VertexImage
from clonos.operators.job_image import JobImage
from clonos.replay.epoch import Epoch
from clonos.replay.going_on import GoingOnPort, GoneOn
from clonos.replay.isolation import AccessRefused, Isolation, isolated
from clonos.replay.loading import image_of, show_recorded_lines
from clonos.replay.port import RecordedPort, RecordEnded, call_without_outcome
from clonos.replay.record_hooks import Hook
from clonos.replay.replay_chain import Made, ReplayChain
from clonos_services.stand_ins import StandIns


class Sent(NamedTuple):
    """Payload that a replay has emitted. ``first_record``, ``last_record``: numbers of the records of its step."""

    first_seq: int
    kind: ElementKind
    elements: int
    payload: bytes
    first_record: int
    last_record: int

    @property
    def records(self) -> tuple[int, int]:
        """Numbers of the first and of the last record of its step; the same one if it had none."""
        return self.first_record, max(self.first_record, self.last_record)


class TaskNotInJob(JobError):
    """Changed code has no such task."""

    task: str
    tasks: tuple[str, ...]

    def __str__(self) -> str:
        return f"the job has no task {self.task}, which the record is of. It has {', '.join(self.tasks)}."


@dataclass
class Replayed:
    """Course of a replay.

    ``error``: what ended it, None at the end of the log. ``number``: of the record that raised, if it is known.
    ``open_call``: the service whose call has no outcome in the log, "" if none ended the replay; ``place``: the line of
    user code that was running then. ``gone_on``: what it did behind the end of the log, None if it has not come there.
    """

    image: JobImage
    task: TaskId
    chain: ReplayChain
    isolation: Isolation
    sent: dict[ChannelId, list[Sent]] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)
    emissions: int = 0
    error: BaseException | None = None
    number: int | None = None
    open_call: str = ""
    place: str = ""
    replayed_calls: int = 0
    was_quit: bool = False  # by the user, in the debugger
    gone_on: GoneOn | None = None

    @property
    def user_error(self) -> BaseException | None:
        """Exception of user code: the cause of ``error``."""
        error = self.error
        return error.__cause__ if isinstance(error, StepFailed) and error.__cause__ is not None else error

    @property
    def records(self) -> int:
        """How many records of its input the task was given."""
        return self.chain.records

    @property
    def divergence(self) -> ReplayDiverged | None:
        """How the replay asked for something else than the log has, None if it did not."""
        return self.user_error if isinstance(self.user_error, ReplayDiverged) else None


def replay_epoch(
    epoch: Epoch,
    *,
    image: JobImage | None = None,
    allowed: frozenset[str] = frozenset(),
    hook: Hook | None = None,
    records_results: bool = False,
    one_by_one: bool = False,
    go_on: StandIns | None = None,
    started: Callable[[Replayed], None] | None = None,
    new_chain: Callable[[VertexImage, Epoch, Hook | None], ReplayChain] = ReplayChain,
) -> Replayed:
    """Replays an epoch to the end of its log, or to the first error.

    Args:
        epoch: the record.
        image: of changed code; None for that of the record.
        allowed: what of the world outside user code may ask, see ``isolation.KINDS``.
        hook: is called in front of each record of each step with user code.
        records_results: whether ``made`` gets the rows that leave the chain.
        one_by_one: the chain gets each record as a batch of its own, so that ``made`` has it beside its results.
        go_on: what answers calls behind the end of the log; None ends the replay there.
        started: gets the result before the task runs, for a debugger.
        new_chain: makes the chain of the task.

    Raises: RecordRefused, RecordDamaged, TaskNotInJob: it cannot begin. Errors of user code are in the result.
    """
    used = image_of(epoch) if image is None else image
    show_recorded_lines(epoch, image is None)
    plan = used.plan
    task = task_named(plan, epoch.task)
    mirror, snapshot = _restored(epoch, used, plan.vertex_of[task])
    positions = dict(snapshot.inputs) if snapshot is not None else {}
    port = RecordedPort(epoch, positions) if go_on is None else GoingOnPort(epoch, positions, go_on)
    chain = new_chain(used.vertices[plan.vertex_of[task]], epoch, hook)
    chain.one_by_one = one_by_one
    found = Replayed(used, task, chain, Isolation(allowed))
    if records_results or go_on is not None:
        chain.made = found.made
    _Taker(found, port, snapshot).take_emissions()
    if started is not None:
        started(found)
    native = choice.native
    if hook is not None:
        choice.native = None  # loops in C take all rows of a batch before the first one is processed
    try:
        with _answering(found, port):
            _run(found, port, lambda: _task(epoch, found, port, mirror, snapshot))
    finally:
        choice.native = native
    if found.error is None and found.isolation.refused:  # user code has caught it
        found.error = found.isolation.refused[0]
    found.number = chain.failed_number
    return found


@contextmanager
def _answering(found: Replayed, port: RecordedPort) -> Iterator[None]:
    """Lets a replay go on where the log ends, if its port does, and takes down what it did there."""
    if not isinstance(port, GoingOnPort):
        yield
        return
    port.begin = lambda: GoneOn(found.records, len(found.made))
    with port.answering():
        yield
    found.gone_on = port.gone_on
    found.open_call = port.unanswered or found.open_call


def _task(epoch: Epoch, found: Replayed, port: RecordedPort, mirror: Mirror | None, snapshot: Snapshot | None) -> Task:
    head, image = epoch.head, found.image
    # Each step leaves alone, as it did when the task was live; a difference is what a replay is made to find.
    options = replace(image.options, step_records_max=1, on_divergence=OnDivergence.FAIL)
    offset, journal = head.log_offset_bytes, epoch.journal
    life = head.incarnation, snapshot, mirror, epoch.log, offset, head.generation, False, head.job_id, journal
    return Task(image.plan, found.task, found.chain, port, Activation(*life), options)


def _run(found: Replayed, port: RecordedPort, make: Callable[[], Task]) -> None:
    """Runs the task, cut off from the world, and takes down how it ended."""
    task: Task | None = None
    try:
        with isolated(found.isolation):
            task = make()
            task.run()
    except RecordEnded as error:
        ended = port.ended or error  # user code may have caught the first one
        found.open_call = call_without_outcome(ended)
        frames = user_frames_of(ended)
        found.place = frames[-1].place if frames else ""
    except TaskStopped:
        found.was_quit = True
    except Exception as error:  # noqa: BLE001  user code may raise anything
        found.error = error
    except (SystemExit, KeyboardInterrupt) as error:
        if not user_frames_of(error):
            raise
        found.error = error
    found.replayed_calls = task.log.replayed_calls if task is not None else 0


def task_named(plan: Plan, name: str) -> TaskId:
    """Returns the task of a name. Raises: TaskNotInJob."""
    task = plan.task_named(name)
    if task is None:
        raise TaskNotInJob(name, tuple(map(plan.task_name, plan.tasks)))
    return task


def _restored(epoch: Epoch, image: JobImage, vertex: int) -> tuple[Mirror | None, Snapshot | None]:
    if not epoch.state:
        return None, None
    pieces = dict(epoch.state)
    if is_moved(epoch.state[-1][0]):
        restored = restore_moved(list(pieces), lambda name: pieces[name], image.union_of)
    else:
        restored = restore_from(epoch.state, image.new_mirror(vertex))
    return restored.mirror, restored.snapshot


class _Taker:
    """Takes the emissions of a replay as they come: the positions of their payloads, and the records of their step."""

    def __init__(self, found: Replayed, port: RecordedPort, snapshot: Snapshot | None) -> None:
        self._found, self._port = found, port
        self._next = dict(snapshot.outputs) if snapshot is not None else {}
        self._records = 0

    def take_emissions(self) -> None:
        """Takes each emission of the port from now on."""
        self._port.emitted = self._take

    def _take(self, emission: Any) -> None:
        found = self._found
        first, self._records = self._records + 1, found.chain.records
        found.emissions += 1
        for output in emission.outputs:
            first_seq = self._next.get(output.channel, 0)
            self._next[output.channel] = first_seq + output.count
            sent = Sent(first_seq, output.kind, output.count, output.payload, first, self._records)
            found.sent.setdefault(output.channel, []).append(sent)
        for pieces in (emission.more, emission.whole):
            if pieces is not None:
                pieces.release()


def described(error: BaseException) -> str:
    """Returns the class and the text of an error."""
    if isinstance(error, AccessRefused | ReplayDiverged):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()
