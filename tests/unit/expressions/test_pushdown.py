"""A condition is split into what statistics of a file can refute, and the rest."""

from __future__ import annotations

from typing import Any

import pyarrow
from hypothesis import given, settings

from clonos import Expr, col
from clonos.expressions.program import Program
from clonos.expressions.pushdown import Comparison, split_condition
from clonos.expressions.stages import Stage
from tests.unit.expressions.expression_texts import batches, conditions, overflows
from tests.unit.expressions.test_against_polars import ours


def test_comparisons_with_constants_are_found_on_both_sides_of_and() -> None:
    condition = (
        (col("a") > 1)
        & (5 >= col("b"))  # noqa: SIM300
        & (col("c") + 1 == 2)
        & col("d").is_in([1, 2])
        & col("e").is_between(0, 9, closed="left")
        & col("f").is_not_null()
        & ((col("a") > 3) | (col("b") > 3))
    )
    comparisons, rest = split_condition(condition)
    assert comparisons == (
        Comparison("a", ">", 1),
        Comparison("b", "<=", 5),
        Comparison("d", "is_in", (1, 2)),
        Comparison("e", ">=", 0),
        Comparison("e", "<", 9),
        Comparison("f", "is_not_null"),
    )
    assert repr(rest) == "(col('c') + 1 == 2) & ((col('a') > 3) | (col('b') > 3))"


def test_nothing_is_left_of_comparisons_alone_and_all_of_other_conditions() -> None:
    assert split_condition(col("a") == 1) == ((Comparison("a", "==", 1),), None)
    comparisons, rest = split_condition(~(col("a") == 1))
    assert (comparisons, repr(rest)) == ((), "~(col('a') == 1)")


def as_expression(comparison: Comparison) -> Expr:
    """Returns a comparison as an expression."""
    column: Any = col(comparison.column)
    if comparison.comparator in ("is_in", "is_null", "is_not_null"):
        arguments = () if comparison.value is None else (comparison.value,)
        found: Expr = getattr(column, comparison.comparator)(*arguments)
        return found
    return column.made_into(comparison.comparator, comparison.value)  # type: ignore[no-any-return]


@settings(max_examples=50, deadline=None)
@given(batches(), conditions(3))
def test_the_parts_of_a_condition_leave_the_records_that_the_whole_leaves(batch: Any, text: str) -> None:
    condition = ours(text)
    comparisons, rest = split_condition(condition)
    parts = [*map(as_expression, comparisons), *([] if rest is None else [rest])]
    whole = Program([Stage("filter", "filter", (("condition", condition),))], batch.schema)
    fitting = [index for index in range(batch.num_rows) if not overflows(whole, batch.slice(index, 1))]
    numbered = batch.append_column("number", pyarrow.array(range(batch.num_rows))).take(pyarrow.array(fitting, "int64"))
    assert chosen(numbered, [condition]) == chosen(numbered, parts)


def chosen(batch: Any, filters: list[Expr]) -> list[int]:
    """Returns the numbers of the records that pass all filters."""
    stages = [Stage("filter", "filter", (("condition", each),)) for each in filters]
    result = Program([*stages, Stage("select", "select", (("number", col("number")),))], batch.schema).run(batch)
    return [] if result is None else result.column("number").to_pylist()
