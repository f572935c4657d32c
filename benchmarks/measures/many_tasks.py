"""Benchmark: a job of 2,000 tasks in the simulated world, beside jobs of 128 and 512.

Four stages, connected one to one, with one replica of each log: a task has the same neighbours and the same work for
each number of tasks, so what grows is due to the size of the job; ``growth`` has exchanges of all to all. One task in
the middle is killed. Messages and bytes are counted; processor time and memory are those of one process that runs all
slots, the coordinator, and the world itself. Each number of tasks has a process of its own, because memory does not
shrink.
"""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.measures.growth import SETTINGS
from clonos.core.checkpoint.checkpoint_metadata import encode_metadata
from clonos.core.coordinator.coordinator_effects import Effect, Milestone
from clonos.core.coordinator.coordinator_events import Event
from clonos.core.model.options import Options
from clonos.core.model.plan import Partitioning
from clonos.core.wire.channel_messages import Batch, Position
from clonos.core.wire.control_messages import Completed, SlotStatus, View
from clonos.core.wire.message_codec import encode_message
from clonos.core.wire.messages import Message
from clonos_chaos.jobs.fuzz_chain import Work
from clonos_chaos.jobs.fuzz_jobs import FuzzJob
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.swarm.world import World

TASKS: Final = (128, 512, 2_000)
TASKS_QUICK: Final = (32, 128)
STAGES: Final = 4
RECORDS_A_SOURCE: Final = 300
SEED: Final = 11
KILL_NS: Final = 100 * MILLISECOND_NS
SIZED: Final = (View, SlotStatus, Completed)
OF_FAILOVER: Final = frozenset({"View", "LogRequest", "LogReply", "ChannelHandshake", "Suspicion", "Register"})
"""Messages that a job does not send otherwise."""


@dataclass
class Measured:
    """Figures of a world of ``tasks`` tasks. ``sizes``: the largest message of each kind, in bytes."""

    tasks: int
    processor_s: float = 0.0
    coordinator_s: float = 0.0
    virtual_s: float = 0.0
    memory_bytes: int = 0
    delta_bytes: int = 0
    records: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    killed_ns: int = 0
    replayed_ns: int = 0
    failover_messages: dict[str, int] = field(default_factory=dict)

    def figures(self) -> dict[str, tuple[float, str]]:
        """Returns the figures with their units."""
        virtual_s = max(self.virtual_s, 1e-9)
        found = {
            "processor of all": (self.processor_s / virtual_s / self.tasks * 1e3, "ms a task and virtual second"),
            "processor of the coordinator": (
                self.coordinator_s / virtual_s / self.tasks * 1e3,
                "ms a task and virtual second",
            ),
            "memory": (self.memory_bytes / self.tasks / 1e3, "kB a task"),
            "determinants sent": (self.delta_bytes / self.records / STAGES, "bytes a record and task"),
            "views of a failover": (self.failover_messages.get("View", 0), ""),
            "other messages of a failover": (
                sum(self.failover_messages.values()) - self.failover_messages.get("View", 0),
                "",
            ),
            "failover": ((self.replayed_ns - self.killed_ns) / 1e6, "virtual ms"),
        }
        return {**found, **{f"largest {name}": (size, "bytes") for name, size in sorted(self.sizes.items())}}


def run(session: Session) -> None:
    """Measures each number of tasks in a process, and draws the figures."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for tasks in TASKS_QUICK if session.is_quick else TASKS:
        session.progress(f"{tasks} tasks")
        command = [sys.executable, "-m", __name__, str(tasks)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        measured = msgspec.json.decode(done.stdout, type=Measured)
        for what, (value, unit) in measured.figures().items():
            session.figure(f"{tasks} tasks: {what}", value, unit)
            if what != "largest SlotStatus":  # ten curves have colours of their own
                curves.setdefault(f"{what}, {unit}" if unit else what, []).append((tasks, value))
    labels = ("tasks of the job", "as the legend says")
    file = Path(session.results) / "many-tasks.png"
    plots.lines(file, curves, "what grows with the tasks of a job", labels, is_logarithmic=True)


def measure(tasks: int) -> Measured:
    """Runs a world with this number of tasks, whose oracle checks the output."""
    width = tasks // STAGES
    options = Options(checkpoint_every_ms=50, replicas=1, step_records_max=16, step_records_first=16, standbys=1)

    def build(job: FuzzJob) -> None:
        vertices = [job.add(f"stage{number}", Work(ports=(0,)), width) for number in range(STAGES - 1)]
        vertices.append(job.add_sink(Work(is_sink=True), width))
        for giver, taker in itertools.pairwise(vertices):
            job.connect(giver, taker, Partitioning.FORWARD)

    measured = Measured(STAGES * width)
    before_bytes = _resident_bytes()
    world = World(
        SEED,
        options=options,
        settings=SETTINGS,
        job=lambda rng: FuzzJob("many", rng, RECORDS_A_SOURCE * width, None, build),
        targeted_faults=(),
    )
    measured.records = len(world.job.expected())
    _listen(world, measured)
    world.clock.after(KILL_NS, _kill, world, measured)
    begun_s = time.process_time()
    outcome = world.run()
    measured.processor_s = time.process_time() - begun_s
    measured.virtual_s = outcome.virtual_ms / 1e3
    measured.memory_bytes = _resident_bytes() - before_bytes
    metadata = [*world.chain.values()][-1]
    measured.sizes["checkpoint metadata"] = len(encode_metadata(metadata))
    return measured


def _listen(world: World, measured: Measured) -> None:
    machine = world.coordinator.machine
    send, handle = world.network.send, machine.handle
    seen = Counter[int]()  # by identity: a view goes to all slots

    def counting(sender: int, receiver: int, message: Message, payload: Any) -> None:
        name = type(message).__name__
        if isinstance(message, Batch | Position):
            measured.delta_bytes += sum(len(delta.data) for delta in message.deltas)
        elif isinstance(message, SIZED) and not seen[id(message)]:
            seen[id(message)] += not isinstance(message, SlotStatus)
            measured.sizes[name] = max(measured.sizes.get(name, 0), len(encode_message(message)))
        if measured.killed_ns and not measured.replayed_ns:
            if name in OF_FAILOVER:
                measured.failover_messages[name] = measured.failover_messages.get(name, 0) + 1
            recoveries = world.coordinator.machine.recoveries
            if recoveries and all(Milestone.REPLAYED in dict(one.reached) for one in recoveries):
                measured.replayed_ns = world.clock.now_ns
        send(sender, receiver, message, payload)  # type: ignore[arg-type]

    def handling(*events: Event) -> tuple[Effect, ...]:
        begun_ns = time.perf_counter_ns()
        effects = handle(*events)
        measured.coordinator_s += (time.perf_counter_ns() - begun_ns) / 1e9
        return effects

    world.network.send = counting  # type: ignore[method-assign]
    machine.handle = handling  # type: ignore[method-assign]


def _kill(world: World, measured: Measured) -> None:
    victim = world.slot_of(next(task for task in world.plan.tasks if world.plan.task_name(task) == "stage1/0"))
    assert victim is not None, "it lives when it is killed"
    measured.killed_ns = world.clock.now_ns
    world.kill_together([victim])


def _resident_bytes() -> int:
    """Returns the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    print(msgspec.json.encode(measure(int(sys.argv[1]))).decode())
