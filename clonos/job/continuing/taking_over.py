"""Slots that have outlived their driver: whether the next driver takes them over, or ends them and resumes.

Tasks of slots that are taken over go on as if nothing had happened: nothing is rolled back, and no output is withdrawn.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from clonos.config import JobSettings
from clonos.core.checkpoint.checkpoint_metadata import plan_fingerprint
from clonos.io.process.retained_slots import RetainedSlot, RetainedSlots
from clonos.operators.chain_outputs import CombinedSinks
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.job_image import JobImage
from clonos_standby.launch_spec import versions

logger = logging.getLogger("clonos.run")


def built_of(file: str, image: JobImage, settings: JobSettings, hash_seed: str) -> str:
    """Returns a digest of what slots and their driver have in common: versions, hash seed, code, plan and options.

    The code is the file of the job, and the modules that this process has imported from below its folder. Whether a
    driver resumes is its own affair: the first one does not, and the next one does. The numbers of tasks are those of
    the code: a job may have got others since.
    """
    run = replace(settings.run, resume=True, widths=())
    plan = image.plan.with_widths(
        {vertex.name: vertex.declared or vertex.parallelism for vertex in image.plan.vertices}
    )
    parts = (versions(hash_seed=hash_seed), plan_fingerprint(plan), settings.core, run, _code(file))
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _code(file: str) -> list[tuple[str, bytes]]:
    folder = Path(file).resolve().parent
    found = {file, *(str(getattr(module, "__file__", None) or "") for module in [*sys.modules.values()])}
    paths = {Path(each).resolve() for each in found if each and "site-packages" not in each}
    return [(str(path), path.read_bytes()) for path in sorted(paths) if path.is_relative_to(folder) and path.is_file()]


def slots_to_take_over(
    name: str, retained: RetainedSlots, what: str, image: JobImage, why_not: str
) -> tuple[RetainedSlot, ...]:
    """Returns the slots of the earlier driver that this one takes over; none, when it has ended them.

    ``what``: of what this driver is built. ``why_not``: why the start of the job does not allow it; "" if it does.
    """
    living = retained.living()
    if not retained.record.slots or not living:
        return ()
    reason = _why_not(retained, what, image, why_not)
    if reason:
        logger.warning("%s: %d slots that have outlived their driver are ended, because %s", name, len(living), reason)
        retained.end_all()
        return ()
    logger.warning("%s: the tasks go on in %d slots that have outlived their driver", name, len(living))
    return living


def _why_not(retained: RetainedSlots, what: str, image: JobImage, why_not: str) -> str:
    if retained.record.built_of != what:
        return "the job, its options or the library have changed"
    if why_not:
        return why_not
    for sink in image.sinks.values():
        for each in sink.sinks if isinstance(sink, CombinedSinks) else (sink,):
            if isinstance(each, TransactionalSink) and not type(each).__module__.startswith("clonos."):
                return (
                    f"{type(each).__name__} may drop what they have prepared, when its output is prepared for a start"
                )
    return ""
