"""Steps on columns: select, with_columns, drop and rename; ``filter`` with an expression is one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack

from clonos.api.columns.schemas import schema_of
from clonos.api.common import Common, StandbyMode
from clonos.api.graph_errors import ColumnsNeeded, InvalidJob
from clonos.api.plan.step_texts import reason_for_rows
from clonos.api.step import StepInput
from clonos.api.steps import GraphBuilder
from clonos.api.themes import Theme
from clonos.expressions.expression import Expr, as_column, checked_name
from clonos.expressions.foreign import as_foreign
from clonos.expressions.stages import Stage
from clonos.operators.columnar.column_step import ColumnStep

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")


class Condition(Protocol):
    """Expression of a bool: one of clonos, pyarrow.compute or Polars."""

    def is_null(self) -> Any:
        """Returns whether the value is null."""

    def __invert__(self) -> Any: ...


def expression_of(given: Any) -> Expr | None:
    """Returns an expression of clonos, pyarrow or Polars as a node, None if the value is none."""
    return given if isinstance(given, Expr) else as_foreign(given)


class Selecting(Theme, Generic[T]):
    """Steps of a stream of columns that compute, choose and name columns."""

    def select(
        self,
        *columns: Any,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
        **named: Any,
    ) -> Stream[dict[str, Any]]:
        """Leaves the given columns, in this order: names, expressions, and expressions by the name of their result.

        The stream must be one of columns. Expressions are those of ``col``, of ``pyarrow.compute`` or of Polars.

        Raises:
            ColumnsNeeded: the stream is one of rows.
            InvalidExpression: a column does not exist, or a type does not fit.
            InvalidJob: two columns have one name, or the column of the timestamps is computed anew.
        """
        common = Common(name=name, parallelism=parallelism, standby=standby)
        chosen = _named(name or "select", columns, named)
        if not chosen:
            raise InvalidJob(name or "select", "gets no column", 'Name what to keep: select("a", total=col("a") * 2).')
        return self._stream(add_stage(self, "select", common, chosen))

    def with_columns(
        self,
        *columns: Any,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
        **named: Any,
    ) -> Stream[dict[str, Any]]:
        """Adds columns, or replaces those of the same name; the others stay. The arguments are those of ``select``.

        Each expression sees the columns as they were before the step.

        Raises:
            ColumnsNeeded: the stream is one of rows.
            InvalidExpression: a column does not exist, or a type does not fit.
            InvalidJob: two columns have one name, or the column of the timestamps is computed anew.
        """
        common = Common(name=name, parallelism=parallelism, standby=standby)
        added = _named(name or "with_columns", columns, named)
        if not added:
            raise InvalidJob(name or "with_columns", "gets no column", 'Write with_columns(total=col("a") * 2).')
        return self._stream(add_stage(self, "with_columns", common, added))

    def drop(self, *columns: str, **common: Unpack[Common]) -> Stream[dict[str, Any]]:
        """Leaves out columns.

        Raises:
            ColumnsNeeded: the stream is one of rows.
            InvalidExpression: a column does not exist.
            ExpressionMisused: a name is no text.
        """
        names = tuple(dict.fromkeys(checked_name("drop", each) for each in columns))
        return self._stream(add_stage(self, "drop", common, (), names))

    def rename(self, columns: Mapping[str, str], **common: Unpack[Common]) -> Stream[dict[str, Any]]:
        """Renames columns: ``{"old": "new"}``. Their order stays.

        Raises:
            ColumnsNeeded: the stream is one of rows.
            InvalidExpression: a column does not exist, or two would have one name.
            InvalidJob: ``columns`` is no mapping of names.
        """
        if not isinstance(columns, Mapping):
            raise InvalidJob(
                common.get("name") or "rename", f"gets {columns!r:.80}", 'Give a mapping: rename({"old": "new"}).'
            )
        renamed = tuple(
            (checked_name("rename", new), as_column(checked_name("rename", old))) for old, new in columns.items()
        )
        return self._stream(add_stage(self, "rename", common, renamed))


def add_condition(stream: GraphBuilder, condition: Expr, par: int | None, common: Common) -> tuple[StepInput, ...]:
    """Adds a filter by an expression.

    Raises: ColumnsNeeded, InvalidExpression: the stream is one of rows, or the expression does not fit its columns.
        InvalidJob: it has ``par``.
    """
    if par is not None:
        raise InvalidJob(
            common.get("name") or "filter", f"has an expression and par={par!r:.80}", "Leave out par: nothing waits."
        )
    return add_stage(stream, "filter", common, (("condition", condition),))


def _named(step: str, columns: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[str, Expr], ...]:
    """Returns expressions with the names of their results.

    Raises: InvalidJob: two have one name.
    """
    pairs = [*((None, each) for each in _flat(columns)), *named.items()]
    found: dict[str, Expr] = {}
    for name, given in pairs:
        found_expression = expression_of(given)
        expression = as_column(given) if found_expression is None else found_expression
        result = expression.output_name() if name is None else name
        if result in found:
            raise InvalidJob(
                step, f"gives two columns the name {result!r}", 'Name one of them with .alias("..."), or by a keyword.'
            )
        found[result] = expression
    return tuple(found.items())


def _flat(columns: tuple[Any, ...]) -> Iterator[Any]:
    for each in columns:
        if isinstance(each, list | tuple):
            yield from each
        else:
            yield each


def add_stage(
    stream: GraphBuilder,
    kind: str,
    common: Common,
    columns: tuple[tuple[str, Expr], ...],
    dropped: tuple[str, ...] = (),
) -> tuple[StepInput, ...]:
    """Adds a step on columns.

    Raises: ColumnsNeeded, InvalidJob: the stream is one of rows, or its timestamps would be lost.
        InvalidExpression: a column does not exist, or a type does not fit.
    """
    graph, inputs = stream._graph, stream._inputs
    name = common.get("name") or kind
    for each in inputs:
        reason = reason_for_rows(each, graph.steps)
        if reason or not graph.gives_columns(each):
            raise ColumnsNeeded(name, graph.steps[each.step].name, reason)
    stage = Stage(name, kind, columns, dropped)
    schemas = [schema for each in inputs if (schema := schema_of(graph.steps, each)) is not None]
    for schema in schemas:
        from clonos.expressions.program import schema_after

        schema_after([stage], schema)
    stage = replace(stage, is_checked=len(schemas) == len(inputs))
    if graph.have_same_times(name, inputs) and (column := graph.steps[inputs[0].step].timestamp_column) is not None:
        _check_not_computed(stage, column.name)
    return stream._step(kind, partial(ColumnStep.facts, stage=stage), common)


def _check_not_computed(stage: Stage, column: str) -> None:
    """Checks that a stage leaves the column of the timestamps as it is, or out.

    Raises: InvalidJob: it is computed anew.
    """
    if stage.renamed(column) is None and column in dict(stage.columns):
        raise InvalidJob(
            stage.step,
            f"computes the column {column!r} anew, which has the timestamps of the stream",
            "Give the result another name, or the stream other timestamps with with_timestamps in front of this step.",
        )
