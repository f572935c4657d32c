"""Choices among columns: when/then/otherwise, the least or greatest of several, fields of structs."""

from __future__ import annotations

from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.core.model.missing_names import nearest
from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions.binder import Binder, BoundValue, Kernel
from clonos.expressions.functions.conditions import condition
from clonos.expressions.functions.value_types import kind_name, unified


def when(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds when/then/otherwise; a condition that is null counts as false."""
    has_default = len(inputs) % 2 == 1
    conditions = [condition(binder, each) for each in inputs[: len(inputs) - 1 : 2]]
    results = list(inputs[1::2])
    if has_default:
        results.append(inputs[-1])
    results = unified(binder, results)
    type_ = results[0].type
    found = results.pop() if has_default else binder.constant(None, type_)
    for test, result in zip(reversed(conditions), reversed(results), strict=True):
        found = binder.call("when", chosen, test, result, found, type_=type_)
    return found


def chosen(test: Any, result: Any, other: Any) -> Any:
    """Returns the result where the test is true, and otherwise the other one."""
    return compute.if_else(compute.fill_null(test, False), result, other)


def extreme(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds min_horizontal and max_horizontal."""
    values = unified(binder, inputs)
    type_ = values[0].type
    kernel: Kernel = compute.min_element_wise if node.function == "min_horizontal" else compute.max_element_wise
    if types.is_boolean(type_):
        values = [binder.cast(each, pyarrow.uint8()) for each in values]
    return binder.cast(binder.call(node.function, kernel, *values), type_)


def struct_field(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds struct.field.

    Raises: CannotBind: a type does not fit.
    """
    struct, name = inputs[0], node.option("name")
    if not types.is_struct(struct.type):
        raise CannotBind("", f"it needs a struct and gets {kind_name(struct.type)}")
    names = [struct.type.field(index).name for index in range(struct.type.num_fields)]
    if name not in names:
        hint = nearest(name, names)
        raise CannotBind(
            "", f"the struct has no field {name!r}; it has {', '.join(names)}" + (f". {hint}" if hint else "")
        )
    type_ = struct.type.field(name).type
    return binder.call(
        "struct.field", lambda column: compute.struct_field(column, name), struct, type_=type_, options=name
    )


FUNCTIONS: Final = {
    "when": when,
    "min_horizontal": extreme,
    "max_horizontal": extreme,
    "struct.field": struct_field,
}
