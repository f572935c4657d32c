"""``crash_test``: a job of the user's in simulated worlds in which its processes die."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clonos.testing.crash_test_options import options
from clonos_chaos.user import crash_testing

if TYPE_CHECKING:
    from clonos_chaos.user.comparing import Compare
    from clonos_chaos.user.crash_testing import CrashReport
    from clonos_chaos.user.user_calls import HttpAnswer, Services
    from clonos_chaos.user.user_graph import Inputs, JobLike
    from clonos_chaos.user.user_world import Check


def crash_test(
    job: JobLike,
    inputs: Inputs = None,
    seeds: Iterable[int] = crash_testing.SEEDS_USUAL,
    check: Check | None = None,
    *,
    http: HttpAnswer | None = None,
    services: Services | None = None,
    compare: Compare = True,
    only_faults: Sequence[int] | None = None,
    records: int | None = None,
) -> CrashReport:
    """Runs a job in one simulated world per seed, in this process and under virtual time, and lets its processes die.

    Args:
        job: a ``Job``, or a function that makes one; it is called for each world, which a job with sinks of your own
            needs.
        inputs: records for its source; by the names of the sources where there are several. None: what the job reads.
        check: called with the ``Outputs`` of each world; what it raises fails the test.
        http: answers HTTP requests: from a request (method, url, headers, body) to a status, (status, body) or a body.
        services: functions that answer instead of a ``@service``, by the service or its name.
        compare: True: sinks whose rows are alike in all runs without failures must have the same rows here; a function,
            or one per sink: what of a row must be alike, such as its number; False: nothing is compared.
        only_faults, records: show a smaller world of the one seed again, as the message of a failure says.

    Raises:
        CrashTestFailed: an AssertionError: the first world that shows a fault, made smaller, and how to see it again.
        JobError: the test is not one, for example since its job ends before anything can strike.
    """
    __tracebackhide__ = True
    if options.seed is not None:
        seeds, only_faults, records = [options.seed], options.faults, options.records
    elif options.seeds is not None:
        seeds = range(options.seeds)
    return crash_testing.crash_test(
        job,
        inputs,
        seeds,
        check,
        http=http,
        services=services,
        compare=compare,
        only_faults=only_faults,
        records=records,
    )
