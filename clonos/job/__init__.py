"""Job and run: from a plan to running slots, and what a running job can be told and asked."""

from clonos.job.description import Job
from clonos.job.endings import JobBroke, JobCrashed, JobSuperseded, Result
from clonos.job.handle import Handle

__all__ = ["Job", "Handle", "Result", "JobCrashed", "JobBroke", "JobSuperseded"]
