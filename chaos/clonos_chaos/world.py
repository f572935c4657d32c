"""A whole job in one thread under virtual time, from one seed: slots, coordinator, network, store, outsides, user code."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any

from greenlet import getcurrent

from clonos.core import coordination as c
from clonos.core import messages as m
from clonos.core.coordinator import Coordinator
from clonos.core.errors import EnvironmentFault
from clonos.core.ids import COORDINATOR, SlotId, TaskId
from clonos.core.metadata import CheckpointMetadata
from clonos.core.options import Options
from clonos_chaos.api_jobs import ApiJob
from clonos_chaos.clockwork import MILLISECOND_NS, SECOND_NS, Clockwork
from clonos_chaos.faults import Faults
from clonos_chaos.fuzz_jobs import FUZZ_TOPOLOGIES, FuzzJob
from clonos_chaos.network import DELAYS_NS, Network
from clonos_chaos.oracle import Oracle
from clonos_chaos.outsides import SimOutside
from clonos_chaos.sim_slot import SimSlot

STORY_LINES_MAX = 400
VIRTUAL_SECONDS_MAX = 600

TOPOLOGIES = (*FUZZ_TOPOLOGIES, "api")
"""A seed without a topology takes the one whose turn it is."""


class WorldFailed(Exception):
    """An oracle has found something; the message tells the seed, what, and the story."""


@dataclass(frozen=True)
class Settings:
    """The weather of a world. ``draw`` takes it from luck."""

    step_ns_max: int = 2 * MILLISECOND_NS
    call_ns_max: int = 5 * MILLISECOND_NS
    store_ns_max: int = 20 * MILLISECOND_NS
    outside_ns_max: int = 5 * MILLISECOND_NS
    store_failure: float = 0.0
    spill_ns_max: int = 5 * MILLISECOND_NS
    spill_failure: float = 0.0
    network_ns_max: int = 2 * MILLISECOND_NS
    control_loss: float = 0.0
    is_encoding: bool = False
    fresh_slot_ns_max: int = SECOND_NS
    domains: int = 3
    spare_slots: int = 1

    @staticmethod
    def draw(luck: Random) -> Settings:
        """Random weather."""
        return Settings(
            step_ns_max=luck.choice((MILLISECOND_NS // 5, 2 * MILLISECOND_NS, 10 * MILLISECOND_NS)),
            store_ns_max=luck.choice((MILLISECOND_NS, 20 * MILLISECOND_NS, 200 * MILLISECOND_NS)),
            outside_ns_max=luck.choice((MILLISECOND_NS, 30 * MILLISECOND_NS)),
            store_failure=luck.choice((0.0, 0.0, 0.1)),
            network_ns_max=luck.choice(DELAYS_NS),
            control_loss=luck.choice((0.0, 0.0, 0.02, 0.2)),
            is_encoding=luck.random() < 0.2,
            domains=luck.choice((2, 3, 20)),
            spare_slots=luck.choice((0, 1, 2)),
        )


@dataclass
class Outcome:
    """What a world came to."""

    seed: int
    digest: str = ""
    delivered: int = 0
    views: int = 0
    rollbacks: int = 0
    checkpoints: int = 0
    virtual_ms: int = 0
    reached: dict[str, int] = field(default_factory=dict)


def draw_options(luck: Random) -> Options:
    """Random options of the job."""
    return Options(
        heartbeat_ms=luck.choice((20, 100)),
        lease_ms=luck.choice((500, 2_000)),
        checkpoint_every_ms=luck.choice((30, 100, 300)),
        standbys=luck.choice((0, 1, 1, 1, 2)),
        step_records_max=luck.choice((1, 3, 8, 64)),
        step_records_first=luck.choice((1, 3, 8)),
        credit_window_bytes=luck.choice((1, 500, 1 << 20)),
        channel_backlog_bytes=luck.choice((100, 1 << 20)),
        snapshot_chain_max=luck.choice((1, 3, 16)),
        failures_per_epoch_max=1_000,
        clock_tick_ms=luck.choice((0, 0, 0, 5)),
    )


class World:
    """Everything, made from a seed. ``run`` to its end."""

    def __init__(
        self, seed: int, topology: str = "", options: Options | None = None, settings: Settings | None = None
    ) -> None:
        self.seed = seed
        luck = Random(seed)
        self.settings = settings or Settings.draw(luck)
        self.options = options or draw_options(luck)
        depth = luck.choice((None, None, None, 1, 2)) if options is None else options.sharing_depth
        topology = topology or TOPOLOGIES[seed % len(TOPOLOGIES)]
        make = ApiJob if topology == "api" else FuzzJob
        self.job = make(topology, luck, luck.randint(30, 100), depth)
        self.plan = self.job.plan
        self.clock = Clockwork(luck.getrandbits(64))
        self.hub: Any = getcurrent()
        self.store: dict[str, bytes] = {}
        self.chain: dict[int, CheckpointMetadata] = {}
        self.slots: dict[SlotId, SimSlot] = {}
        self.outsides = {
            task: SimOutside(self.plan.task_name(task))
            for task in self.plan.tasks
            if any(channel.receiver < 0 for channel in self.plan.outputs[task])
        }
        self.committed: dict[int, list[Any]] = {}
        self.committed_up_to = 0
        self.network = Network(
            self.clock, self._deliver, self.settings.network_ns_max, self.settings.control_loss, self.settings.is_encoding
        )
        self.oracle = Oracle(self)
        self.faults = Faults(self, luck)
        self.outcome = Outcome(seed)
        self.crashes: list[BaseException] = []
        self.warnings: list[str] = []
        self.story: deque[str] = deque(maxlen=STORY_LINES_MAX)
        self.ending: c.JobDone | c.JobFailed | None = None
        self._digest = blake2b(digest_size=8)
        self.coordinator = Coordinator(self.plan, self.options)
        self._domain_turn = 0

    # ------------------------------------------------------------------ running

    def run(self) -> Outcome:
        """Runs the job to its end and lets the oracle look at it."""
        needed = len(self.plan.tasks) + self.settings.spare_slots
        for _ in range(needed):
            self.add_slot()
        self.handle(c.Begin(term=1, job_id="fuzz", slots_needed=needed))
        self._tick()
        self.faults.schedule()
        while self.ending is None and not self.crashes:
            if not self.clock.step() or self.clock.now_ns > VIRTUAL_SECONDS_MAX * SECOND_NS:
                self.fail(f"stuck after {self.clock.now_ns / SECOND_NS:.1f} virtual seconds")
        if self.crashes:
            raise WorldFailed(self.tell(f"a task crashed: {self.crashes[0]!r}")) from self.crashes[0]
        self.oracle.judge()
        for slot in self.slots.values():
            slot.kill()
        outcome = self.outcome
        outcome.digest = self._digest.hexdigest()
        outcome.delivered = self.network.delivered
        outcome.virtual_ms = self.clock.now_ns // MILLISECOND_NS
        return outcome

    def add_slot(self) -> None:
        """A fresh slot is born in the domain whose turn it is."""
        slot_id = SlotId(self.clock.luck.getrandbits(62) + 1)
        self._domain_turn += 1
        slot = self.slots[slot_id] = SimSlot(self, slot_id, f"domain{self._domain_turn % self.settings.domains}")
        slot.register()
        self.clock.after(self.clock.between(0, 25 * MILLISECOND_NS), slot.tick)

    def _deliver(self, sender: SlotId, receiver: SlotId, message: m.Message, payload: Any) -> None:
        if receiver == COORDINATOR:
            self.handle(c.Received(sender, message, self.clock.now_ns))  # type: ignore[arg-type]
            return
        slot = self.slots.get(receiver)
        if slot is not None and not slot.is_dead:
            slot.run(slot.slot.on_message, sender, message, payload)

    def _tick(self) -> None:
        self.handle(c.Ticked(self.clock.now_ns))
        self.clock.after(self.options.heartbeat_ms * MILLISECOND_NS // 2, self._tick)

    # ------------------------------------------------------------------ the coordinator's shell

    def handle(self, event: c.Event) -> None:
        """One event of the coordinator and what it asks for."""
        if self.ending is not None:
            return
        for effect in self.coordinator.handle(event):
            self._perform(effect)

    def _perform(self, effect: c.Effect) -> None:
        match effect:
            case c.Send(slot, message):
                self._note_sent(slot, message)
                self.network.send(COORDINATOR, slot, message, b"")
            case c.RequestSlots(count):
                for _ in range(count):
                    self.clock.after(self.clock.between(MILLISECOND_NS, self.settings.fresh_slot_ns_max), self.add_slot)
            case c.ReleaseSlot(slot, reason):
                self.note(f"release {slot}: {reason}")
                if slot in self.slots:
                    self.slots[slot].kill()
            case c.WriteMetadata(metadata):
                self.reach("metadata", TaskId(-1))
                self.clock.after(self.clock.between(100_000, self.settings.store_ns_max), self._write_metadata, metadata)
            case c.CommitOutput(checkpoint, parts):
                self.clock.after(self.clock.between(100_000, self.settings.store_ns_max), self._commit, checkpoint, parts)
            case c.DeleteObjects(names):
                for name in names:
                    self.store.pop(name, None)
            case c.JobDone() | c.JobFailed():
                self.note(f"{effect}")
                self.ending = effect
            case c.Told(milestone, _, task, incarnation, cause):
                self.note(f"{milestone} task {task} incarnation {incarnation:x} {cause}")
            case _:
                self.note(f"{effect}")

    def _note_sent(self, slot: SlotId, message: m.Message) -> None:
        if isinstance(message, m.View) and message.number > self.oracle.view.number:
            self.note(f"view {message.number:x} generation {message.generation}")
            self.oracle.viewed(message)
            self.reach("view", TaskId(-1))

    def _write_metadata(self, metadata: CheckpointMetadata) -> None:
        luck = self.clock.luck
        if luck.random() < self.settings.store_failure:
            if luck.random() < 0.5:
                self.chain[metadata.checkpoint] = metadata  # it is there, but nobody was told
            self.handle(c.MetadataWritten(metadata.checkpoint, c.WriteOutcome.FAILED, "the simulated store failed"))
            return
        self.chain[metadata.checkpoint] = metadata
        self.outcome.checkpoints += 1
        self.note(f"checkpoint {metadata.checkpoint} is complete")
        self.handle(c.MetadataWritten(metadata.checkpoint, c.WriteOutcome.DURABLE, now_ns=self.clock.now_ns))

    def _commit(self, checkpoint: int, parts: Any) -> None:
        from clonos.core.values import decode_rows

        if checkpoint > self.committed_up_to:
            self.committed_up_to = checkpoint
            for entry in parts:
                for part in entry.parts:
                    self.committed.setdefault(entry.vertex, []).extend(decode_rows(part))
        self.handle(c.OutputCommitted(checkpoint, self.clock.now_ns))  # type: ignore[arg-type]

    # ------------------------------------------------------------------ the story

    def note(self, line: str) -> None:
        """A line of the story; part of the digest."""
        line = f"{self.clock.now_ns / MILLISECOND_NS:10.3f} {line}"
        self.story.append(line)
        self._digest.update(line.encode())

    def reach(self, point: str, task: TaskId) -> None:
        """A named point of the protocol has been reached: aimed faults strike."""
        self.faults.reached(point, task)

    def is_unexpected(self, error: BaseException) -> bool:
        """Fuzz jobs never raise: what raises is a bug, unless the environment is at fault."""
        return not isinstance(error, EnvironmentFault)

    def fail(self, complaint: str) -> None:
        """Ends the world with a complaint."""
        raise WorldFailed(self.tell(complaint))

    def tell(self, complaint: str) -> str:
        """Seed, job, complaint, and the end of the story."""
        head = f"seed {self.seed} ({self.job.name}): {complaint}\n{self.options}\n{self.settings}\n{self.plan.vertices}"
        return head + "\n" + "\n".join(list(self.story)[-60:])
