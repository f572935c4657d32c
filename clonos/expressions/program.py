"""Program: several stages compiled for one schema, and its run over a batch in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute as compute

from clonos.expressions.binding import bind, missing_column
from clonos.expressions.expression_errors import CannotBind, InvalidExpression, NotComputable, shortened
from clonos.expressions.functions.binder import ARROW_ERRORS, Binder, BoundCall, BoundValue, FilterCall
from clonos.expressions.functions.choices import chosen
from clonos.expressions.functions.conditions import condition
from clonos.expressions.functions.value_types import settled
from clonos.expressions.stages import Stage
from clonos.kernels.record_batch import RecordBatch

COLUMNS_MAX = 40
"""Columns of a schema that an error message names."""


class _Failed(NamedTuple):
    """Register that a record keeps from being computed; what follows from it is ``_Failed`` too."""

    error: NotComputable


class _ChosenRecords:
    """Registers for some of the records: one is filtered when it is read, or computed if it failed for all records."""

    def __init__(self, program: Program, registers: Registers, mask: Any) -> None:
        self._program, self._registers, self._mask = program, registers, mask
        self._found: dict[int, Any] = {}

    def __getitem__(self, number: int) -> Any:
        if number not in self._found:
            given = self._registers[number]
            if isinstance(given, _Failed):
                given = self._program.computed(number, self)
            elif not isinstance(given, pyarrow.Scalar):
                given = given.filter(self._mask)
            self._found[number] = given
        return self._found[number]

    def spread(self, number: int) -> Any:
        """Returns a register with a null for each other record."""
        found = self[number]
        if isinstance(found, (_Failed, pyarrow.Scalar)):
            return found
        mask = self._mask.to_numpy(zero_copy_only=False)
        return found.take(pyarrow.array(mask.cumsum() - 1, mask=~mask))


Registers = list[Any] | _ChosenRecords


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
        self._guarded = self._guarded_registers()
        self._call_of = {call.output: call for call in self.calls if isinstance(call, BoundCall)}

    def _prune(self) -> None:
        """Leaves out what a filter would leave in columns that nobody reads after it."""
        read = set(self._outputs)
        for call in reversed(self.calls):
            if isinstance(call, FilterCall):
                call.pairs[:] = [pair for pair in call.pairs if pair[1] in read]
                read |= {call.mask, *(before for before, _ in call.pairs)}
            else:
                read |= set(call.inputs)

    def _guarded_registers(self) -> frozenset[int]:
        """Returns the registers that are read for branches of ``when`` alone: what a record does not choose there need
        not be computable."""
        read = set(self._outputs)
        guarded: set[int] = set()
        for call in reversed(self.calls):  # so all that read a register come before the call that gives it
            if isinstance(call, FilterCall):
                read |= {call.mask, *(before for before, _ in call.pairs)}
            elif call.output in guarded - read:
                guarded.update(call.inputs)
            elif call.kernel is chosen:
                read.add(call.inputs[0])
                guarded.update(call.inputs[1:])
            else:
                read.update(call.inputs)
        return frozenset(guarded - read)

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
            else:
                registers[call.output] = self.computed(call.output, registers)
        arrays = [_repeated(registers[number], records) for number in self._outputs]
        if not arrays:
            return pyarrow.RecordBatch.from_arrays([], schema=self.schema)
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def computed(self, number: int, registers: Registers) -> Any:
        """Returns a register from its inputs; ``_Failed`` if a record keeps it from being computed that may not choose
        it.

        Raises: NotComputable: a record has a value that an expression cannot compute.
        """
        call = self._call_of[number]
        inputs = [registers[each] for each in call.inputs]
        if _Failed in map(type, inputs):
            if call.kernel is chosen:
                inputs = self._branches(call, inputs, registers)
            if failed := next((each for each in inputs if isinstance(each, _Failed)), None):
                return self._failed(call, failed)
        try:
            found = call.kernel(*inputs)
        except ARROW_ERRORS as error:
            return self._failed(call, _Failed(NotComputable(f"{shortened(call.text)}: {str(error).splitlines()[0]}")))
        return found.combine_chunks() if isinstance(found, pyarrow.ChunkedArray) else found

    def _failed(self, call: BoundCall, failed: _Failed) -> _Failed:
        if call.output in self._guarded:
            return failed
        raise failed.error

    def _branches(self, call: BoundCall, inputs: list[Any], registers: Registers) -> list[Any]:
        """Returns the inputs of ``when`` with a failed branch computed for the records that choose it."""
        test, *branches = inputs
        if isinstance(test, _Failed):
            return inputs
        is_chosen = compute.fill_null(test, False)
        for place, mask in enumerate((is_chosen, compute.invert(is_chosen))):
            if not isinstance(branches[place], _Failed):
                continue
            number = call.inputs[1 + place]
            if not isinstance(mask, pyarrow.Scalar):
                branches[place] = _ChosenRecords(self, registers, mask).spread(number)
            elif not mask.as_py():
                branches[place] = branches[1 - place]  # no record chooses it
        return [test, *branches]


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
