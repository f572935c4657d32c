"""A job on slot processes with the real driver, for tests of processes, sockets and stores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from clonos.api.graph import JobGraph
from clonos.core.checkpoint.checkpoint_metadata import decode_metadata
from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import JobDone, JobFailed, Milestone, RecoveryEvent, StoodDown
from clonos.core.coordinator.coordinator_events import Begin
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.model.options import Options
from clonos.io.local.local_folder import LocalFolder
from clonos.io.net.listening import Binding
from clonos.io.net.transport import AddressRewriter
from clonos.io.process.pickling import pack
from clonos.io.process.processes import ProcessSlots
from clonos.io.store.store import CheckpointStore
from clonos.job.continuing.width_change import divided_cut
from clonos.operators.connector_contract import TransactionalSink
from clonos_standby.driver.driver import Driver, DriverPlan, Progress
from clonos_standby.launch_spec import SlotLaunchSpec, versions
from clonos_standby.slot.host import run_slot
from tests.speed import scaled

LIMIT_S = scaled(40.0)
WARM_MODULES = (run_slot.__module__, "clonos.connectors", "clonos.api")


class RecordingSlots(ProcessSlots):
    """A provider that keeps the launch specification of each slot it starts."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.launch_specs: list[SlotLaunchSpec] = []
        super().__init__(*arguments, **options)

    def order(self, launch_spec: bytes, avoid_domains: Collection[str] = ()) -> int:
        self.launch_specs.append(cloudpickle.loads(launch_spec).args[0])
        return super().order(launch_spec, avoid_domains)


@dataclass
class RunningJob:
    """A job that has begun. ``progress`` has everything that the driver told."""

    driver: Driver
    provider: RecordingSlots
    folder: Path
    progress: list[Progress] = field(default_factory=list)
    _reported: threading.Condition = field(default_factory=threading.Condition)

    def on_progress(self, progress: Progress) -> None:
        """Called in the coordinator's thread."""
        with self._reported:
            self.progress.append(progress)
            self._reported.notify_all()

    def end(self) -> JobDone | JobFailed | StoodDown:
        """Waits for the end."""
        return self.driver.result.result(timeout=LIMIT_S)

    def wait_for(self, condition: Callable[[Coordinator], bool]) -> None:
        """Waits until the coordinator looks so; it is asked again whenever its machine may have moved."""
        moved = threading.Event()
        for _ in range(int(LIMIT_S * 100)):
            if self.driver.ask(condition):
                return
            assert not self.driver.result.done(), self.driver.result
            moved.wait(0.01)
        raise AssertionError([*self.progress, self.driver.ask(lambda coordinator: coordinator.phases)])

    def wait_until_reached(self, milestone: Milestone, count: int = 1) -> None:
        """Waits until ``count`` recoveries have reached a milestone."""
        with self._reported:
            assert self._reported.wait_for(lambda: self.count_reached(milestone) >= count, LIMIT_S), self.progress

    def count_reached(self, milestone: Milestone) -> int:
        return sum(isinstance(event, RecoveryEvent) and event.milestone is milestone for event in self.progress)

    def slot_of(self, task: int) -> SlotId:
        """Slot in which a task lives."""

        def find(coordinator: Coordinator) -> SlotId:
            assert coordinator.view is not None
            return coordinator.view.placements[task].hosting_slot

        return self.driver.ask(find)

    def pid_of(self, task: int) -> int:
        """Process of the slot in which a task lives."""

        def find(coordinator: Coordinator) -> int:
            assert coordinator.view is not None
            slot = coordinator.view.placements[task].slot
            pids = [register.pid for register in coordinator.slots if register.slot == slot]
            assert pids, f"the slot of task {task} is gone: {coordinator.recoveries}"  # 0 would be this process's group
            return pids[0]

        return self.driver.ask(find)

    @property
    def generation(self) -> int:
        """1 until the job is rolled back, then the number of the view that did it."""
        return self.driver.ask(lambda coordinator: coordinator.generation & 0xFFFFFFFF)

    def incarnations(self) -> dict[TaskId, int]:
        """Incarnations of all tasks in the current view."""

        def find(coordinator: Coordinator) -> dict[TaskId, int]:
            view = coordinator.view
            return {} if view is None else {placement.task: placement.incarnation for placement in view.placements}

        return self.driver.ask(find)


@contextmanager
def running(
    graph: JobGraph,
    folder: Path,
    options: Options | None = None,
    parallelism: int = 1,
    *,
    tcp: bool = False,
    store: str = "",
    resume: bool = False,
    domains: int = 0,
    slots_needed: int = 0,
    rewriter: AddressRewriter | None = None,
    fault_points: str = "",
    slot_trace: str = "",
) -> Iterator[RunningJob]:
    """Begins a job; at the end of the block all its processes are gone."""
    options = options or Options(checkpoint_every_ms=200)
    os.chmod(folder, 0o700)
    store_url = store or str(folder / "store")
    opened = CheckpointStore(store_url)
    found = opened.read_job() if resume else None  # the splits of the first start stay
    image = graph.compile(options, parallelism=parallelism, splits=None if found is None else found.splits)
    record = opened.open_job(graph.name, resume=resume, splits={n: tuple(s) for n, s in image.splits.items()})
    for sink in image.sinks.values():
        if isinstance(sink, TransactionalSink):
            sink.prepare_output(record.job_id, resume, False)
    metadata = decode_metadata(opened.checkpoint_metadata(), "chain") if resume else None
    local = LocalFolder(folder, "driver-00000000000d")
    jobs: list[RunningJob] = []
    providers: list[RecordingSlots] = []

    def provide(listener: Callable[..., None]) -> RecordingSlots:
        providers.append(RecordingSlots(listener, record.hash_seed, domains=domains, warm_modules=WARM_MODULES))
        return providers[-1]

    binding = Binding() if tcp else Binding(folder="ipc")
    reach = "", b"", "", pack(image), store_url, binding, str(folder), rewriter
    launch_spec = SlotLaunchSpec(*reach, fault_points=fault_points, slot_trace=slot_trace)
    plan = DriverPlan(
        image=image,
        begin=Begin(opened.term, record.job_id, slots_needed, metadata, versions(record.hash_seed), can_spread=False),
        store=opened,
        launch_spec=launch_spec,
        binding=Binding() if tcp else Binding(folder=str(local.path)),
        provider=provide,
        listener=lambda progress: jobs[0].on_progress(progress),
        divide=partial(divided_cut, opened, image),
    )
    driver = Driver(plan)
    jobs.append(RunningJob(driver, providers[0], folder))
    try:
        driver.start()
        yield jobs[0]
    finally:
        driver.close()
        local.close()
