"""Jobs and runs: from a job's description to running slots, and the handle of a running job."""

from clonos.job.description import Job
from clonos.job.handle import Handle
from clonos.job.results import JobBroke, JobCrashed, JobHitBug, JobSuperseded, Result

__all__ = ["Job", "Handle", "Result", "JobCrashed", "JobBroke", "JobHitBug", "JobSuperseded"]
