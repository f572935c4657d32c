"""A whole job in one thread under virtual time, from one seed: slots, coordinator, network, store, external systems."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from greenlet import getcurrent

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, VertexParts
from clonos.core.coordinator.coordinator_effects import Alarm, JobDone, JobFailed
from clonos.core.coordinator.coordinator_events import Event, Received
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import COORDINATOR, ChannelId, SlotId, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.values import decode_rows
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.control_messages import Register
from clonos.core.wire.messages import Message
from clonos.io.process.fault_points import DerivedPoint, FaultPoint
from clonos_chaos.checks.oracle import Oracle
from clonos_chaos.checks.verdict import complaints_of
from clonos_chaos.jobs.aggregate_jobs import AggregateJob
from clonos_chaos.jobs.api_jobs import ApiJob
from clonos_chaos.jobs.columns.column_jobs import ColumnJob
from clonos_chaos.jobs.fuzz_chain import Poisoned
from clonos_chaos.jobs.fuzz_jobs import FUZZ_TOPOLOGIES, FuzzJob, draw_job, with_replicas
from clonos_chaos.jobs.graphs.graph_jobs import GraphJob
from clonos_chaos.jobs.join_jobs import JoinedJob
from clonos_chaos.jobs.pushed_jobs import PushedJob
from clonos_chaos.jobs.timed_jobs import TimedJob
from clonos_chaos.jobs.transformed_jobs import TransformedJob
from clonos_chaos.jobs.window_jobs import WindowJob
from clonos_chaos.sim.network import DELAYS_NS, Network
from clonos_chaos.sim.random_faults import KINDS, FaultRng, Faults
from clonos_chaos.sim.sim_coordinator import SimCoordinator
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.sim_spill import DiskEnvironment, draw_budgets
from clonos_chaos.sim.sim_tables import ExternalSystems, kind_of
from clonos_chaos.sim.targeted_faults import PointReached, TargetedFault
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, SECOND_NS, Clockwork
from clonos_chaos.swarm.random_options import draw_hot, draw_options, draw_separately

if TYPE_CHECKING:
    from clonos_chaos.user.user_world import UserJob

TOPOLOGIES = (
    *(*FUZZ_TOPOLOGIES, "api", "pushed", "timed", "aggregates", "transformed", "joined", "windows", "graphs"),
    "columns",
)
"""Topologies; a seed without one takes them in turn."""

AnyJob: TypeAlias = "FuzzJob | ApiJob | UserJob"

_MAKERS: dict[str, Callable[[str, Random, int, int | None], FuzzJob | ApiJob]] = {
    "api": ApiJob,
    "pushed": PushedJob,
    "timed": TimedJob,
    "aggregates": AggregateJob,
    "transformed": TransformedJob,
    "joined": JoinedJob,
    "windows": WindowJob,
    "graphs": GraphJob,
    "columns": ColumnJob,
}

EVENT_LOG_LINES_MAX = 400
AFTERLIFE_NS_MAX = 10 * SECOND_NS
"""Virtual time within which every process must end once the job has."""


VALIDATED_EVERY = 4
"""Worlds of every fourth seed assert the invariants of all machines after each event, which makes them 33 % slower."""


class WorldFailed(Exception):
    """Failure found by an oracle. ``complaint``: what is wrong; ``report``: seed, complaint and the last events."""

    def __init__(self, report: str, complaint: str) -> None:
        super().__init__(report, complaint)
        self.report = report
        self.complaint = complaint

    def __str__(self) -> str:
        return self.report


@dataclass(frozen=True)
class WorldSettings:
    """Environment of a world: delays, failure rates, cluster and faults. ``draw`` makes a random one."""

    step_ns_max: int = 2 * MILLISECOND_NS
    call_ns_max: int = 5 * MILLISECOND_NS
    store_ns_max: int = 20 * MILLISECOND_NS
    external_ns_max: int = 5 * MILLISECOND_NS
    store_failure: float = 0.0
    disk: DiskEnvironment = DiskEnvironment()  # noqa: RUF009  it is frozen
    network_ns_max: int = 2 * MILLISECOND_NS
    control_loss: float = 0.0
    is_encoding: bool = False
    fresh_slot_ns_max: int = SECOND_NS
    domains: int = 3
    spare_slots: int = 1
    tasks_a_slot: int = 1
    fault_counts: tuple[int, ...] = (0, 1, 1, 2, 3, 5, 8)  # one of these is drawn
    fault_span_ms: tuple[int, ...] = (50, 200, 1_000)  # from the first view on
    fault_kinds: tuple[str, ...] = KINDS  # of which each fault is one; a kind named twice is drawn twice as often
    patience_ms: int = 30_000  # a world without a view, a checkpoint or a fault for this long is stuck
    look_every: int = 64  # messages between two looks at all logs

    @staticmethod
    def draw(rng: Random) -> WorldSettings:
        """Draws a random environment."""
        return WorldSettings(
            step_ns_max=rng.choice((MILLISECOND_NS // 5, 2 * MILLISECOND_NS, 10 * MILLISECOND_NS)),
            store_ns_max=rng.choice((MILLISECOND_NS, 20 * MILLISECOND_NS, 200 * MILLISECOND_NS)),
            external_ns_max=rng.choice((MILLISECOND_NS, 30 * MILLISECOND_NS)),
            store_failure=rng.choice((0.0, 0.0, 0.1)),
            network_ns_max=rng.choice(DELAYS_NS),
            control_loss=rng.choice((0.0, 0.0, 0.02, 0.2)),
            is_encoding=rng.random() < 0.2,
            domains=rng.choice((2, 3, 20)),
            spare_slots=rng.choice((0, 1, 2)),
        )


@dataclass
class WorldOutcome:
    """Result of a world."""

    seed: int
    digest: str = ""
    delivered: int = 0
    views: int = 0
    rollbacks: int = 0
    checkpoints: int = 0
    virtual_ms: int = 0
    reached: dict[str, int] = field(default_factory=dict)


class World:
    """Simulated cluster with a job, made from a seed. ``run`` runs the job to its end."""

    expects_failure = survives_all = False  # where the job is to fail, the caller judges; no rollback may happen
    ended_ns = 0  # when the job ended, before its processes did
    named: dict[SlotId, Register]  # how slots have registered, in this order

    def __init__(
        self,
        seed: int,
        topology: str = "",
        options: Options | None = None,
        settings: WorldSettings | None = None,
        job: Callable[[Random], AnyJob] | None = None,
        targeted_faults: Sequence[TargetedFault] | None = None,
        records_max: int | None = None,
        only_faults: Mapping[int, FaultRng] | None = None,
    ) -> None:
        """With ``targeted_faults``, no other faults are injected.

        ``records_max`` and ``only_faults`` make a world smaller: only these of the drawn faults are injected, each with
        the given state of its random stream.
        """
        self.seed, self.named = seed, {}
        self.is_validated = seed % VALIDATED_EVERY == 0
        rng = Random(seed)
        budget_rng = Random(f"budgets of {seed}")  # a separate stream: other draws do not depend on it
        self.settings = settings or replace(WorldSettings.draw(rng), disk=DiskEnvironment.draw(budget_rng))
        topology = topology or TOPOLOGIES[seed % len(TOPOLOGIES)]
        self.options = options or draw_separately(draw_budgets(draw_options(rng), budget_rng), seed, topology)
        depth = rng.choice((None, None, None, 1, 2)) if options is None else options.sharing_depth
        make = _MAKERS.get(topology, draw_job)
        records = rng.randint(30, 100) if job is None else 0
        self.job: AnyJob = job(rng) if job else make(topology, rng, min(records, records_max or records), depth)
        self.job.plan = with_replicas(self.job.plan, seed, self.options if options or job or depth else None)
        self.plan = draw_hot(self.job.plan, Random(f"hot standbys of {seed}")) if job is None else self.job.plan
        self.clock = Clockwork(rng.getrandbits(64))
        self.hub: Any = getcurrent()
        self.store: dict[str, tuple[bytes, ...]] = {}
        self.chain: dict[int, CheckpointMetadata] = {}
        self.store_term = 0  # highest term claimed
        self.slots: dict[SlotId, SimSlot] = {}
        self.externals = ExternalSystems(self.plan, kind_of(seed, None if job is None else self.job))
        self.committed: dict[int, list[Any]] = {}
        self.committed_up_to = self._domain_turn = 0
        self.network = Network(
            self.clock,
            self._deliver,
            self.settings.network_ns_max,
            self.settings.control_loss,
            self.settings.is_encoding,
        )
        self.oracle = Oracle(self)
        self.faults = Faults(self, rng, only_faults)
        if targeted_faults is not None:
            self.faults.targeted_faults, self.faults.count = list(targeted_faults), 0
        self.outcome = WorldOutcome(seed)
        self.crashes: list[BaseException] = []
        self.alarms: list[Alarm] = []  # of the coordinator
        self.warnings: list[tuple[str, dict[str, str | int]]] = []
        self.event_log: deque[str] = deque(maxlen=EVENT_LOG_LINES_MAX)
        self.ending: JobDone | JobFailed | None = None
        self._digest = blake2b(digest_size=8)
        needed = -(-len(self.plan.tasks) // self.settings.tasks_a_slot) + self.settings.spare_slots
        self.slots_needed = max(2, needed)  # one slot may be a keeper's
        self.names_slots = Random(f"named slots of {seed}").random() < 0.5  # whether a new coordinator knows them
        self.coordinator = SimCoordinator(self, 1)

    # ------------------------------------------------------------------ running

    def run(self) -> WorldOutcome:
        """Runs the job to its end, lets the oracle judge it, and checks that every process ends."""
        try:
            return self._run()
        finally:
            for slot in self.slots.values():
                slot.kill()
            self.externals.close()

    def _run(self) -> WorldOutcome:
        for _ in range(self.slots_needed):
            self.add_slot()
        self.coordinator.begin(self.slots_needed)
        self.faults.schedule()
        step, crashes = self.clock.step, self.crashes
        while self.ending is None and not crashes:
            step()
        if crashes:
            complaint = f"a task crashed: {crashes[0]!r}"
            raise WorldFailed(self.report(complaint), complaint) from crashes[0]
        if not self.expects_failure:
            self.oracle.judge()
        if self.survives_all and self.outcome.rollbacks:
            self.fail(f"{self.outcome.rollbacks} rollbacks, although all tasks or their logs were alive")
        self._see_processes_end()
        outcome = self.outcome
        outcome.digest = self._sum_up()
        outcome.delivered = self.network.delivered
        outcome.virtual_ms = self.clock.now_ns // MILLISECOND_NS
        return outcome

    def _see_processes_end(self) -> None:
        """Checks that every process ends once the job has, and that no chain stays open."""
        self.network.heal_all()
        self.network.loss = 0.0
        for slot in self.slots.values():
            slot.resume()
        until_ns = self.clock.now_ns + AFTERLIFE_NS_MAX
        while self.living() and self.clock.now_ns < until_ns:
            self.clock.step()
        last_ns = self.clock.now_ns
        while self.clock.now_ns == last_ns:  # threads that stop at this instant
            self.clock.step()
        left = [slot.id for slot in self.living()]
        if left or self.job.chains_open:
            self.fail(f"after the end slots {left} are left, and {self.job.chains_open} chains were never closed")

    def _sum_up(self) -> str:
        """Returns the digest of all events."""
        rows = [(task, external.rows, external.superseded) for task, external in self.externals.items()]
        ends = (self.clock.events_run, self.network.delivered, self.job.service.answers, rows, self.committed)
        self._digest.update(repr(ends).encode())
        return self._digest.hexdigest()

    def living(self) -> list[SimSlot]:
        """Returns the slots whose process runs."""
        return [slot for slot in self.slots.values() if not slot.is_dead]

    def slot_of(self, task: TaskId) -> SimSlot | None:
        """Returns the living slot to which the latest view assigns a task."""
        placements = self.oracle.view.placements
        slot = self.slot_at(placements[task].slot) if 0 <= task < len(placements) else None
        return slot if slot is not None and not slot.is_dead else None

    def slot_at(self, slot: SlotId | None) -> SimSlot | None:
        """Returns a slot by its id, dead or not; None for a task without a slot."""
        return None if slot is None else self.slots.get(slot)

    def add_slot(self) -> None:
        """Starts a slot in the next domain in turn, unless the job has ended."""
        if self.ending is not None:
            return
        slot_id = SlotId(self.clock.rng.getrandbits(62) + 1)
        self._domain_turn += 1
        slot = self.slots[slot_id] = SimSlot(self, slot_id, f"domain{self._domain_turn % self.settings.domains}")
        slot.register()
        self.clock.after(self.clock.between(0, 25 * MILLISECOND_NS), slot.tick)

    def end_slot(self, slot_id: SlotId) -> None:
        """Ends a process, as the provider does."""
        slot = self.slots.get(slot_id)
        if slot is not None and not slot.is_dead:
            self.oracle.dying([slot_id])
            slot.kill()

    def _deliver(self, sender: SlotId, receiver: SlotId, message: Message, payload: Any) -> None:
        if receiver == COORDINATOR:
            self.coordinator.handle(Received(sender, message, self.clock.now_ns))  # type: ignore[arg-type]
            return
        slot = self.slots.get(receiver)
        if slot is not None and not slot.is_dead:
            if type(message) is Batch:
                slot.run(self._deliver_batch, slot, sender, message, payload)
            else:
                slot.run(slot.handle, MessageReceived(sender, message, payload))
            self.oracle.delivered()

    def _deliver_batch(self, slot: SimSlot, sender: SlotId, batch: Batch, payload: Any) -> None:
        receiver = self.oracle.channels.receiver(slot, batch)
        before_seq = receiver.next_seq if receiver is not None else 0
        slot.handle(MessageReceived(sender, batch, payload))
        if receiver is not None and receiver.next_seq > before_seq:
            self.oracle.channels.took(batch, payload, before_seq)
            if not batch.kind.has_checkpoint:
                self.oracle.received()

    # ------------------------------------------------------------------ the coordinator

    def handle(self, event: Event) -> None:
        """Passes an event to the current coordinator."""
        self.coordinator.handle(event)

    def end(self, ending: JobDone | JobFailed) -> None:
        """Records the end of the job."""
        assert self.ending is None, (self.ending, ending)
        self.ending, self.ended_ns = ending, self.clock.now_ns

    def restart_coordinator(self, down_ms: int) -> None:
        """Kills the coordinator; after a while another one claims the next term."""
        if self.ending is None and self.coordinator.is_current and not self.coordinator.is_dead:
            self.note(f"coordinator {self.coordinator.term} dies")
            self.coordinator.is_dead = True
            self.clock.after(down_ms * MILLISECOND_NS, self.replace_coordinator, 0)

    def replace_coordinator(self, pause_ms: int) -> None:
        """Starts a coordinator that claims the next term; the earlier one, if alive, resumes after a pause."""
        self.coordinator.paused_until_ns = self.clock.now_ns + pause_ms * MILLISECOND_NS
        self.coordinator = SimCoordinator(self, self.store_term + 1)
        self.note(f"coordinator {self.coordinator.term} begins")
        for slot in self.living():
            self.network.break_connection(COORDINATOR, slot.id)
        self.coordinator.begin(self.slots_needed)

    def commit(self, checkpoint: int, parts: tuple[VertexParts, ...]) -> None:
        """Makes the output visible that transactional sinks have prepared for a checkpoint; may be repeated."""
        if checkpoint > self.committed_up_to:
            self.committed_up_to = checkpoint
            for entry in parts:
                for part in entry.parts:
                    self.committed.setdefault(entry.vertex, []).extend(decode_rows(part))

    def complaints(self) -> list[str]:
        """Returns what is wrong with the output of a job that has ended well."""
        return complaints_of(self)

    def fails_in_store(self) -> bool:
        """Draws whether an access to the store fails."""
        return self.ending is None and self.clock.rng.random() < self.settings.store_failure

    # ------------------------------------------------------------------ the event log

    def note(self, line: str) -> None:
        """Appends a line to the event log; it is part of the digest."""
        line = f"{self.clock.now_ns / MILLISECOND_NS:10.3f} {line}"
        self.event_log.append(line)
        self._digest.update(line.encode())

    def reach(self, point: FaultPoint | DerivedPoint, task: TaskId | None = None) -> bool:
        """Announces a named point of the protocol. Returns True when a fault may be injected at this instant."""
        if point not in self.faults.watched:
            return False
        self.faults.reached(PointReached(point, task))
        return True

    def is_unexpected(self, error: BaseException) -> bool:
        """Returns whether an error is a bug: neither raised on purpose nor the fault of the environment."""
        is_poison = isinstance(error, StepFailed) and isinstance(error.__cause__, Poisoned)
        return not is_poison and not isinstance(error, EnvironmentFault)

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
