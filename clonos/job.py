"""Job and run: from a graph to running slots, and from the end of the driver to a result.

``Job.start`` opens the store, compiles the plan, prepares the sinks, and hands all to the driver's coordinator thread;
``Handle`` waits, stops and tells. Everything that can be refused is refused before the first slot is born.
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from clonos.api.graph import AnySink, JobGraph
from clonos.config import Settings, SlotKind, settle
from clonos.core import coordination as c
from clonos.core.coordinator import Coordinator
from clonos.core.errors import EnvironmentFault, InternalError, JobError
from clonos.core.metadata import CheckpointMetadata, decode_metadata
from clonos.io.binding import Binding
from clonos.io.local_folder import LocalFolder, default_root
from clonos.io.processes import ProcessSlots
from clonos.io.providers import Listener, SlotProvider
from clonos.io.shipping import pack
from clonos.io.store import CheckpointStore
from clonos.metrics import MetricsFile
from clonos.operators.connect import TransactionalSink
from clonos.operators.image import JobImage
from clonos.status import Phase, RecoveryState, Status, TaskState
from clonos_standby.birth import SlotBirth, versions
from clonos_standby.driver import Driver, DriverPlan, JobEnd, Progress
from clonos_standby.host import run_slot

if TYPE_CHECKING:
    from clonos.spark.session import OwnContext

logger = logging.getLogger("clonos.job")

WARM_MODULES = (run_slot.__module__, "clonos.api", "clonos.connectors", "clonos_services")
SLOT_HASH_SEED = "0"
ALARMS_SHOWN_MAX = 100

_handles = itertools.count()


class JobFailed(JobError):
    """User code, or the input, ended the job."""

    def __init__(self, failed: c.JobFailed) -> None:
        super().__init__(failed)
        self.failed = failed

    def __str__(self) -> str:
        return _failure_text(self.failed)


class JobEnvironmentFailed(EnvironmentFault):
    """Slots, disks, the store or the network ended the job."""

    def __init__(self, failed: c.JobFailed) -> None:
        super().__init__(failed)
        self.failed = failed

    def __str__(self) -> str:
        return _failure_text(self.failed)


class CoordinatorReplaced(EnvironmentFault):
    """Another driver has claimed the job's store."""

    def __init__(self, checkpoint: int) -> None:
        super().__init__(checkpoint)
        self.checkpoint = checkpoint

    def __str__(self) -> str:
        return (
            f"another driver has claimed this job after checkpoint {self.checkpoint}: it goes on there."
            " Run one driver for a store at a time."
        )


def _failure_text(failed: c.JobFailed) -> str:
    lines = [f"the job has failed: {failed.reason}"]
    if failed.error:
        place = f"element {failed.first_seq} of channel {failed.channel}" if failed.channel >= 0 else "its source"
        if failed.count > 1 and failed.channel >= 0:
            place = f"elements {failed.first_seq} to {failed.first_seq + failed.count - 1} of channel {failed.channel}"
        lines += [f"task {failed.task_name}, step {failed.step or 'unknown'}, {place}: {failed.error}"]
    if failed.record:
        lines.append(f"record: {failed.record}")
    if failed.traceback:
        lines.append(failed.traceback.rstrip())
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Result:
    """How a job has ended. ``status``: its last picture, with the counters of all tasks."""

    ending: c.Ending
    checkpoint: int
    status: Status

    @property
    def was_aborted(self) -> bool:
        """It was stopped at once: resume goes on from the last checkpoint."""
        return self.ending is c.Ending.ABORTED

    def summary(self) -> str:
        """One line for people."""
        records = self.status.totals.get("records_in", 0)
        return (
            f"{self.status.job} has {self.ending}: checkpoint {self.checkpoint},"
            f" {records} records processed by its tasks, {len(self.status.recoveries)} recoveries"
        )


class Job(JobGraph):
    """A streaming job: build it with ``source`` and the methods of streams, then ``run`` it.

    ``errors``: a sink for records whose user code raised; without one the job fails. All other keywords are options
    (``clonos.config``): ``parallelism=2, checkpoint_every="5s", standbys=1``. The file ``clonos.toml``, the environment
    (``CLONOS_...``) and the command line override them, in this order.
    """

    def __init__(self, name: str, *, errors: AnySink | None = None, **options: object) -> None:
        super().__init__(name, errors=errors)
        self.options = options

    def start(
        self, *, spark: Any = None, command_line: Mapping[str, object] | None = None, **options: object
    ) -> Handle:
        """Begins the job and returns at once. ``spark``: a SparkSession of the user's own. Keywords override those of
        ``Job``."""
        settings = settle({**self.options, **options}, command_line)
        return Handle(self, settings, spark)

    def run(self, *, spark: Any = None, command_line: Mapping[str, object] | None = None, **options: object) -> Result:
        """Runs the job to its end. The first SIGINT or SIGTERM stops it with a final checkpoint, the second aborts."""
        with self.start(spark=spark, command_line=command_line, **options) as handle, _stopped_by_signals(handle):
            return handle.wait()


@contextmanager
def _stopped_by_signals(handle: Handle) -> Iterator[None]:
    """Only the main thread can take signals; elsewhere they stay as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        print("stopping with a final checkpoint" if seen == 1 else "aborting", file=sys.stderr)
        handle.stop(drain=seen == 1)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Handle:
    """A running job. ``close`` (or leaving a ``with`` block) ends everything that still runs."""

    def __init__(self, job: Job, settings: Settings, spark: Any) -> None:
        self._name = job.name
        self._alarms: list[str] = []
        self._is_stopping = False
        self._resources = ExitStack()
        self._last: Status | None = None
        try:
            self._driver = self._begin(job, settings, spark)
        except BaseException:
            self._resources.close()
            raise

    def _begin(self, job: Job, settings: Settings, spark: Any) -> Driver:
        run = settings.run
        store_url = run.store or str(Path(".clonos", job.name).absolute())
        is_on_spark = spark is not None or run.slots is SlotKind.SPARK
        is_on_one_host = not is_on_spark or (spark is None and run.master.startswith("local"))
        if not is_on_one_host and "://" not in store_url and spark is None:
            raise JobError(
                f"the checkpoint store {store_url} is a local folder, but executors of {run.master} are on other hosts."
                " Name a shared one: store='s3://bucket/folder' or a mounted file:// path."
            )
        store = CheckpointStore(store_url)
        image, begin = _open_job(job, settings, store)
        local = LocalFolder(default_root(), f"driver-{os.getpid()}-{next(_handles)}")
        self._resources.callback(local.close)
        binding = Binding(folder=str(local.path)) if is_on_one_host else _remote_binding(settings)
        provider = self._spark_slots(job.name, settings, spark) if is_on_spark else _process_slots(settings)
        if run.metrics:
            self._resources.callback(MetricsFile(Path(run.metrics), self.status).close)
        driver = Driver(
            DriverPlan(
                image=image,
                begin=begin,
                store=store,
                birth=SlotBirth(
                    coordinator_address="",
                    coordinator_key=b"",
                    token="",
                    image=pack(image),
                    store_url=store_url,
                    binding=Binding(folder="ipc") if is_on_one_host else binding,
                ),
                binding=binding,
                provider=provider,
                listener=self._hear,
            )
        )
        self._resources.callback(driver.close)
        driver.start()
        return driver

    def _spark_slots(self, name: str, settings: Settings, spark: Any) -> Callable[[Listener], SlotProvider]:
        from clonos.spark.session import OwnContext, context_of
        from clonos.spark.slots import SparkSlots

        if spark is not None:
            context = context_of(spark)
        else:
            own: OwnContext = OwnContext.start(f"clonos {name}", settings.run.master)
            self._resources.callback(own.close)
            context = own.context
        for file in settings.run.py_files:
            context.addPyFile(file)
        return lambda listener: SparkSlots(context, listener)

    def _hear(self, progress: Progress) -> None:
        if isinstance(progress, c.Alarm):
            self._alarms.append(progress.text)
            del self._alarms[:-ALARMS_SHOWN_MAX]
        elif isinstance(progress, c.SlotsRefused):
            self._alarms.append(progress.text)

    # ------------------------------------------------------------------ for the user

    def wait(self, timeout: float | None = None) -> Result:
        """Waits for the end, at most ``timeout`` seconds (``TimeoutError``). Raises what ended a job that failed."""
        try:
            end = self._driver.result.result(timeout)
        except FutureTimeout:
            raise TimeoutError(f"the job {self._name} still runs after {timeout} s") from None
        self._last = self.status()
        self.close()
        return Result(*_ending_of(end), self._last)

    def stop(self, drain: bool = True) -> None:
        """Asks for the end: with a final checkpoint (``drain``), or at once. ``wait`` has the result."""
        self._is_stopping = True
        self._driver.stop(drain)

    def status(self) -> Status:
        """How the job stands now."""
        if self._last is not None:
            return self._last
        phase = Phase.ENDED if self._driver.result.done() else Phase.STOPPING if self._is_stopping else None
        return self._driver.ask(lambda coordinator: _picture(self._name, coordinator, phase, tuple(self._alarms)))

    def close(self) -> None:
        """Ends everything that still runs, and waits for it."""
        self._resources.close()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_job(job: Job, settings: Settings, store: CheckpointStore) -> tuple[JobImage, c.Begin]:
    """The image and where it begins: the store's identity for the job, its splits, its last checkpoint, its sinks."""
    run, core = settings.run, settings.core
    if run.checkpoint is not None and not run.resume:
        raise JobError("checkpoint= says where to resume from: it goes with resume.")
    metadata: CheckpointMetadata | None = None
    if run.resume:
        record = store.open_job(job.name, resume=True)
        image = job.compile(core, parallelism=run.parallelism, splits=record.splits)
        metadata = decode_metadata(store.checkpoint_metadata(run.checkpoint), store.url)
    else:
        image = job.compile(core, parallelism=run.parallelism)
        splits = {name: tuple(found) for name, found in image.splits.items()}
        record = store.open_job(job.name, overwrite=run.overwrite, splits=splits)
    for sink in image.sinks.values():
        if isinstance(sink, TransactionalSink):
            sink.prepare_output(record.job_id, run.resume, run.overwrite)
            if run.checkpoint is not None and hasattr(sink, "withdraw"):
                sink.withdraw(record.job_id, run.checkpoint)
    needed = len(image.plan.tasks) + run.spare_slots
    begin = c.Begin(
        term=store.term,
        job_id=record.job_id,
        slots_needed=max(needed, 2 if core.standbys or core.keepers else 1),
        resume=metadata,
        versions=versions(hash_seed=SLOT_HASH_SEED),
        can_spread=run.slots is SlotKind.SPARK,
    )
    return image, begin


def _process_slots(settings: Settings) -> Callable[[Listener], SlotProvider]:
    return lambda listener: ProcessSlots(listener, settings.run.domains, WARM_MODULES)


def _remote_binding(settings: Settings) -> Binding:
    run = settings.run
    ports = None
    if run.data_ports:
        first, _, last = run.data_ports.partition("-")
        ports = range(int(first), int(last or first) + 1)
    return Binding(host="0.0.0.0", advertised_host=run.data_host, ports=ports)


def _ending_of(end: JobEnd) -> tuple[c.Ending, int]:
    match end:
        case c.JobDone(ending, checkpoint):
            return ending, checkpoint
        case c.JobFailed(fault=c.Fault.JOB):
            raise JobFailed(end)
        case c.JobFailed():
            raise JobEnvironmentFailed(end)
        case c.StoodDown(checkpoint):
            raise CoordinatorReplaced(checkpoint)
    raise InternalError(f"a job has ended as {end}")


def _picture(name: str, coordinator: Coordinator, phase: Phase | None, alarms: tuple[str, ...]) -> Status:
    """Called in the coordinator's thread: what its machine knows, as people look at it."""
    view = coordinator.view
    registers = {register.slot: register for register in coordinator.slots}
    counters, phases = coordinator.counters, coordinator.phases
    totals: dict[str, int] = {}
    for counted in counters.values():
        for key, value in counted.items():
            totals[key] = totals.get(key, 0) + value
    plan = coordinator.plan
    tasks = []
    for placement in view.placements if view is not None else ():
        register = registers.get(placement.slot)
        tasks.append(
            TaskState(
                name=plan.task_name(placement.task),
                incarnation=placement.incarnation,
                slot=max(0, placement.slot),
                pid=register.pid if register is not None else 0,
                domain=register.domain if register is not None else "",
                phase=phases.get(placement.task, "waiting"),
                counters=counters.get(placement.task, {}),
                standbys=coordinator.standbys_ready(placement.task),
                keepers=coordinator.keepers_ready(placement.task),
            )
        )
    recoveries = tuple(
        RecoveryState(
            task=plan.task_name(one.task),
            failed_incarnation=one.failed,
            incarnation=one.incarnation,
            cause=one.cause,
            reached={milestone.value: at_ns for milestone, at_ns in one.reached},
        )
        for one in coordinator.recoveries
    )
    return Status(
        job=name,
        phase=phase or (Phase.RUNNING if view is not None else Phase.STARTING),
        job_id=coordinator.completed.job_id,
        checkpoint=coordinator.checkpoint,
        generation=coordinator.generation,
        view=view.number if view is not None else 0,
        slots=len(registers),
        tasks=tuple(tasks),
        recoveries=recoveries,
        alarms=alarms,
        totals=totals,
    )
