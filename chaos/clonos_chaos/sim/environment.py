"""Environment of the processes of a simulated world: clock, network, store, external systems, options and the job.

The processes stand above: a process sees the world as a ``SimEnvironment`` and calls what the world does for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from greenlet import getcurrent

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, VertexParts
from clonos.core.coordinator.coordinator_effects import Alarm, JobDone, JobFailed
from clonos.core.model.ids import ChannelId, Incarnation, SlotId, TaskId, ViewNumber
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import Chain, Mirror
from clonos.core.values import decode_rows
from clonos.core.wire.control_messages import Register, Snapshotted, View
from clonos.core.wire.recovery_messages import JournalLost, LogLost, SinkFenced
from clonos.io.process.fault_points import DerivedPoint, FaultPoint
from clonos_chaos.sim.network import Network
from clonos_chaos.sim.producers import SimProducer
from clonos_chaos.sim.sim_tables import ExternalKind, ExternalSystems
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, Clockwork
from clonos_chaos.sim.world_settings import WorldOutcome, WorldSettings

EVENT_LOG_LINES_MAX = 400

NO_VIEW = View(ViewNumber(0), 0, "", (), ())


class SimulatedJob(Protocol):
    """Job of a world: its plan, the chains of its vertices, and what must come out."""

    name: str
    plan: Plan
    records: int
    copies: int
    chains_open: int
    service: Any
    producers: dict[TaskId, SimProducer]

    def new_chain(self, vertex: int) -> Chain:
        """Makes a chain for one incarnation."""

    def new_mirror(self, vertex: int) -> Mirror:
        """Makes an empty mirror of its state."""

    def expected(self) -> Sequence[int]:
        """Returns the offsets that must come out, each ``copies`` times."""

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns complaints about the source, given the alarms and the tasks that died with their keepers."""


class Witness(Protocol):
    """Observer that is told of the events of a world while it runs: its oracle."""

    is_over: bool
    """The job has ended: later deaths are not failures."""
    incarnations: dict[TaskId, dict[Incarnation, SlotId]]
    """Incarnations of each task that have started, and where."""

    def started(self, slot: SlotId, task: TaskId, incarnation: Incarnation) -> None:
        """An incarnation starts in a slot."""

    def viewed(self, view: View) -> bool:
        """A view is about to be issued. Returns whether it is a rollback."""

    def dying(self, slots: list[SlotId]) -> None:
        """These processes are about to die."""

    def renumber(self, before: Plan, plan: Plan) -> None:
        """Widths change: numbers mean other tasks and channels."""

    def lost(self, message: LogLost | JournalLost | SinkFenced) -> None:
        """A task reports that the generation must end."""

    def diverged(self) -> None:
        """A task reports that its replay has differed from the first execution."""

    def acknowledged(self, message: Snapshotted) -> None:
        """A task reports its snapshot as durable."""

    def completed(self, metadata: CheckpointMetadata) -> None:
        """A checkpoint is durable."""


class WorldFailed(Exception):
    """Failure found by an oracle. ``complaint``: what is wrong; ``report``: seed, complaint and the last events."""

    def __init__(self, report: str, complaint: str) -> None:
        super().__init__(report, complaint)
        self.report = report
        self.complaint = complaint

    def __str__(self) -> str:
        return self.report


class SimEnvironment(ABC):
    """Environment of the processes of a world, made from a seed."""

    oracle: Witness
    network: Network
    scalable: tuple[str, ...] = ()  # steps whose width may change

    def __init__(
        self,
        seed: int,
        job: SimulatedJob,
        plan: Plan,
        options: Options,
        settings: WorldSettings,
        clock_seed: int,
        external_kind: ExternalKind,
    ) -> None:
        self.seed, self.job, self.plan, self.options, self.settings = seed, job, plan, options, settings
        self.declared = plan  # ``plan`` has the widths of the latest view
        self.is_validated = False  # asserts the invariants of all machines after each event
        self.clock = Clockwork(clock_seed)
        self.hub: Any = getcurrent()
        self.store: dict[str, tuple[bytes, ...]] = {}
        self.chain: dict[int, CheckpointMetadata] = {}
        self.store_term = 0  # highest term claimed
        self.externals = ExternalSystems(plan, external_kind)
        self.committed: dict[int, list[Any]] = {}
        self.committed_up_to = 0
        self.named: dict[SlotId, Register] = {}  # how slots have registered, in this order
        self.names_slots = False  # whether a new coordinator knows them
        self.views: list[View] = []  # all that were issued
        self.outcome = WorldOutcome(seed)
        self.crashes: list[BaseException] = []
        self.alarms: list[Alarm] = []  # of the coordinator
        self.warnings: list[tuple[str, dict[str, str | int]]] = []
        self.event_log: deque[str] = deque(maxlen=EVENT_LOG_LINES_MAX)
        self.ending: JobDone | JobFailed | None = None
        self.ended_ns = 0  # when the job ended, before its processes did
        self._digest = blake2b(digest_size=8)

    @property
    def view(self) -> View:
        """The latest view issued."""
        return self.views[-1] if self.views else NO_VIEW

    def task(self, name: str) -> TaskId:
        """Returns the task of this name, such as ``map/0``."""
        return next(task for task in self.plan.tasks if self.plan.task_name(task) == name)

    def adopt_plan(self, view: View) -> None:
        """Takes over the widths of a view that is about to be issued: numbers of tasks and channels mean others."""
        self.take_plan(self.declared.with_widths(dict(view.widths)))

    def take_plan(self, plan: Plan) -> None:
        """Takes over a plan: its numbers of tasks and channels mean others than those of the plan before."""
        before, self.plan = self.plan, plan
        self.externals.renumber(self.plan)
        self.oracle.renumber(before, self.plan)

    # ------------------------------------------------------------------ what the world does for its processes

    @abstractmethod
    def is_unexpected(self, error: BaseException) -> bool:
        """Returns whether an error is a bug: neither raised on purpose nor the fault of the environment."""

    @abstractmethod
    def reach(self, point: FaultPoint | DerivedPoint, task: TaskId | None = None) -> bool:
        """Announces a named point of the protocol. Returns True when a fault may be injected at this instant."""

    @abstractmethod
    def begin(self) -> None:
        """Takes note that the first view is issued."""

    @abstractmethod
    def divided(self, metadata: CheckpointMetadata, term: int) -> CheckpointMetadata:
        """Returns a cut with the tasks that go on from it."""

    @abstractmethod
    def resume_at(self, widths: Mapping[str, int], term: int) -> None:
        """Divides the state of the last checkpoint among the tasks of other widths, for a start of this term."""

    @abstractmethod
    def add_slot(self) -> None:
        """Starts a slot, unless the job has ended."""

    @abstractmethod
    def end_slot(self, slot_id: SlotId) -> None:
        """Ends a process, as the provider does."""

    @abstractmethod
    def has_died(self, slot_id: SlotId) -> bool:
        """Returns whether the process of a slot does not run."""

    def end(self, ending: JobDone | JobFailed) -> None:
        """Records the end of the job."""
        assert self.ending is None, (self.ending, ending)
        self.ending, self.ended_ns = ending, self.clock.now_ns

    def commit(self, checkpoint: int, parts: tuple[VertexParts, ...]) -> None:
        """Makes the output visible that transactional sinks have prepared for a checkpoint; may be repeated."""
        if checkpoint > self.committed_up_to:
            self.committed_up_to = checkpoint
            for entry in parts:
                for part in entry.parts:
                    self.committed.setdefault(entry.vertex, []).extend(decode_rows(part))

    def fails_in_store(self) -> bool:
        """Draws whether an access to the store fails."""
        return self.ending is None and self.clock.rng.random() < self.settings.store_failure

    # ------------------------------------------------------------------ the event log

    def count(self, what: str) -> None:
        """Counts something that was reached."""
        self.outcome.reached[what] = self.outcome.reached.get(what, 0) + 1

    def note(self, line: str) -> None:
        """Appends a line to the event log; it is part of the digest."""
        line = f"{self.clock.now_ns / MILLISECOND_NS:10.3f} {line}"
        self.event_log.append(line)
        self._digest.update(line.encode())

    def contradicted(self, channel: ChannelId, seq: int, before: Sequence[str], now: Sequence[str]) -> None:
        """Elements of a channel are others than its receiver took in."""
        receiver = self.plan.task_name(self.plan.channels[channel].receiving_task)
        was = f"{before} when its receiver {receiver} took it in"
        self.fail(f"channel {channel}: from element {seq} on it was {was}, and is {now} now")

    def fail(self, complaint: str) -> None:
        """Fails the world with a complaint. Raises WorldFailed."""
        raise WorldFailed(self.report(complaint), complaint)

    def report(self, complaint: str) -> str:
        """Formats seed, job, complaint and the last events."""
        head = f"seed {self.seed} ({self.job.name}): {complaint}\n{self.options}\n{self.settings}\n{self.plan.vertices}"
        return head + "\n" + "\n".join(list(self.event_log)[-60:])
