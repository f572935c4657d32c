"""Facts of aggregates over the whole input, by when they emit: count, fold and aggregate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from clonos.core.values.copying import copied
from clonos.operators.aggregates.aggregate import Aggregation, Named, UserFunction
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.custom import Custom
from clonos.operators.aggregates.partial import MergingParts, Partial
from clonos.operators.columnar.running.total_forms import RunningForm
from clonos.operators.columnar.support import columns_read, name_reason, reason_for_rows
from clonos.operators.emission_times import Emission
from clonos.operators.facts import Facts, KnownInputs, facts_of, with_form
from clonos.operators.kinds.object_totals import ObjectTotalKind
from clonos.operators.kinds.partial_rows import PartialRows
from clonos.operators.operator import Operator
from clonos.operators.steps.keyed import RunningCount
from clonos.operators.steps.running_aggregates import (
    ChangedTotals,
    FinalTotal,
    FinalTotals,
    PacedTotals,
    RunningTotals,
)

COUNT_COLUMN: Final = "count"
"""Column that a running count gives beside the key."""

AFTER_EACH: Final = Emission(count=1)
CHANGES: Final = Emission(is_per_batch=True)


def count(given: KnownInputs, is_split: bool = False) -> Facts:
    """Returns the facts of a running count of the records of each key. ``is_split``: see ``aggregate``."""
    if is_split:
        kind = ObjectTotalKind(MergingParts(Count()), is_keyed=True)
        facts = facts_of(partial(_paced(CHANGES), given.step, kind), given)
        facts = replace(facts, key_field="", state=(), splits=_splits(given, Count()))
        named, chooser = Named({COUNT_COLUMN: Count()}), _paced(CHANGES)
        return _over_columns(facts, given, named, CHANGES, chooser, is_keyed=True, is_count=True, is_split=True)
    facts = facts_of(partial(RunningCount, given.step), given)
    named = Named({COUNT_COLUMN: Count()})
    return _over_columns(facts, given, named, AFTER_EACH, RunningTotals, is_keyed=True, is_count=True)


def fold(
    given: KnownInputs, initial: Any, function: Callable[[Any, Any], Any], emit: Emission, is_keyed: bool
) -> Facts:
    """Returns the facts of a fold, which begins with a copy of ``initial``."""
    aggregation = Custom(partial(copied, initial), function, None, None)
    kind = ObjectTotalKind(aggregation, is_keyed=is_keyed)
    facts = facts_of(partial(_paced(emit), given.step, kind), given)
    return replace(
        facts,
        calls=(UserFunction(function, None),),
        key_field="" if is_keyed else None,
        state=(("emit", str(emit)),),
        emits_at_end=emit.is_final,
    )


def aggregate(
    given: KnownInputs,
    aggregation: Aggregation[Any, Any],
    emit: Emission,
    is_keyed: bool,
    is_split: bool = False,
) -> Facts:
    """Returns the facts of an aggregation of all records, or of those of each key.

    ``is_split``: tasks in front of the exchange by key aggregate their own records first.
    """
    merged = MergingParts(aggregation) if is_split else aggregation
    chooser, kind = _operator(aggregation, emit, is_keyed), ObjectTotalKind(merged, is_keyed=is_keyed)
    facts = replace(
        facts_of(partial(chooser, given.step, kind), given),
        calls=aggregation.functions,
        names_columns=not aggregation.functions,
        key_field="" if is_keyed else None,
        state=(("aggregates", repr(aggregation)), ("emit", str(emit))),
        emits_at_end=emit.is_final,
        ignores_order=emit.is_final and aggregation.ignores_order,
        splits=_splits(given, aggregation) if is_split else None,
    )
    return _over_columns(facts, given, aggregation, emit, chooser, is_keyed=is_keyed, is_split=is_split)


def _splits(given: KnownInputs, aggregation: Aggregation[Any, Any]) -> Callable[[], Operator]:
    return partial(PartialRows, given.step, None, aggregation, False)


def _operator(aggregation: Aggregation[Any, Any], emit: Emission, is_keyed: bool) -> Callable[..., Operator]:
    if emit.count == 1:
        return RunningTotals
    if not emit.is_final:
        return _paced(emit)
    is_part = isinstance(aggregation, Partial)
    return FinalTotals if is_keyed or is_part else partial(FinalTotal, aggregation=aggregation)


def _paced(emit: Emission) -> Callable[..., Operator]:
    if emit.is_per_batch:
        return partial(ChangedTotals, has_before=emit.has_before)
    return partial(PacedTotals, count=emit.count, interval_ns=emit.interval_ns)


def _over_columns(
    facts: Facts,
    given: KnownInputs,
    aggregation: Aggregation[Any, Any],
    emit: Emission,
    chooser: Callable[..., Operator],
    *,
    is_keyed: bool,
    is_count: bool = False,
    is_split: bool = False,
) -> Facts:
    """Adds the form over columns, or the reason for which there is none. ``is_count``: it is that of ``count``."""
    is_part = isinstance(aggregation, Partial)
    aggregation = aggregation.aggregation if isinstance(aggregation, Partial) else aggregation
    has_members = emit.count is None
    facts = replace(facts, row_reason=reason_for_rows(aggregation, has_members=has_members))
    keys = given.keys[0] if is_keyed else ()
    reads = columns_read(aggregation, has_members=has_members)
    if not (keys if is_keyed else given.has_columns) or reads is None or not isinstance(aggregation, Named):
        return facts
    time = given.timestamp_column
    time_name = None if time is None else time.name
    form = RunningForm(aggregation, keys, emit, chooser, is_count, is_part, time_name, is_split)
    if not is_keyed and emit.is_final:
        return with_form(facts, form)
    if reason := name_reason(form.names):
        return replace(facts, row_reason=reason)
    return replace(with_form(facts, form), reads=reads if is_keyed else reads or None)
