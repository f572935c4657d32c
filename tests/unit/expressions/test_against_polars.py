"""Expressions compute what Polars computes from the same code, over any types, nulls, slices and cuts of batches.

Integers that overflow are errors of their records, and wrap in Polars: such records are left out.
"""

from __future__ import annotations

from typing import Any

import polars
import pyarrow
from hypothesis import given, settings

import clonos
from clonos.expressions.expression import Expr
from clonos.expressions.program import Program
from clonos.expressions.stages import Stage
from tests.unit.expressions.expression_texts import NAMES, batches, conditions, expressions, overflows, same

FUNCTIONS = ("col", "lit", "when", "coalesce", "concat_str", "min_horizontal", "max_horizontal")
OURS: dict[str, Any] = {**NAMES, **{name: getattr(clonos, name) for name in FUNCTIONS}}
THEIRS: dict[str, Any] = {**NAMES, **{name: getattr(polars, name) for name in FUNCTIONS}}

PLAIN = {pyarrow.large_string(): pyarrow.string(), pyarrow.string_view(): pyarrow.string()}


def made(text: str, names: dict[str, Any]) -> Any:
    """Returns the expression that the code makes."""
    return eval(text, dict(names))  # noqa: S307  the code of the test itself


def ours(text: str) -> Expr:
    """Returns the expression of clonos that the code makes."""
    found = made(text, OURS)
    assert isinstance(found, Expr)
    return found


def computed(text: str, batch: Any) -> Any:
    """Returns the column that clonos computes."""
    result = Program([Stage("step", "select", (("r", ours(text)),))], batch.schema).run(batch)
    assert result is not None
    return result.column(0)


def computed_by_polars(text: str, batch: Any) -> Any:
    """Returns the column that Polars computes."""
    frame = polars.from_arrow(batch)
    assert isinstance(frame, polars.DataFrame)
    return frame.select(made(text, THEIRS).alias("r")).to_arrow().column(0).combine_chunks()


def plain_type(type_: Any) -> Any:
    """Returns a type without the ways of keeping texts in which the two differ."""
    return PLAIN.get(type_, type_)


def check_equal(text: str, found: Any, wanted: Any) -> None:
    """Checks that two columns have the same type and values."""
    assert plain_type(found.type) == plain_type(wanted.type), text
    pairs = list(zip(found.to_pylist(), wanted.to_pylist(), strict=True))
    assert all(same(*pair) for pair in pairs), (text, pairs)


def without_overflows(program: Program, batch: Any) -> Any:
    """Returns a batch with the records whose numbers fit their types."""
    parts = [batch.slice(index, 1) for index in range(batch.num_rows)]
    fitting = [not overflows(program, part) for part in parts]
    return batch if all(fitting) else batch.filter(pyarrow.array(fitting, pyarrow.bool_()))


@settings(max_examples=100, deadline=None)
@given(batches(), expressions())
def test_an_expression_computes_what_polars_computes(batch: Any, text: str) -> None:
    program = Program([Stage("step", "select", (("r", ours(text)),))], batch.schema)
    batch = without_overflows(program, batch)
    if batch.num_rows:
        check_equal(text, computed(text, batch), computed_by_polars(text, batch))


@settings(max_examples=30, deadline=None)
@given(batches(), conditions(), expressions(), expressions())
def test_steps_in_one_pass_compute_what_polars_computes(batch: Any, condition: str, first: str, second: str) -> None:
    stages = [
        Stage("added", "with_columns", (("x", ours(first)),)),
        Stage("filtered", "filter", (("condition", ours(condition)),)),
        Stage("chosen", "select", (("x", ours('col("x")')), ("y", ours(second)), ("z", ours(first)))),
    ]
    program = Program(stages, batch.schema)
    batch = without_overflows(program, batch)
    frame: Any = polars.from_arrow(batch)
    added, chosen, wanted_condition = (made(text, THEIRS) for text in (first, second, condition))
    wanted = frame.with_columns(x=added).filter(wanted_condition).select("x", y=chosen, z=added).to_arrow()
    found = program.run(batch)
    if found is None:
        assert wanted.num_rows == 0
        return
    for name in "xyz":
        check_equal(f"{condition} {first} {second}", found.column(name), wanted.column(name).combine_chunks())


@settings(max_examples=30, deadline=None)
@given(batches(), conditions(), expressions())
def test_no_result_depends_on_where_batches_are_cut(batch: Any, condition: str, text: str) -> None:
    stages = [
        Stage("filtered", "filter", (("condition", ours(condition)),)),
        Stage("added", "with_columns", (("r", ours(text)),)),
    ]
    program = Program(stages, batch.schema)
    batch = without_overflows(program, batch)
    whole = program.run(batch)
    parts = [program.run(batch.slice(index, 1)) for index in range(batch.num_rows)]
    rows = [row for part in parts if part is not None for row in part.to_pylist()]
    assert repr(rows) == repr([] if whole is None else whole.to_pylist())
