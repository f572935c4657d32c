"""Calls that give the times at which a step emits: ``each``, ``every``, ``changes`` and ``at_end``."""

from __future__ import annotations

from datetime import timedelta

from clonos.api.graph_errors import InvalidJob
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.emission_times import Emission
from clonos.operators.event_time.durations import duration_ns


@explains_calls
def each(count: int) -> Emission:
    """Emits after every ``count`` records, of a key on a keyed stream.

    Raises:
        InvalidJob: ``count`` is not an int of at least 1.
    """
    if type(count) is not int or count < 1:
        raise InvalidJob("each", f"gets {count!r:.80}", "Give the number of records: an int of at least 1.")
    return Emission(count=count)


@explains_calls
def every(interval: str | float | timedelta) -> Emission:
    """Emits at every multiple of a length of time since the Unix epoch, by the task's clock, if anything has changed.

    ``interval`` is a str such as "500ms", "5s" or "2min", a timedelta, or seconds.

    Raises:
        InvalidDuration: ``interval`` is something else.
    """
    return Emission(interval_ns=duration_ns(interval))


@explains_calls
def changes(*, before: bool = False) -> Emission:
    """Emits the present result of each key that a batch of input has changed, once per batch.

    How many results a key has depends on how its records are cut into batches, which differs between two runs of a job.
    Only the last result of each key is the same in all of them.

    With ``before``, each result also has those that it replaces, by their names with the suffix ``_before``: the last
    emitted ones of the key, None if it has none. An aggregate after it adds the new ones and subtracts these.

    Raises:
        InvalidJob: ``before`` is no bool.
    """
    if not isinstance(before, bool):
        raise InvalidJob("changes", f"has before={before!r:.80}", "Give True for the results that are replaced.")
    return Emission(is_per_batch=True, has_before=before)


@explains_calls
def at_end() -> Emission:
    """Emits once, when the input has ended."""
    return Emission()


def check_emission(step: str, emit: object, keyword: str = "emit", *, has_names: bool = False) -> None:
    """Checks the ``emit=`` of a step, or another keyword, for which ``changes()`` means nothing.

    ``has_names``: results are dicts by name, which may have the results that they replace.

    Raises: InvalidJob: it is no ``Emission``, or not for this keyword.
    """
    if isinstance(emit, Emission) and emit.has_before and not has_names:
        raise InvalidJob(
            step,
            "has emit=changes(before=True), which is for aggregate: the results of other steps have no names",
            "Give changes(), or use aggregate.",
        )
    if isinstance(emit, Emission) and emit.is_per_batch and keyword != "emit":
        raise InvalidJob(
            step,
            f"has {keyword}=changes(), which is for emit= of aggregate and fold",
            'Give each(n), every("5s") or at_end().',
        )
    if not isinstance(emit, Emission):
        raise InvalidJob(
            step,
            f"has {keyword}={emit!r:.80}",
            'Give each(n) for every n-th record, every("5s") for a length of time, or at_end().',
        )
