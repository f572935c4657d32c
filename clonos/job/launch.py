"""Launch of a job: resolves options, compiles, opens the store and the outputs, and creates the driver."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import ColumnsAwaited
from clonos.config import JobSettings, RunOptions, SlotKind
from clonos.connectors.secrets import missing_secrets
from clonos.core.coordinator.checkpoint_ledger import RETAINED_MIN
from clonos.core.coordinator.coordinator_events import Begin
from clonos.core.model.errors import JobError
from clonos.io.process.fault_points import armed
from clonos.io.process.fork_server_process import hash_seed_ahead
from clonos.io.process.pickling import packed
from clonos.io.process.retained_slots import RetainedSlot, retained_slots
from clonos.io.store.metadata_chain import RETAINED_MAX
from clonos.io.store.store import CheckpointStore, StoredJob
from clonos.io.system.entropy import random_hash_seed
from clonos.job.continuing.taking_over import built_of, slots_to_take_over
from clonos.job.continuing.width_change import divided_cut
from clonos.job.deployment import Deployment, is_one_machine, open_deployment
from clonos.job.recording import RECORDED, check_record, epochs_folder, recording_of, with_sink_digests
from clonos.job.scaling_advice import check_scale
from clonos.job.staging import session_of
from clonos.job.starting import JobStart, default_store, identity_of
from clonos.kernels import choice
from clonos.kernels.choice import kernels_in_use
from clonos.operators.job_image import JobImage
from clonos.operators.steps.call_attempts import NANOSECONDS_PER_SECOND
from clonos_standby.driver.driver import Driver, DriverPlan, Progress
from clonos_standby.launch_spec import SlotLaunchSpec, versions

logger = logging.getLogger("clonos.run")


@dataclass(frozen=True, slots=True)
class Launched:
    """Driver that is ready to start, with what it runs."""

    driver: Driver
    image: JobImage
    job_id: str
    deployment: Deployment
    start: JobStart

    def close(self) -> None:
        """Ends the driver and its slots; a job that never began leaves nothing in its store."""
        self.driver.close()
        if self.driver.ask(lambda coordinator: coordinator.view is None):
            self.start.undo()
        else:
            self.start.close()


def launch(
    graph: JobGraph,
    settings: JobSettings,
    session: Any,
    listener: Callable[[Progress], None],
    opener: Callable[[str, JobSettings, Any, str], Deployment] = open_deployment,
) -> Launched:
    """Prepares a job for its start. All checks come first: the term is acquired as late as possible.

    ``opener``: opens the deployment; another function may route connections through proxies.

    Raises: JobError for options that exclude each other, for a store that holds something else, or for a checkpoint
    that cannot be resumed.
    """
    run = settings.run
    _check_options(settings)
    if armed(run.fault_points) is not None:
        logger.warning("fault points are armed: processes of %s wait at them for %s", graph.name, run.fault_points)
    if session is None and run.slots is SlotKind.SPARK:
        session = session_of(graph)
    _check_secrets(graph, run, session)
    start = JobStart(CheckpointStore(_store_url(graph.name, run, session)), identity_of(graph), run)
    found = start.find()
    start.stage(graph)
    try:
        launched = _prepared(graph, settings, session, listener, opener, start, found)
    except BaseException:
        start.undo()
        raise
    for alarm in start.alarms:
        listener(alarm)
    return launched


def compiled(
    graph: JobGraph,
    settings: JobSettings,
    splits: Mapping[str, Sequence[bytes] | None] | None,
    wait: Callable[[float], None] = time.sleep,
) -> JobImage:
    """Compiles a job; waits for the first records of watched sources whose columns its steps depend on.

    ``splits``: those of a job that began before, None at its first start.
    """
    is_reported = False
    while True:
        try:
            return graph.compile(settings.core, parallelism=settings.run.parallelism, splits=splits)
        except ColumnsAwaited as awaited:
            if splits is not None:
                raise
            if not is_reported:
                logger.warning("%s waits with its start: %s", graph.name, awaited)
            is_reported = True
            wait(awaited.interval_ns / NANOSECONDS_PER_SECOND)


def _prepared(
    graph: JobGraph,
    settings: JobSettings,
    session: Any,
    listener: Callable[[Progress], None],
    opener: Callable[[str, JobSettings, Any, str], Deployment],
    start: JobStart,
    found: StoredJob | None,
) -> Launched:
    """Compiles the job, opens its store and outputs, and creates the driver."""
    run = settings.run
    image = _decided(graph, settings, start)
    hash_seed = (hash_seed_ahead() or random_hash_seed()) if found is None else found.hash_seed
    deployment = opener(graph.name, settings, session, hash_seed)
    try:
        retained = retained_slots()
        living: tuple[RetainedSlot, ...] = ()
        if retained is not None:
            what = built_of(graph.file, image, settings, deployment.hash_seed)
            living = slots_to_take_over(graph.name, retained, what, image, start.why_not_taken_over())
            retained.begin(what, living)
        needed, image = _slots_needed(image, settings), (start.as_slots_have(image) if living else image)
        data, modules = packed(image, ((node.step, node.make) for vertex in image.vertices for node in vertex.nodes))
        record, store = start.begin(image, hash_seed, bool(living)), start.store
        log_notes(image, settings.core.keepers)
        begin = Begin(
            term=store.term,
            job_id=record.job_id,
            slots_needed=needed,  # for the tasks after a cut, which slots do not have yet
            resume=start.resumed,
            retained=start.retained(settings.core.checkpoints_retained),
            versions=versions(hash_seed=deployment.hash_seed),
            can_spread=deployment.can_spread,
            driver_host=socket.gethostname(),
            awaits_slots=bool(living),
            named=tuple(each.register.slot for each in living),
            registers=tuple(each.register for each in living),
            only_adopts=bool(living),
        )
        launch_spec = _launch_spec(run, deployment, data, store.objects_url)
        plan = DriverPlan(
            image,
            begin,
            store,
            launch_spec,
            deployment.driver_binding,
            lambda listener: deployment.provider(listener, image.has_columns, modules),
            listener,
            partial(divided_cut, store, image),
            deployment.address_rewriter,
            retained,
            epochs=epochs_folder(graph.name, store) if run.capture_on_failure else None,
            recording=recording_of(run, image, epochs_folder(graph.name, store, RECORDED)),
            redact=run.redact,
            records_code=run.record_code and run.redact is None,
        )
        return Launched(Driver(plan), image, record.job_id, deployment, start)
    except BaseException:
        deployment.close()
        raise


def _decided(graph: JobGraph, settings: JobSettings, start: JobStart) -> JobImage:
    """Compiles the job, decides its widths, and checks the options that name its steps and tasks. Raises: JobError."""
    image = compiled(graph, settings, start.splits(graph))
    _check_placement(image, settings.run)
    image = start.decide(image)
    check_scale(image, settings.run)
    check_record(image, settings.run)
    return with_sink_digests(settings.run, image)


def _launch_spec(run: RunOptions, deployment: Deployment, image: bytes, store_url: str) -> SlotLaunchSpec:
    """Returns the launch spec of all slots, to which the driver adds its address and a token."""
    return SlotLaunchSpec(
        "",
        b"",
        "",
        image,
        store_url,
        deployment.slot_binding,
        folder_root=deployment.folder_root,
        address_rewriter=deployment.address_rewriter,
        log_level=logging.getLogger("clonos").getEffectiveLevel(),
        root_log_level=logging.getLogger().getEffectiveLevel(),
        fault_points=run.fault_points,
        slot_trace=os.path.abspath(run.slot_trace) if run.slot_trace else "",
    )


def log_notes(image: JobImage, keepers: int) -> None:
    """Logs what is not exactly-once without keepers, what the order of records needs or loses, and that columns run
    without native kernels."""
    acting = [vertex.name for vertex in image.plan.vertices if vertex.has_effects]
    if acting and not keepers:
        logger.warning("keepers=0: if a process dies, what %s did may be repeated (at least once)", ", ".join(acting))
    for sentence in image.order.few_tasks:
        logger.warning("%s", sentence)
    for sentence in image.order.ends:
        logger.info("%s", sentence)
    if image.has_columns and choice.native is None:
        level = logging.INFO if choice.is_forced() else logging.WARNING
        logger.log(level, "batches of columns run on %s", kernels_in_use())


def _check_options(settings: JobSettings) -> None:
    run, retained = settings.run, settings.core.checkpoints_retained
    if not RETAINED_MIN <= retained <= RETAINED_MAX:
        raise JobError(f"checkpoints_retained is {retained}, but {RETAINED_MIN} to {RETAINED_MAX} are possible.")
    if run.checkpoint is not None and not run.resume:
        raise JobError("checkpoint= names the checkpoint to resume from, so it needs resume=True (--resume).")
    if run.resume and run.overwrite:
        raise JobError("resume continues from the store, but overwrite deletes it. Set only one of them.")


def _check_secrets(graph: JobGraph, run: RunOptions, session: Any) -> None:
    """Looks for the secrets of sources and sinks, unless the processes that connect may have another environment.

    Raises: SecretMissing.
    """
    connectors = (graph.errors, *(end for step in graph.steps for end in (step.source, step.sink)))
    for connector in connectors:
        for secret in missing_secrets(connector):
            if is_one_machine(run, session):
                secret.reveal()


def _store_url(name: str, run: RunOptions, session: Any) -> str:
    if run.store:
        return run.store
    if not is_one_machine(run, session):
        raise JobError(
            "executors on other machines need a checkpoint store that all of them can reach:"
            " set one with store= (--store), for example s3://bucket/path."
        )
    return default_store(name)


def _check_placement(image: JobImage, run: RunOptions) -> None:
    """Raises JobError for a rule that child processes of this machine cannot follow."""
    if run.slots is SlotKind.SPARK:
        return
    places = [socket.gethostname(), *(f"domain-{number}" for number in range(run.domains))]
    for vertex in image.plan.vertices:
        if vertex.rule.host and vertex.rule.host not in places:
            raise JobError(
                f"the step {vertex.name} is to run on {vertex.rule.host!r}, but the processes of this job run on"
                f" {', '.join(places)}. Correct .on(host=...), set domains=, or run the job on Spark."
            )


def _slots_needed(image: JobImage, settings: JobSettings) -> int:
    """Returns the number of slots; 0 lets the coordinator use one per task."""
    spare = settings.run.spare_slots
    return len(image.plan.tasks) + spare if spare else 0
