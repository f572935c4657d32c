"""Columns and rows that sources need not read, because no step uses them: found in the plan of a job.

A source of columns gets the columns that steps use, and the comparisons that each record fulfils which passes the
filters behind it. Results do not change. A source with timestamps gets no comparisons: what it did not read would not
move event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clonos.api.graph import Step, StepInput
from clonos.api.plan.schemas import KEEPING
from clonos.expressions.expression import Expr
from clonos.expressions.foreign import ForeignExpr
from clonos.expressions.pushdown import Comparison, split_condition
from clonos.operators.column_contract import NarrowableSource

COUNTING: Final = ("count", "window_count")
"""Kinds of steps that use the key of a record alone."""

Columns = frozenset[str] | None
"""Names of columns; None for all."""

NONE: Final[frozenset[str]] = frozenset()


def narrowed_source(step: Step, steps: Sequence[Step], sources: Mapping[int, Any]) -> Any:
    """Returns the source to read for a step of a job. ``sources`` stand in place of those of their steps, by number."""
    source = sources.get(step.number, step.source)
    if not isinstance(source, NarrowableSource):
        return source
    used = _used_columns(steps)[step.number]
    comparisons = () if step.assigner is not None else tuple(_comparisons(step, steps))
    return source.narrowed(used, comparisons)


def _readers(step: Step, steps: Sequence[Step]) -> list[tuple[Step, StepInput]]:
    return [(reader, each) for reader in steps for each in reader.inputs if each.step == step.number]


def _used_columns(steps: Sequence[Step]) -> list[Columns]:
    """Returns the columns of the results of each step that its readers use."""
    used: list[Columns] = [NONE] * len(steps)
    for step in reversed(steps):
        times: Columns = NONE if step.timestamp_column is None else frozenset({step.timestamp_column.name})
        if step.assigner is not None and step.assigner.strategy.functions:
            times = None  # a strategy of the user gets the records
        found = [_used_by(reader, each, steps, used) for reader, each in _readers(step, steps)]
        used[step.number] = _union([times, *found])
    return used


def _used_by(reader: Step, step_input: StepInput, steps: Sequence[Step], used: Sequence[Columns]) -> Columns:
    """Returns the columns of an input that a step and those behind it use."""
    key = None if step_input.key is None else step_input.key.key
    if step_input.tag or step_input.route is not None or not (key is None or isinstance(key, str)):
        return None
    keys = NONE if key is None else frozenset({key})
    if reader.stage is not None:
        return _union([keys, reader.stage.reads(used[reader.number])])
    if reader.kind in COUNTING and key is not None:
        has_side = any(each.tag for _, each in _readers(reader, steps))
        return None if has_side else keys
    if reader.kind in KEEPING and reader.emits_columns:
        times = NONE if reader.timestamp_column is None else frozenset({reader.timestamp_column.name})
        return _union([keys, times, used[reader.number]])
    return None


def _union(several: Iterable[Columns]) -> Columns:
    found = NONE
    for each in several:
        if each is None:
            return None
        found |= each
    return found


def _comparisons(step: Step, steps: Sequence[Step]) -> Iterable[Comparison]:
    """Yields what holds for each record that passes the filters directly behind a source."""
    while True:
        readers = _readers(step, steps)
        if len(readers) != 1:
            return
        ((reader, step_input),) = readers
        is_filter = reader.stage is not None and reader.stage.kind == "filter"
        if not is_filter or step_input.tag or step_input.key is not None:
            return
        assert reader.stage is not None, "a filter on columns has a stage"
        ((_, condition),) = reader.stage.columns
        if _may_fail(condition):  # for a record that would not be read
            return
        yield from split_condition(condition).comparisons
        step = reader


def _may_fail(expression: Expr) -> bool:
    """Returns whether an expression raises for some values."""
    is_failing = expression.function == "cast" or isinstance(expression, ForeignExpr)
    return is_failing or any(map(_may_fail, expression.inputs))
