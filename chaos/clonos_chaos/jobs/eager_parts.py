"""Partial aggregates of all batches, small as worlds have them, whether or not they are fewer than the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from clonos.api.step_graph import StepGraph
from clonos.operators.columnar.partial_aggregates import PartialAggregates
from clonos.operators.columnar.running.total_forms import RunningForm
from clonos.operators.columnar.window_forms import SpansForm
from clonos.operators.kinds.partial_rows import PartialRows
from clonos.operators.operator import Operator
from clonos_chaos.jobs.fuzz_jobs import next_of

SPLIT_SHARE: Final = 0.5
"""Share of the steps that are split, of those that may be."""


class EagerRows(PartialRows):
    """Parts of rows."""

    rows_min: ClassVar[int] = 1
    gain_min: ClassVar[float] = 0


class EagerPartials(PartialAggregates):
    """Parts of columns."""

    rows_min: ClassVar[int] = 1
    gain_min: ClassVar[float] = 0


@dataclass(frozen=True)
class EagerSpansForm(SpansForm):
    """Form of windows."""

    def before_exchange(self, step: str) -> Callable[[], Operator] | None:
        """See ``ColumnForm``."""
        return _eager(super().before_exchange(step))


@dataclass(frozen=True)
class EagerTotalForm(RunningForm):
    """Form of aggregates over all records of a key."""

    def before_exchange(self, step: str) -> Callable[[], Operator] | None:
        """See ``ColumnForm``."""
        return _eager(super().before_exchange(step))


EAGER: Final[dict[type[Any], Any]] = {SpansForm: EagerSpansForm, RunningForm: EagerTotalForm}


def _eager(make: Any) -> Callable[[], Operator] | None:
    return make and partial(EagerPartials, *make.args)


def draws_split(rng: Random) -> bool:
    """Returns whether a step that may be split is, without a draw of its own, which would make other worlds."""
    return next_of(rng) < SPLIT_SHARE


def with_eager_parts(graph: StepGraph) -> None:
    """Makes the last step of a graph aggregate parts of all batches in front of its exchange, if it has parts."""
    step = graph.steps[-1]
    splits, form = step.splits, step.form
    if splits is not None:
        assert isinstance(splits, partial), splits
        splits = partial(EagerRows, *splits.args)
    if eager := EAGER.get(type(form)):
        form = eager(**vars(form))
    graph._steps[-1] = replace(step, splits=splits, form=form)
