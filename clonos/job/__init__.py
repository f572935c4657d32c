"""Job and run: from a plan to running slots, and what a running job can be told and asked."""

from clonos.job.description import Job
from clonos.job.handle import Handle
from clonos.job.results import JobBroke, JobCrashed, JobStruckBug, JobSuperseded, Result

__all__ = ["Job", "Handle", "Result", "JobCrashed", "JobBroke", "JobStruckBug", "JobSuperseded"]
