"""A whole job in one thread under virtual time, from one seed: slots, coordinator, network, store, external systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.coordinator_events import Received
from clonos.core.model.errors import EnvironmentFault, ReplayDiverged
from clonos.core.model.ids import COORDINATOR, SlotId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.messages import Message
from clonos.io.process.fault_points import DerivedPoint, FaultPoint
from clonos_chaos.checks.oracle import Oracle
from clonos_chaos.checks.verdict import complaints_of
from clonos_chaos.jobs.aggregate_jobs import AggregateJob
from clonos_chaos.jobs.api_jobs import ApiJob
from clonos_chaos.jobs.columns.column_jobs import ColumnJob
from clonos_chaos.jobs.fuzz_chain import Poisoned
from clonos_chaos.jobs.fuzz_jobs import FUZZ_TOPOLOGIES, draw_job, with_replicas
from clonos_chaos.jobs.graphs.graph_jobs import GraphJob
from clonos_chaos.jobs.join_jobs import JoinedJob
from clonos_chaos.jobs.keyed_jobs import SCALABLE, KeyedJob, divided, steps_of_waiting_rows
from clonos_chaos.jobs.pushed_jobs import PushedJob
from clonos_chaos.jobs.timed_jobs import TimedJob
from clonos_chaos.jobs.transformed_jobs import TransformedJob
from clonos_chaos.jobs.window_jobs import WindowJob
from clonos_chaos.sim.environment import SimulatedJob, WorldFailed
from clonos_chaos.sim.network import Network
from clonos_chaos.sim.random_faults import FaultRng, Faults
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_coordinator import SimCoordinator
from clonos_chaos.sim.sim_resume import resume_at
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.sim_tables import kind_of
from clonos_chaos.sim.targeted_faults import PointReached, TargetedFault
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, SECOND_NS
from clonos_chaos.sim.world_settings import DiskEnvironment, WorldOutcome, WorldSettings
from clonos_chaos.swarm.random_options import draw_budgets, draw_hot, draw_options, draw_separately

TOPOLOGIES = (
    *(*FUZZ_TOPOLOGIES, "api", "pushed", "timed", "aggregates", "transformed", "joined", "windows", "graphs"),
    "columns",
)
"""Topologies; a seed without one takes them in turn."""

KEYED = "keyed"
"""Topology whose widths may change. Seeds without ``--rescale`` do not take it, so that they stay the same."""

_MAKERS: dict[str, Callable[[str, Random, int, int | None], SimulatedJob]] = {
    "api": ApiJob,
    "pushed": PushedJob,
    "timed": TimedJob,
    "aggregates": AggregateJob,
    "transformed": TransformedJob,
    "joined": JoinedJob,
    "windows": WindowJob,
    "graphs": GraphJob,
    "columns": ColumnJob,
    KEYED: KeyedJob,
}

AFTERLIFE_NS_MAX = 10 * SECOND_NS
"""Virtual time within which every process must end once the job has."""


VALIDATED_EVERY = 4
"""Worlds of every fourth seed assert the invariants of all machines after each event, which makes them 33 % slower."""


class World(SimCluster):
    """Simulated cluster with a job, made from a seed. ``run`` runs the job to its end."""

    expects_failure = survives_all = False  # where the job is to fail, the caller judges; no rollback may happen
    oracle: Oracle

    def __init__(
        self,
        seed: int,
        topology: str = "",
        options: Options | None = None,
        settings: WorldSettings | None = None,
        job: Callable[[Random], SimulatedJob] | None = None,
        targeted_faults: Sequence[TargetedFault] | None = None,
        records_max: int | None = None,
        only_faults: Mapping[int, FaultRng] | None = None,
    ) -> None:
        """With ``targeted_faults``, no other faults are injected.

        ``records_max`` and ``only_faults`` make a world smaller: only these of the drawn faults are injected, each with
        the given state of its random stream.
        """
        rng = Random(seed)
        budget_rng = Random(f"budgets of {seed}")  # a separate stream: other draws do not depend on it
        settings = settings or replace(WorldSettings.draw(rng), disk=DiskEnvironment.draw(budget_rng))
        topology = topology or TOPOLOGIES[seed % len(TOPOLOGIES)]
        drawn = options or draw_separately(draw_budgets(draw_options(rng), budget_rng), seed, topology)
        depth = rng.choice((None, None, None, 1, 2)) if options is None else options.sharing_depth
        make = _MAKERS.get(topology, draw_job)
        records = rng.randint(30, 100) if job is None else 0
        made = job(rng) if job else make(topology, rng, min(records, records_max or records), depth)
        made.plan = with_replicas(made.plan, seed, drawn if options or job or depth else None)
        plan = draw_hot(made.plan, Random(f"hot standbys of {seed}")) if job is None else made.plan
        kind = kind_of(seed, None if job is None else made)
        super().__init__(seed, made, plan, drawn, settings, rng.getrandbits(64), kind)
        self.is_validated = seed % VALIDATED_EVERY == 0
        self.slots, self.fault_rng = {}, rng
        self.scalable = SCALABLE if isinstance(made, KeyedJob) else ()
        self.network = Network(
            self.clock, self._deliver, settings.network_ns_max, settings.control_loss, settings.is_encoding
        )
        self.oracle = Oracle(self)
        self.faults = Faults(self, only_faults)
        if targeted_faults is not None:
            self.faults.targeted_faults, self.faults.count = list(targeted_faults), 0
        self.names_slots = Random(f"named slots of {seed}").random() < 0.5
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
            self.oracle.judge(self.complaints)
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
        rows = [(each.task_name, each.rows, each.superseded) for each in self.externals.every]
        ends = (self.clock.events_run, self.network.delivered, self.job.service.answers, rows, self.committed)
        self._digest.update(repr(ends).encode())
        return self._digest.hexdigest()

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

    def divided(self, metadata: CheckpointMetadata, term: int) -> CheckpointMetadata:
        before = self._plan_of(metadata)
        plan = self.declared.with_widths(dict(metadata.widths))
        is_same = not metadata.is_cut or plan == before
        return metadata if is_same else divided(metadata, before, plan, self.store, term)

    def resume_at(self, widths: Mapping[str, int], term: int) -> None:
        resumed = self.chain[max(self.chain)]
        before = self._plan_of(resumed)
        fixed = steps_of_waiting_rows(resumed, before, self.store)
        now = {vertex.name: vertex.parallelism for vertex in before.vertices if vertex.name in fixed}
        resume_at(self, resumed, before, self.declared.with_widths({**widths, **now}), term, divided)

    def _plan_of(self, metadata: CheckpointMetadata) -> Plan:
        """Returns the plan with the widths of a checkpoint."""
        return self.declared.with_widths({vertex.name: vertex.parallelism for vertex in metadata.plan.vertices})

    def complaints(self) -> list[str]:
        """Returns what is wrong with the output of a job that has ended well."""
        return complaints_of(self, self.oracle)

    def reach(self, point: FaultPoint | DerivedPoint, task: TaskId | None = None) -> bool:
        if point not in self.faults.watched:
            return False
        self.faults.reached(PointReached(point, task))
        return True

    def begin(self) -> None:
        self.faults.first_view()

    def is_unexpected(self, error: BaseException) -> bool:
        is_poison = isinstance(error, StepFailed) and isinstance(error.__cause__, Poisoned)
        is_divergence = self.expects_divergence and isinstance(error, ReplayDiverged)
        return not is_poison and not is_divergence and not isinstance(error, EnvironmentFault)
