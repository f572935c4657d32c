"""Program: several stages compiled for one schema, and its run over a batch in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow

from clonos.expressions.binding import bind, missing_column
from clonos.expressions.expression_errors import CannotBind, InvalidExpression, NotComputable, shortened
from clonos.expressions.functions.binder import ARROW_ERRORS, Binder, BoundValue, FilterCall
from clonos.expressions.functions.conditions import condition
from clonos.expressions.functions.value_types import settled
from clonos.expressions.stages import Stage
from clonos.kernels.record_batch import RecordBatch

COLUMNS_MAX = 40
"""Columns of a schema that an error message names."""


class Program:
    """Calls that make the columns of the last stage from those of a batch. ``schema``: that of the result."""

    def __init__(self, stages: Sequence[Stage], schema: Any) -> None:
        """Compiles the stages for a schema.

        Raises: InvalidExpression: a column is missing, or a type does not fit.
        """
        if len(set(schema.names)) < len(schema.names):
            twice = next(name for name in schema.names if schema.names.count(name) > 1)
            problem, names = f"two columns have the name {twice!r}", ", ".join(schema.names)
            raise InvalidExpression(stages[0].step, stages[0].kind, problem, names)
        binder = Binder()
        columns = {name: binder.new_value(type_) for name, type_ in zip(schema.names, schema.types, strict=True)}
        self._width = len(columns)
        for number, stage in enumerate(stages):
            binder.stage = number
            columns = _compiled(binder, stage, columns)
        self.calls = binder.calls
        self._registers: list[Any] = [binder.constants.get(number) for number in range(binder.registers)]
        self._outputs = [value.number for value in columns.values()]
        self.schema = pyarrow.schema([pyarrow.field(name, value.type) for name, value in columns.items()])
        self._prune()

    def _prune(self) -> None:
        """Leaves out what a filter would leave in columns that nobody reads after it."""
        read = set(self._outputs)
        for call in reversed(self.calls):
            if isinstance(call, FilterCall):
                call.pairs[:] = [pair for pair in call.pairs if pair[1] in read]
                read |= {call.mask, *(before for before, _ in call.pairs)}
            else:
                read |= set(call.inputs)

    def run(self, batch: RecordBatch) -> Any | None:
        """Returns the resulting batch, None if no record is left.

        Raises: NotComputable: a record has a value that an expression cannot compute.
        """
        registers = self._registers.copy()
        registers[: self._width] = batch.columns
        records = batch.num_rows
        for call in self.calls:
            if isinstance(call, FilterCall):
                records = _filtered(registers, call, records)
                if not records:
                    return None
                continue
            try:
                found = call.kernel(*[registers[number] for number in call.inputs])
            except ARROW_ERRORS as error:
                problem = str(error).splitlines()[0]
                raise NotComputable(f"{shortened(call.text)}: {problem}") from error
            registers[call.output] = found.combine_chunks() if isinstance(found, pyarrow.ChunkedArray) else found
        arrays = [_repeated(registers[number], records) for number in self._outputs]
        if not arrays:
            return pyarrow.RecordBatch.from_arrays([], schema=self.schema)
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)


def schema_after(stages: Sequence[Stage], schema: Any) -> Any:
    """Returns the schema of the columns after stages.

    Raises: InvalidExpression: a column is missing, or a type does not fit.
    """
    return Program(stages, schema).schema


def _filtered(registers: list[Any], call: FilterCall, records: int) -> int:
    """Filters registers; returns the number of records that are left."""
    mask = registers[call.mask]
    if isinstance(mask, pyarrow.Scalar):
        left = records if mask.as_py() else 0
    else:
        left = mask.true_count
    if left == records:
        for before, behind in call.pairs:
            registers[behind] = registers[before]
    elif left and call.pairs:
        arrays = [registers[before] for before, _ in call.pairs]
        names = [str(behind) for _, behind in call.pairs]
        chosen = pyarrow.RecordBatch.from_arrays(arrays, names=names).filter(mask)
        for (_, behind), array in zip(call.pairs, chosen.columns, strict=True):
            registers[behind] = array
    return left


def _repeated(found: Any, records: int) -> Any:
    return pyarrow.repeat(found, records) if isinstance(found, pyarrow.Scalar) else found


def _compiled(binder: Binder, stage: Stage, columns: dict[str, BoundValue]) -> dict[str, BoundValue]:
    """Returns the columns after a stage.

    Raises: InvalidExpression: a column is missing, or a type does not fit.
    """
    try:
        return _columns_after(binder, stage, columns)
    except CannotBind as error:
        texts = [f"{name}: {value.type}" for name, value in list(columns.items())[:COLUMNS_MAX]]
        more = [f"and {len(columns) - COLUMNS_MAX} more"] if len(columns) > COLUMNS_MAX else []
        found = ", ".join([*texts, *more])
        raise InvalidExpression(stage.step, error.expression or str(stage), error.problem, found) from None


def _columns_after(binder: Binder, stage: Stage, columns: dict[str, BoundValue]) -> dict[str, BoundValue]:
    for name in stage.dropped:
        if name not in columns and not stage.is_checked:
            raise CannotBind("", missing_column(name, columns))
    if stage.kind == "drop":
        left = {name: value for name, value in columns.items() if name not in stage.dropped}
        if columns and not left:
            raise CannotBind("", "no column is left, and so no record")
        return left
    found = {name: bind(binder, each, columns) for name, each in stage.columns}
    if stage.kind == "filter":
        return _after_filter(binder, stage, found, columns)
    found = {name: settled(binder, value) for name, value in found.items()}
    if stage.kind == "select":
        return found
    if stage.kind == "with_columns":
        return {**columns, **found}
    new_names = {each.output_name(): name for name, each in stage.columns}
    names = [new_names.get(name, name) for name in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CannotBind("", f"two columns would have the name {twice!r}")
    return dict(zip(names, columns.values(), strict=True))


def _after_filter(
    binder: Binder, stage: Stage, found: dict[str, BoundValue], columns: dict[str, BoundValue]
) -> dict[str, BoundValue]:
    ((name, given),) = found.items()
    try:
        mask = condition(binder, given)
    except CannotBind as error:
        raise CannotBind(repr(dict(stage.columns)[name]), error.problem) from None
    binder.filter(mask)
    return {name: binder.after_filter(value) for name, value in columns.items()}
