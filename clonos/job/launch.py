"""Launch of a job: resolves options, compiles, opens the store and the outputs, and creates the driver."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clonos.api.graph import JobGraph
from clonos.config import JobSettings, RunOptions
from clonos.core.checkpoint.checkpoint_metadata import (
    CheckpointMetadata,
    MetadataMalformed,
    check_resumable,
    decode_metadata,
)
from clonos.core.coordinator.coordinator_events import Begin
from clonos.core.model.errors import JobError
from clonos.core.model.ids import CheckpointId
from clonos.core.model.plan import Plan
from clonos.io.process.fault_points import armed
from clonos.io.process.pickling import pack
from clonos.io.store.object_files import ObjectMissing
from clonos.io.store.store import CheckpointStore, JobRecord
from clonos.io.system.entropy import random_hash_seed
from clonos.job.deployment import Deployment, is_one_machine, open_deployment
from clonos.operators.chain_outputs import CombinedSinks
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.job_image import JobImage
from clonos_standby.driver.driver import Driver, DriverPlan, Progress
from clonos_standby.launch_spec import SlotLaunchSpec, versions

logger = logging.getLogger("clonos.run")

DEFAULT_STORE: Final = "./.clonos"


@dataclass(frozen=True, slots=True)
class Launched:
    """Driver that is ready to start, with what it runs."""

    driver: Driver
    image: JobImage
    job_id: str
    deployment: Deployment


def launch(
    graph: JobGraph,
    settings: JobSettings,
    session: Any,
    listener: Callable[[Progress], None],
    opener: Callable[[str, JobSettings, Any, str], Deployment] = open_deployment,
) -> Launched:
    """Prepares a job for its start. All checks come first: the term is acquired as late as possible.

    ``opener``: opens the deployment; another function may route connections through proxies.

    Raises: JobError for options that exclude each other, or for a checkpoint that cannot be resumed.
    """
    run = settings.run
    _check_options(run)
    if armed(run.fault_points) is not None:
        logger.warning("fault points are armed: processes of %s wait at them for %s", graph.name, run.fault_points)
    store = CheckpointStore(_store_url(graph.name, run, session))
    record = store.find_job() if run.resume else None
    image = graph.compile(settings.core, parallelism=run.parallelism, splits=None if record is None else record.splits)
    resumed = None if record is None else _checkpoint_to_resume(store, record, run, image.plan)
    packed = pack(image, ((node.step, node.make) for vertex in image.vertices for node in vertex.nodes))
    hash_seed = random_hash_seed() if record is None else record.hash_seed
    deployment = opener(graph.name, settings, session, hash_seed)
    try:
        if record is None:
            splits = _splits(image.splits)
            record = store.open_job(graph.name, overwrite=run.overwrite, splits=splits, hash_seed=hash_seed)
        else:
            store.acquire_term(run.checkpoint or 0)
        _prepare_outputs(image, record.job_id, run, CheckpointId(0) if resumed is None else resumed.checkpoint)
        _log_order(image)
        begin = Begin(
            term=store.term,
            job_id=record.job_id,
            slots_needed=_slots_needed(image, settings),
            resume=resumed,
            versions=versions(hash_seed=deployment.hash_seed),
            can_spread=deployment.can_spread,
        )
        rewriter = deployment.address_rewriter
        launch_spec = SlotLaunchSpec(
            "",
            b"",
            "",
            packed,
            store.url,
            deployment.slot_binding,
            folder_root=deployment.folder_root,
            address_rewriter=rewriter,
            log_level=logging.getLogger("clonos").getEffectiveLevel(),
            fault_points=run.fault_points,
            slot_trace=os.path.abspath(run.slot_trace) if run.slot_trace else "",
        )
        plan = DriverPlan(
            image, begin, store, launch_spec, deployment.driver_binding, deployment.provider, listener, rewriter
        )
        return Launched(Driver(plan), image, record.job_id, deployment)
    except BaseException:
        deployment.close()
        raise


def _log_order(image: JobImage) -> None:
    for sentence in image.order.few_tasks:
        logger.warning("%s", sentence)
    for sentence in image.order.ends:
        logger.info("%s", sentence)


def _check_options(run: RunOptions) -> None:
    if run.checkpoint is not None and not run.resume:
        raise JobError("checkpoint= names the checkpoint to resume from, so it needs resume=True (--resume).")
    if run.resume and run.overwrite:
        raise JobError("resume continues from the store, but overwrite deletes it. Set only one of them.")


def _store_url(name: str, run: RunOptions, session: Any) -> str:
    if run.store:
        return run.store
    if not is_one_machine(run, session):
        raise JobError(
            "executors on other machines need a checkpoint store that all of them can reach:"
            " set one with store= (--store), for example s3://bucket/path."
        )
    return f"{DEFAULT_STORE}/{name}"


def _splits(splits: Mapping[str, Any]) -> dict[str, tuple[bytes, ...]]:
    return {name: tuple(found) for name, found in splits.items()}


def _slots_needed(image: JobImage, settings: JobSettings) -> int:
    """Returns the number of slots; 0 lets the coordinator use one per task."""
    spare = settings.run.spare_slots
    return len(image.plan.tasks) + spare if spare else 0


def _checkpoint_to_resume(
    store: CheckpointStore, record: JobRecord, run: RunOptions, plan: Plan
) -> CheckpointMetadata | None:
    """Returns the metadata to resume from. None for a job that failed before its first checkpoint, which starts again
    with its recorded splits."""
    if not store.checkpoints():
        if run.checkpoint is not None:
            store.checkpoint_metadata(run.checkpoint)
        return None
    latest = _metadata(store, record)
    if run.checkpoint is None:
        check_resumable(plan, latest)
        return latest
    chosen = _metadata(store, record, run.checkpoint)
    check_resumable(plan, chosen)
    missing = [name for name in sorted(chosen.objects()) if not _is_complete(store, name)]
    if missing:
        raise JobError(
            f"checkpoint {run.checkpoint} of {store.url} is incomplete: its object {missing[0]} has been removed."
            f" The checkpoints are: {', '.join(map(str, store.checkpoints()))}; the last two are complete."
        )
    # A number is never reused: the next checkpoint is numbered above every earlier one.
    return msgspec.structs.replace(chosen, highest_checkpoint=latest.highest_checkpoint)


def _metadata(store: CheckpointStore, record: JobRecord, checkpoint: int | None = None) -> CheckpointMetadata:
    name = f"the chain of {store.url}"
    found = decode_metadata(store.checkpoint_metadata(checkpoint), name)
    if found.job_id != record.job_id:
        raise MetadataMalformed(
            name, f"checkpoint {found.checkpoint} belongs to job {found.job_id}, not to job {record.job_id}"
        )
    return found


def _is_complete(store: CheckpointStore, name: str) -> bool:
    try:
        deque(store.read_object(name), maxlen=0)  # verifies each piece
    except ObjectMissing:
        return False
    return True


def _prepare_outputs(image: JobImage, job_id: str, run: RunOptions, checkpoint: CheckpointId) -> None:
    """Prepares each output for a job that resumes from ``checkpoint``, and withdraws what was committed after it.

    Later commits exist only when a driver resumed from an earlier checkpoint than the last one; that driver may have
    ended before it withdrew them.
    """
    for vertex, sink in sorted(image.sinks.items()):
        name = image.plan.vertices[vertex].name
        for each in sink.sinks if isinstance(sink, CombinedSinks) else (sink,):
            if isinstance(each, TransactionalSink):
                each.prepare_output(job_id, run.resume, run.overwrite)
            elif run.overwrite:
                logger.warning("the output of %s cannot be overwritten: existing rows stay", name)
            if run.resume:
                _withdraw(name, each, job_id, checkpoint, is_going_back=run.checkpoint is not None)


def _withdraw(name: str, sink: Any, job_id: str, checkpoint: CheckpointId, is_going_back: bool) -> None:
    withdraw: Callable[[str, int], list[int]] | None = getattr(sink, "withdraw", None)
    if withdraw is None:
        if is_going_back and not getattr(sink, "is_withdrawing", False):
            logger.warning("the output of %s after checkpoint %d cannot be withdrawn: it stays", name, checkpoint)
        return
    taken = withdraw(job_id, checkpoint)
    if taken:
        logger.warning("the output of %s was withdrawn for checkpoints %s", name, ", ".join(map(str, sorted(taken))))
