"""Calls of expressions of pyarrow.compute and Polars, over the columns that they read."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import pyarrow

from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind, NotComputable
from clonos.expressions.functions.binder import ARROW_ERRORS, Binder, BoundValue
from clonos.kernels.record_batch import RecordBatch

RESULT: Final = "result"

PLAIN: Final = {
    pyarrow.large_string(): pyarrow.string(),
    pyarrow.string_view(): pyarrow.string(),
    pyarrow.large_binary(): pyarrow.binary(),
    pyarrow.binary_view(): pyarrow.binary(),
}
"""Types of Arrow for the types in which Polars gives texts and bytes."""


def foreign(binder: Binder, node: Expr, columns: Mapping[str, BoundValue]) -> BoundValue:
    """Binds an expression of another library; all its columns are there.

    Raises: CannotBind: it does not fit the types of the columns.
    """
    names = list(node.option("names"))
    compute = _arrow(node.option("expression")) if node.function == "arrow" else _polars(node.option("serialized"))
    inputs = [columns[name] for name in names]

    def kernel(*arrays: Any) -> Any:
        try:
            return compute(pyarrow.RecordBatch.from_arrays(list(arrays), names=names))
        except Exception as error:
            raise NotComputable(str(error).splitlines()[0]) from error

    try:
        type_ = kernel(*(pyarrow.array([], each.type) for each in inputs)).type
    except ARROW_ERRORS as error:
        raise CannotBind("", str(error)) from None
    return binder.call(node.function, kernel, *inputs, type_=type_, options=node.option("text"))


def _arrow(expression: Any) -> Callable[[Any], Any]:
    def compute(batch: RecordBatch) -> Any:
        from pyarrow import acero

        table = pyarrow.Table.from_batches([batch])
        plan = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
                acero.Declaration("project", acero.ProjectNodeOptions([expression], [RESULT])),
            ]
        )
        return _one_array(plan.to_table(use_threads=False).column(RESULT))

    return compute


def _polars(serialized: bytes) -> Callable[[Any], Any]:
    def compute(batch: RecordBatch) -> Any:
        polars = import_module("polars")
        expression = polars.Expr.deserialize(io.BytesIO(serialized))
        frame = polars.from_arrow(batch).select(expression.alias(RESULT))
        found = _one_array(frame.to_arrow().column(RESULT))
        return found.cast(PLAIN.get(found.type, found.type))

    return compute


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
