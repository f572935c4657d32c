"""Connections of a simulated slot to producers, with the slot's end of each."""

from __future__ import annotations

from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.slot.slot_events import ProducerDataRead, ProducerFailed
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.sim.producers import SimProducer
from clonos_chaos.sim.sim_process import SimProcess


class SimulatedProducerConnection:
    """Connection from a slot to a producer. Data in flight when it ends is lost."""

    def __init__(self, host: SimProcess, task: TaskId, incarnation: Incarnation) -> None:
        self.host, self.task, self.incarnation = host, task, incarnation
        self.clock = host.clock
        self.is_open = True
        self.is_held = False
        self._due_ns = 0

    @property
    def is_live(self) -> bool:
        """Whether it is open and its process runs."""
        return self.is_open and not self.host.is_dead

    @property
    def is_wanted(self) -> bool:
        """Whether it is live and the latest view has its incarnation."""
        return self.is_live and self.host.world.view.placements[self.task].incarnation == self.incarnation

    def deliver(self, data: bytes) -> None:
        """Delivers data after a short delay, in order."""
        clock = self.clock
        self._due_ns = max(self._due_ns, clock.now_ns + clock.between(10_000, self.host.world.settings.external_ns_max))
        clock.at(self._due_ns, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.is_open:
            self.host.run(self._hand_over, data)

    def _hand_over(self, data: bytes) -> None:
        self.host.handle(ProducerDataRead(self.task, self.incarnation, data))
        self.host.world.reach(FaultPoint.TAKEN_IN, self.task)

    def fail(self, error: str) -> None:
        """Breaks the connection; both ends see it."""
        if self.is_open:
            self.is_open = False
            self.host.run(self.host.handle, ProducerFailed(self.task, self.incarnation, error))


class SimProducerConnections:
    """Producer connections of a simulated slot."""

    def __init__(self, host: SimProcess) -> None:
        self.host = host
        self._connections: dict[tuple[TaskId, Incarnation], SimulatedProducerConnection] = {}

    def _producer(self, task: TaskId) -> SimProducer:
        return self.host.world.job.producers[task]

    def open(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        opened = self._connections[task, incarnation] = SimulatedProducerConnection(self.host, task, incarnation)
        self._producer(task).connect(opened, offset_bytes)

    def hold(self, task: TaskId, incarnation: Incarnation, held: bool) -> None:
        self._connections[task, incarnation].is_held = held

    def acknowledge(self, task: TaskId, incarnation: Incarnation, offset_bytes: int) -> None:
        connection = self._connections.get((task, incarnation))
        if connection is not None and connection is self._producer(task).connection and connection.is_open:
            self._producer(task).acknowledge(offset_bytes)
            self.host.world.reach(FaultPoint.ACKNOWLEDGED, task)

    def close(self, task: TaskId, incarnation: Incarnation) -> None:
        connection = self._connections.pop((task, incarnation), None)
        if connection is not None:
            connection.is_open = False
