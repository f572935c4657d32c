"""aggregate of streams with and without keys: several named aggregates in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Never, TypeVar

from clonos.api.checks.split_checks import check_split, check_split_emission, checked_split
from clonos.api.columns.column_checks import check_aggregates
from clonos.api.common import Common, CommonWithEffects, StandbyMode
from clonos.api.emission import check_emission
from clonos.api.graph_errors import InvalidJob
from clonos.api.themes import Theme
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.aggregates.partial import Merging, Partial
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.emission_times import Emission
from clonos.operators.kinds.total_kind import name_before
from clonos.operators.steps.totals import AFTER_EACH, aggregate

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
K = TypeVar("K")

KIND: Final = "aggregate"

NAME_THEM: Final = 'Give each a name, as in aggregate(n=count(), total=sum_("price")), from clonos.agg.'

BUILT_IN: Final = (
    (max, "max_('field')"),
    (min, "min_('field')"),
    (sum, "sum_('field')"),
    (len, "count()"),
    (set, "distinct('field')"),
    (list, "collect()"),
)
"""Functions of Python that users take for aggregates, and the calls that they mean."""


class Aggregating(Theme, Generic[T]):
    """Base of ``Stream`` with ``aggregate``."""

    def aggregate(
        self,
        *unnamed: Never,
        emit: Emission = AFTER_EACH,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: StandbyMode | None = None,
        **aggregates: Aggregation[T, Any],
    ) -> Stream[dict[str, Any]]:
        """Aggregates all records in one task, in one pass, and emits a dict with the result of each aggregate.

        With ``emit=at_end()`` and aggregates that ignore the order of records, the tasks of the step before aggregate
        their own records first. Without a record, ``at_end()`` emits the results of none.

        Args:
            emit: ``each(n)`` for every n-th record, ``every("5s")`` if something has changed, ``changes()`` for each
                batch of input, or ``at_end()``. What is left is emitted when the input ends.
            aggregates: aggregates of ``clonos.agg``, by the names that they have in the results.

        Raises:
            InvalidJob: something is no aggregate or has no name, ``emit`` is none of these, or ``parallelism`` is not
                1.

        Example::

            orders.aggregate(n=count(), total=sum_("cents"), emit=at_end())
        """
        _check_named(name, unnamed)
        if parallelism not in (None, 1):
            raise InvalidJob(
                name or KIND,
                f"has the parallelism {parallelism!r}, and an aggregate without a key is in one task",
                "Leave it out, or call key_by before it.",
            )
        common = CommonWithEffects(name=name, parallelism=1, standby=standby, effects=effects)
        return _aggregated(self, aggregates, emit, False, common)


class KeyedAggregating(Theme, Generic[K, T]):
    """Base of ``KeyedStream`` with ``aggregate``."""

    def aggregate(
        self,
        *unnamed: Never,
        emit: Emission = AFTER_EACH,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: StandbyMode | None = None,
        split_hot_keys: bool = False,
        **aggregates: Aggregation[T, Any],
    ) -> Stream[tuple[K, dict[str, Any]]]:
        """Aggregates the records of each key in one pass, and emits (key, results): a dict with each aggregate.

        Args:
            emit: ``each(n)`` for every n-th record of a key, ``every("5s")`` for all keys that have changed, in the
                order of their first change, ``changes()`` for the keys in each batch of input, or ``at_end()`` for all
                keys, in the order of their first records. What is left is emitted when the input ends.
            split_hot_keys: whether the tasks in front aggregate the records of each batch first, so that a key with a
                large share of the records does not limit the task that it belongs to. ``emit`` is then ``changes()``,
                ``every("5s")`` or ``at_end()``.
            aggregates: aggregates of ``clonos.agg``, by the names that they have in the results.

        Raises:
            InvalidJob: something is no aggregate, ``emit`` is none of these, or the aggregates cannot be split.

        Example::

            orders.key_by("customer").aggregate(n=count(), total=sum_("cents"), p95=quantile("cents", 0.95))
        """
        _check_named(name, unnamed)
        common = CommonWithEffects(name=name, parallelism=parallelism, standby=standby, effects=effects)
        is_split = checked_split(name or KIND, split_hot_keys)
        return _aggregated(self, aggregates, emit, True, common, is_split)


def _check_named(step: str | None, unnamed: tuple[Any, ...]) -> None:
    if unnamed:
        raise InvalidJob(step or KIND, f"gets {unnamed[0]!r:.80} without a name", NAME_THEM)


def named_of(step: str | None, aggregates: Mapping[str, Any]) -> Named[Any]:
    """Combines the keywords of ``aggregate``.

    Raises: InvalidJob: there are none, or one is no aggregate.
    """
    step_name = step if isinstance(step, str) else KIND
    if isinstance(step, Aggregation):
        raise InvalidJob(step_name, "gets an aggregate as name=, which names the step", "Give the result another name.")
    if not aggregates:
        raise InvalidJob(step_name, "gets no aggregates", NAME_THEM)
    for name, aggregation in aggregates.items():
        if isinstance(aggregation, Aggregation):
            continue
        own = "Use the aggregates of clonos.agg, or aggregate() of it with functions of your own."
        if callable(aggregation):
            text = getattr(aggregation, "__name__", "a function")
            meant = next((call for function, call in BUILT_IN if function is aggregation), "")
            if meant:
                advice = f"Use {meant.partition('(')[0]} of clonos.agg: {name}={meant}."
                raise InvalidJob(step_name, f"gets {name}={text}, a function of Python and no aggregate", advice)
            raise InvalidJob(
                step_name, f"gets {name}={text}, a function and no aggregate", f"Call it, as in count(). {own}"
            )
        if isinstance(aggregation, TransactionalSink):  # of the same name
            own = f"It is a sink: write {name}=agg.collect(), with from clonos import agg."
        raise InvalidJob(step_name, f"gets {name}={aggregation!r:.80}, which is no aggregate", own)
    return Named(aggregates)


def _aggregated(
    stream: Theme,
    aggregates: Mapping[str, Any],
    emit: Emission,
    is_keyed: bool,
    common: CommonWithEffects,
    is_split: bool = False,
) -> Stream[Any]:
    named = named_of(common.get("name"), aggregates)
    check_emission(common.get("name") or KIND, emit, has_names=True)
    if emit.has_before:
        _check_names_before(common.get("name") or KIND, named)
    check_aggregates(stream._graph, stream._inputs, common.get("name") or KIND, named)
    if is_split:
        check_split_emission(common.get("name") or KIND, emit)
        check_split(common.get("name") or KIND, named, has_effects=common.get("effects", False))
    is_final = emit.is_final
    if is_final and not is_keyed and named.ignores_order and named.can_merge:
        return _in_two_steps(stream, named, emit, common)
    definition = partial(aggregate, aggregation=named, emit=emit, is_keyed=is_keyed, is_split=is_split)
    return stream._stream(stream._step(KIND, definition, common))


def _check_names_before(step: str, named: Named[Any]) -> None:
    for name in named.aggregations:
        if name_before(name) in named.aggregations:
            raise InvalidJob(
                step,
                f"names a result {name_before(name)!r}, as changes(before=True) names the replaced {name!r}",
                "Give one of them another name.",
            )


def _in_two_steps(stream: Theme, named: Named[Any], emit: Emission, common: Common) -> Stream[Any]:
    """Aggregates in the tasks of the step before, and the accumulators in one task at the end."""
    upstreams = [stream._graph.steps[each.step] for each in stream._inputs]
    parallelism = upstreams[0].parallelism if len(upstreams) == 1 else None
    name = common.get("name") and f"{common['name']}-partial"
    first: Common = {**common, "name": name, "parallelism": parallelism}
    partially, merged = (
        partial(aggregate, aggregation=each, emit=emit, is_keyed=False) for each in (Partial(named), Merging(named))
    )
    parts = stream._stream(stream._step("aggregate_partial", partially, first))
    return stream._stream(parts._step(KIND, merged, common))
