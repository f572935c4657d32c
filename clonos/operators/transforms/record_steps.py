"""Functions and steps behind sample, peek, branch, split and iterate: they handle each record alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import repeat
from typing import Any, Final

from clonos.core.values import encode_value
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.facts import Facts, KnownInputs, facts_of
from clonos.operators.operator import Operator, Times
from clonos.operators.steps import stateless
from clonos.operators.steps.function_results import checked

HASH_BYTES: Final = 8


def sample(given: KnownInputs, fraction: float, seed: int) -> Facts:
    """Returns the facts of a sample, whose columns stay columns."""
    make = partial(FilterColumns if given.has_columns else stateless.Filter, Sampled(fraction, seed))
    return facts_of(make, given)


def peek(given: KnownInputs, function: Callable[[Any], object]) -> Facts:
    """Returns the facts of a look at records, whose columns stay columns."""
    make = partial(PeekColumns if given.has_columns else stateless.Map, PeekFunction(function))
    return replace(facts_of(make, given, function), passes_records=True)


class Sampled:
    """Predicate that is true for a fraction of all records: those whose hash is small.

    The hash is blake2b of the encoded record with the seed as its key, so it is the same in every run and process.
    """

    def __init__(self, fraction: float, seed: int) -> None:
        self._bound = round(fraction * (1 << 8 * HASH_BYTES))
        self._key = str(seed).encode()

    def __call__(self, record: Any) -> bool:
        digest = blake2b(encode_value(record), digest_size=HASH_BYTES, key=self._key).digest()
        return int.from_bytes(digest) < self._bound


class PeekFunction:
    """Function that calls ``function`` with a record and returns the record."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._function = function

    def __call__(self, record: Any) -> Any:
        self._function(record)
        return record


class PeekColumns(stateless.Map):
    """Function that is called with each record; columns pass on as they came, without the records that fail."""

    takes_columns = True
    passes_columns = True

    def columns(self, batch: RecordBatch) -> None:
        rows, batch = self.python_rows(batch)
        _, failed = self.guard.each(self._function, rows)
        _pass_on(self.out, batch, [place not in failed for place in range(len(rows))] if failed else None)


class FilterColumns(stateless.Filter):
    """Selection of the records for which the predicate is true; columns stay columns."""

    takes_columns = True
    passes_columns = True

    def columns(self, batch: RecordBatch) -> None:
        is_chosen: list[bool] = []
        rows, batch = self.python_rows(batch)
        for index in self.guard.run(lambda records: self._choose(records, is_chosen), rows):
            is_chosen.insert(index, False)  # its predicate raised
        _pass_on(self.out, batch, None if all(is_chosen) else is_chosen)


def _pass_on(out: Operator, batch: RecordBatch, is_chosen: list[bool] | None) -> None:
    """Passes on the chosen records of a batch, all for None."""
    if is_chosen is not None:
        import pyarrow  # loaded only if there are columns

        batch = batch.filter(pyarrow.array(is_chosen))
    if batch.num_rows:
        out.columns(batch)


class Iterated:
    """Function that repeats ``function`` on its own result until that is None, at most ``times_max`` times."""

    def __init__(self, function: Callable[[Any], Any], times_max: int) -> None:
        self._function = function
        self._times_max = times_max

    def __call__(self, record: Any) -> Any:
        for _ in range(self._times_max):
            following = self._function(record)
            if following is None:
                break
            record = checked("iterate", following)
        return record


class Branch(Operator):
    """Division of the stream: a record goes to the side output of the first predicate that is true for it."""

    runs_user_code = True
    is_per_record = True
    selects_rows = True

    @classmethod
    def facts(cls, given: KnownInputs, predicates: tuple[Callable[[Any], object] | bool, ...]) -> Facts:
        """Returns those for the arguments of the operator."""
        functions = [each for each in predicates if not isinstance(each, bool)]
        facts = facts_of(partial(cls, predicates), given, *functions)
        return replace(facts, side_tags=branch_tags(len(predicates)))

    def __init__(self, predicates: tuple[Callable[[Any], object] | bool, ...]) -> None:
        self._rest = next((index for index, each in enumerate(predicates) if each is True), None)
        self._asked = [(index, each) for index, each in enumerate(predicates[: self._rest]) if callable(each)]
        self._tags = branch_tags(len(predicates))

    def rows(self, rows: list[Any], times: Times = None) -> None:
        parts: list[tuple[list[Any], list[int]]] = [([], []) for _ in self._tags]
        left = repeat(0) if times is None else iter(times)
        self.guard.run(lambda records: self._divide(zip(records, left, strict=False), parts), rows)
        for tag, (chosen, their_times) in zip(self._tags, parts, strict=True):
            if chosen and tag in self.side_outputs:
                self.side_outputs[tag].rows(chosen, None if times is None else their_times)

    def _divide(self, timed: Iterator[tuple[Any, int]], parts: list[tuple[list[Any], list[int]]]) -> None:
        asked = [(predicate, parts[index][0].append, parts[index][1].append) for index, predicate in self._asked]
        records, times = ([], []) if self._rest is None else parts[self._rest]
        keeps_rest = self._rest is not None
        for record, time in timed:
            for predicate, add, add_time in asked:
                if predicate(record):
                    add(record)
                    add_time(time)
                    break
            else:
                if keeps_rest:
                    records.append(record)
                    times.append(time)


def branch_tags(count: int) -> tuple[str, ...]:
    """Returns the tags of the side outputs of ``count`` branches."""
    return tuple(map(str, range(count)))


class OneBranch(Operator):
    """Records of one branch, which is a side output of the step before."""

    is_per_record = True
    selects_rows = True
    changes_rows = False

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(rows, times)
