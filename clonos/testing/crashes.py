"""``crash_test``: runs a job in simulated worlds in which its processes die."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clonos.testing.crash_test_options import options
from clonos_chaos.user import crash_testing

if TYPE_CHECKING:
    from clonos_chaos.user.comparing import Compare
    from clonos_chaos.user.crash_testing import CrashReport
    from clonos_chaos.user.user_graph import Inputs, JobLike
    from clonos_chaos.user.user_world import Check
    from clonos_services.stand_ins import HttpAnswer, Services


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
    """Runs a job in one simulated world per seed, in this process and in virtual time, and kills its processes there.

    Args:
        job: a ``Job``, or a function that creates one for each world, which a job with custom sinks needs.
        inputs: records of the source, or a dict from source name to records; None for the input of the job itself.
        seeds: seeds of the worlds.
        check: called with the ``Outputs`` of each world; an exception fails the test.
        http: answers HTTP requests: maps a request (method, url, headers, body) to a status, (status, body) or a body.
        services: functions that replace a ``@service``, by the service or its name.
        compare: how the rows of a sink are compared with those of runs without failures. True: they must be equal if
            they are equal in all runs without failures. A function, or a dict of functions by sink: its results must be
            equal, for example the number of a row. False: no comparison.
        only_faults: with one seed, numbers of the faults to inject; the message of a failure gives them.
        records: with one seed, the number of records to use at most; the message of a failure gives it.

    Returns:
        A summary of the worlds.

    Raises:
        CrashTestFailed: a world shows an error; the message says how to run the smallest such world again.
        JobError: the job cannot be tested, for example because it ends before any fault can be injected.

    Example::

        def test_counts_survive_crashes(crash_test):
            crash_test(make_job, inputs=["a b", "b"], seeds=range(20))
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
