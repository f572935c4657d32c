"""Jobs and runs: from a job's description to running slots, and the handle of a running job.

The names are loaded lazily: a script that describes a job has its driver imported while its fork server starts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from clonos.job.checkpointed_state import CheckpointedState as CheckpointedState
    from clonos.job.description import Job as Job
    from clonos.job.handle import Handle as Handle
    from clonos.job.results import JobBroke as JobBroke
    from clonos.job.results import JobCrashed as JobCrashed
    from clonos.job.results import JobHitBug as JobHitBug
    from clonos.job.results import JobSuperseded as JobSuperseded
    from clonos.job.results import Result as Result

_MODULE_OF: Final = {
    "Job": "clonos.job.description",
    "Handle": "clonos.job.handle",
    **dict.fromkeys(("Result", "JobCrashed", "JobBroke", "JobHitBug", "JobSuperseded"), "clonos.job.results"),
    "CheckpointedState": "clonos.job.checkpointed_state",
}

__all__ = ["Handle", "Job", "JobBroke", "JobCrashed", "JobHitBug", "JobSuperseded", "Result", "CheckpointedState"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found
