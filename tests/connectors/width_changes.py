"""A job that goes on with other numbers of tasks and is stopped or aborted when its output is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from clonos.job import Job
from clonos.status import Status
from tests.speed import scaled
from tests.waiting import await_condition

LIMIT_S = scaled(60.0)
wait_until = partial(await_condition, LIMIT_S)


def run_at(
    job: Job,
    widths: Sequence[str],
    write: Callable[[], object],
    has_all: Callable[[], bool],
    *,
    is_aborted: bool = True,
) -> Status:
    """Starts the job or lets it go on with these widths, until all that ``write`` gives is there; returns its status
    then."""
    with job.start(resume=True, widths=tuple(widths)) as handle:
        write()
        wait_until(has_all)
        status = handle.status()
        handle.stop(drain=not is_aborted)
        handle.wait(LIMIT_S)
    return status
