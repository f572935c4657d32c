"""Start of a hot standby's shadow: the sessions that it requests, heartbeat by heartbeat."""

from __future__ import annotations

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, Incarnation, SlotId, TaskId, log_of
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.ports.slot_effects import ReadSnapshots, SendMessage
from clonos.core.slot.slot import Slot
from clonos.core.slot.slot_events import Event, HeartbeatDue, MessageReceived
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.replication_messages import StandbyUpdate
from clonos.core.wire.shadow_messages import FeedAck, FeedShadow
from tests.harnesses.recording_shell import RecordingShell
from tests.harnesses.sample_plans import number, placement, view

TASK, LEADER, HERE = TaskId(1), SlotId(3), SlotId(2)
LIFE = Incarnation(number(1))


class Shell(RecordingShell):
    """``asked``: what went to the task's slot."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.asked: list[FeedAck] = []
        self.read: list[tuple[str, ...]] = []

    def send(self, asked: SendMessage) -> None:
        if isinstance(asked.message, FeedAck):
            assert asked.slot == LEADER
            self.asked.append(asked.message)

    def read_snapshots(self, asked: ReadSnapshots) -> None:
        self.read.append(asked.names)


class Standby:
    """A slot with the hot standby of ``b`` in ``a -> b``; the test speaks for the slot of the task."""

    def __init__(self) -> None:
        vertices = (Vertex("a", 1, is_source=True), Vertex("b", 1, is_hot=True))
        plan = Plan("hot", vertices, (Edge(0, 1, Partitioning.FORWARD, 0),))
        self.shell = Shell(plan)
        self.slot = Slot(HERE, plan, Options(), self.shell.new_mirror)
        placements = [placement(0, LIFE, 1), placement(TASK, LIFE, LEADER, standbys=(HERE,))]
        self.post(MessageReceived(COORDINATOR, view(1, placements, slots=(1, 2, 3))))

    def post(self, event: Event) -> None:
        """An event, and all that it leads to."""
        self.shell.perform(self.slot.step(event))

    def tick(self) -> int:
        """The session that it asks for at a heartbeat."""
        self.shell.now += 100_000_000
        self.shell.asked.clear()
        self.post(HeartbeatDue(self.shell.now))
        (asked,) = self.shell.asked
        return asked.session

    def stored(self, checkpoint: int) -> None:
        """The task's snapshot is stored; nothing of it comes along."""
        names = tuple(f"object-{n}" for n in range(1, checkpoint + 1))
        update = StandbyUpdate(TASK, LIFE, CheckpointId(checkpoint), CheckpointId(checkpoint - 1), names)
        self.post(MessageReceived(LEADER, update, b""))

    def begins(self, session: int, base: int) -> None:
        """The task's slot begins the session at a barrier."""
        log = Delta(log_of(TASK), 0, True, b"")
        head = TASK, LIFE, session, 0, CheckpointId(base)
        self.post(
            MessageReceived(LEADER, FeedShadow(*head, ChannelId(0), 0, ElementKind.ROWS, 0, 0, CheckpointId(0), (log,)))
        )


def test_a_shadow_session_that_has_not_begun_is_requested_repeatedly() -> None:
    standby = Standby()
    session = standby.tick()
    for checkpoint in (1, 2, 3):
        standby.stored(checkpoint)
        assert standby.tick() == session
    assert standby.shell.read == []


def test_a_shadow_reads_the_state_at_its_start_barrier_when_it_is_stored() -> None:
    standby = Standby()
    standby.begins(standby.tick(), base=2)
    standby.stored(1)
    assert standby.shell.read == []
    standby.stored(2)
    assert standby.shell.read == [("object-1", "object-2")]


def test_a_shadow_requests_a_new_session_when_the_snapshot_of_its_barrier_was_never_stored() -> None:
    standby = Standby()
    session = standby.tick()
    standby.begins(session, base=2)
    standby.stored(1)
    assert standby.tick() == session  # it may still come
    standby.stored(3)
    assert standby.tick() > session
