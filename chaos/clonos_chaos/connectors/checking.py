"""``check_sink`` and ``check_source``: run a connector through kills, rollbacks, resumes and outages, and judge it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from clonos.connectors.driver_outputs import CollectSink
from clonos.core.model.errors import InternalError, JobError
from clonos.operators.connector_contract import ImmediateSink, PushSource, Source, TransactionalSink
from clonos_chaos.connectors.guarantees import Evidence, Guarantees, announced_by, judged, pair_of
from clonos_chaos.connectors.process_trial import JobEnded, ProcessTrial
from clonos_chaos.connectors.simulated_trial import simulated
from clonos_chaos.connectors.tested_jobs import (
    ROWS,
    MakeJob,
    plain_row,
    simulated_sink_job,
    simulated_source_job,
    sink_job,
    source_job,
)
from clonos_chaos.user.user_world import Outputs

STEP: Final = 400
"""Rows between two faults."""

SOURCE_PER_SECOND: Final = 500
"""Records that each task with a source under test takes at most."""

RECORDS_IN_WORLDS: Final = 60
WORLDS_USUAL: Final = range(20)
QUIET_S: Final = 8.0
"""Time without a new row after which a source that has no end has nothing more to give."""

EARLY: Final = "the job has ended without an error before the trial ended it"

Inject = Callable[[ProcessTrial], None]
Outages = Mapping[str, Callable[[], object]]

TRIALS: Final[dict[str, Sequence[Inject]]] = {
    "kills": [partial(ProcessTrial.kill_task, turn=turn) for turn in range(2)],
    "rollbacks": [ProcessTrial.kill_all] * 2,
    "resumes": [ProcessTrial.kill_driver] * 2,
}
"""Faults of each trial, in their order."""


def check_sink(
    make: Callable[[str], Any],
    read: Callable[[str], Iterable[Any]],
    *,
    row: Callable[[dict[str, int]], Any] = plain_row,
    outages: Outages | None = None,
    trials: Iterable[str] = tuple(TRIALS),
    worlds: Iterable[int] = WORLDS_USUAL,
) -> Guarantees:
    """Runs a sink in jobs whose processes die, and returns which guarantee it holds in each trial.

    The job gives each row a number and random content that it remembers in its causal log. The rows in the external
    system are then compared with the job's own output.

    Args:
        make: makes the sink that writes to the place of this name: a table, a topic, a folder. It must be empty.
        read: returns the rows of a place, read independently of the sink: pairs (n, draw), or dicts with these keys.
        row: makes what the sink gets of {"n": int, "draw": int}.
        outages: further trials by name. Each function disturbs the network or the external system and ends that; it is
            called twice, under load.
        trials: those of "kills", "rollbacks" and "resumes" to run on real processes.
        worlds: seeds of simulated worlds; () for a sink whose external system takes long to answer.

    Raises:
        JobError: ``make`` returns no sink, ``read`` no rows, or a trial is unknown.

    Example::

        report = check_sink(lambda place: Rows(folder / place), read_rows)
        assert report.weakest is Guarantee.EXACTLY_ONCE, report
    """
    found: dict[str, Evidence] = {}
    connector = ""

    def sink_of(place: str) -> Any:
        nonlocal connector
        sink = _checked(make(place), (TransactionalSink, ImmediateSink), "sink")
        connector = type(sink).__qualname__
        return sink

    def judge_world(place: str, outputs: Outputs) -> Evidence:
        return judged(dict(map(pair_of, outputs[ROWS])), map(pair_of, read(place)))

    seeds = list(worlds)
    if seeds:
        found |= simulated(
            lambda place: simulated_sink_job(sink_of(place), row, RECORDS_IN_WORLDS), _is_tested, judge_world, seeds
        )
    for name, injections in _trials(trials, outages).items():
        place = name.replace(" ", "-")
        with _folder() as folder:
            sink = sink_of(place)
            make_job = partial(sink_job, sink, row)
            is_immediate = isinstance(sink, ImmediateSink)
            trial = ProcessTrial(make_job, Path(folder) / place, STEP, counts_rollbacks=is_immediate)
            failure = _run(trial, injections, ProcessTrial.end_input)
            found[name] = _judged_sink(trial, failure, partial(read, place))
    return Guarantees(connector, found)


def check_source(
    make: Callable[[str], Any],
    write: Callable[[str, Sequence[int]], object],
    number: Callable[[Any], int],
    *,
    is_live: bool = True,
    outages: Outages | None = None,
    trials: Iterable[str] = tuple(TRIALS),
    worlds: Iterable[int] = (),
) -> Guarantees:
    """Runs a source in jobs whose processes die, and returns which guarantee it holds in each trial.

    Args:
        make: makes the source that reads from the place of this name: a topic, a queue, a folder.
        write: puts records that have these numbers into a place. It is called several times per place.
        number: returns the number of a record.
        is_live: whether records may be written while the job runs. Else all are written first, and the source ends.
        outages, trials: as for ``check_sink``.
        worlds: seeds of simulated worlds, for a source that ends (``is_live=False``).

    Raises:
        JobError: ``make`` returns no source, or a trial is unknown.

    Example::

        report = check_source(lambda place: queue(place), put, lambda record: int(record.body))
        assert report.weakest is Guarantee.EXACTLY_ONCE, report
    """
    found: dict[str, Evidence] = {}
    connector = ""

    def source_of(place: str) -> Any:
        nonlocal connector
        source = _checked(make(place), (Source, PushSource), "source")
        connector = type(source).__qualname__
        return source

    def simulated_job(place: str) -> Any:
        write(place, range(RECORDS_IN_WORLDS))
        return simulated_source_job(source_of(place), number)

    def judge_world(_place: str, outputs: Outputs) -> Evidence:
        return _judged_source(outputs[ROWS], RECORDS_IN_WORLDS)

    seeds = list(worlds)
    if seeds:
        if is_live:
            raise JobError("simulated worlds run until a source ends: worlds= needs is_live=False.")
        found |= simulated(simulated_job, lambda _: False, judge_world, seeds)
    for name, injections in _trials(trials, outages).items():
        place = name.replace(" ", "-")
        written = STEP * (len(injections) + 1)
        if not is_live:
            write(place, range(written))
        make_job: MakeJob = partial(source_job, source_of(place), number, SOURCE_PER_SECOND)
        found[name] = _run_source(make_job, injections, written, partial(write, place) if is_live else None)
    return Guarantees(connector, found)


def _run(
    trial: ProcessTrial, injections: Sequence[Inject], end: Callable[[ProcessTrial], object], ended_early: str = EARLY
) -> str:
    """Runs a job to its end, under load while faults are injected; returns its error, or "".

    ``ended_early``: what to return of a job that ends without an error before ``end``.
    """
    with trial:
        try:
            trial.wait_until_whole()
            for inject in injections:
                trial.load()
                inject(trial)
            trial.load()
            end(trial)
        except JobEnded as ended:
            return str(ended) or ended_early
        return trial.wait_for_end()


def _run_source(
    make_job: MakeJob, injections: Sequence[Inject], records: int, write: Callable[[range], object] | None
) -> Evidence:
    """Runs a job with a source to its end. ``write``: None for a source that ends after ``records``."""
    with _folder() as folder:
        trial = ProcessTrial(make_job, Path(folder) / "job", STEP, write=write or _nothing)
        if write is None:  # all were written before, and the job may end before the last fault
            failure = _run(trial, injections, _nothing, "")
        else:
            failure = _run(trial, injections, _stop)
        evidence = _judged_source(trial.rows(), records if write is None else trial.goal)
        return replace(evidence, injected=trial.injected, failure=failure)


def _stop(trial: ProcessTrial) -> None:
    """Stops a job whose source has no end, once nothing more comes."""
    trial.wait_for_rows(trial.goal, QUIET_S)
    trial.stop()


def _nothing(_: object) -> None:
    """Does nothing: all records were written before, and the source ends."""


def _judged_sink(trial: ProcessTrial, failure: str, read: Callable[[], Iterable[Any]]) -> Evidence:
    """Compares both outputs. Raises InternalError: the job's own one is not exactly-once."""
    rows = trial.rows()
    expected = dict(map(pair_of, rows))
    if not failure and (len(rows), sorted(expected)) != (trial.goal, list(range(trial.goal))):
        raise InternalError("the files of the check do not have each row once.")
    more = {"injected": trial.injected, "announced": announced_by(trial.alarms, trial.goal), "failure": failure}
    return judged(expected, map(pair_of, read()), **more)


def _judged_source(rows: Iterable[dict[str, int]], written: int) -> Evidence:
    return judged({number: number for number in range(written)}, ((row["n"], row["n"]) for row in rows))


def _trials(names: Iterable[str], outages: Outages | None) -> dict[str, Sequence[Inject]]:
    """Returns the faults of each trial. Raises JobError: a trial is unknown."""
    chosen = list(names)
    unknown = sorted(set(chosen) - set(TRIALS))
    if unknown:
        raise JobError(f"trials= has {unknown[0]!r}, but the trials are {', '.join(TRIALS)}; others are outages=.")
    taken = sorted(set(outages or {}) & set(TRIALS))
    if taken:
        raise JobError(f"outages= has {taken[0]!r}, which is the name of a trial: choose another one.")
    found = {name: TRIALS[name] for name in chosen}
    return found | {name: [partial(ProcessTrial.outage, outage=call)] * 2 for name, call in (outages or {}).items()}


def _checked(made: Any, kinds: tuple[type, ...], word: str) -> Any:
    """Returns the connector. Raises JobError: it is none."""
    if not isinstance(made, kinds):
        raise JobError(f"make= returned {made!r:.100}, but a {word} is expected (docs/connectors.md, Your own).")
    return made


def _is_tested(sink: object) -> bool:
    """Returns whether a sink of the simulated job is the one under test."""
    return not isinstance(sink, CollectSink)


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="clonos-check-")
