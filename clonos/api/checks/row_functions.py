"""Lambdas that turn a stream of columns into rows in front of an exchange, and the expressions to write instead.

Rows cost several times the processor time of columns, most of all on their way to other tasks. A lambda that does no
more than arithmetic and comparisons of fields is written as an expression: it is called once, with a record whose
fields are columns. Only functions without names, calls and branches are called, so that nothing else happens.
"""

from __future__ import annotations

import dis
import logging
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Final

from clonos.api.plan.step_texts import function_text
from clonos.api.step import Exchange, Step
from clonos.api.step_graph import StepGraph
from clonos.expressions.building import col
from clonos.expressions.expression import Expr

logger = logging.getLogger("clonos.run")

WRITABLE: Final = frozenset({"map", "filter", "flat_map"})
"""Kinds of steps whose function expressions may replace."""

PLAIN_OPERATIONS: Final = frozenset(
    {
        *("RESUME", "CACHE", "NOP", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_CONST", "LOAD_SMALL_INT", "RETURN_VALUE"),
        *("RETURN_CONST", "BINARY_SUBSCR", "BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "UNARY_INVERT"),
        *("BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_TUPLE", "DICT_UPDATE"),
    }
)
"""Operations of a function that may be called with a record of columns: no calls, no names, no branches."""

REST: Final = "the rest of the record"
"""Key that stands for all fields of a record, in a dict that is made of ``**record``."""

_warned: set[CodeType] = set()
"""Functions that were warned of in this process, so that a graph that is compiled again stays silent."""


def warn_of_row_functions(graph: StepGraph) -> None:
    """Logs one warning per such function."""
    for function, text in _found(graph):
        code = getattr(function, "__code__", None)
        if code is not None and code not in _warned:
            _warned.add(code)
            logger.warning("%s", text)


def row_function_warnings(graph: StepGraph) -> list[str]:
    """Returns the warnings about such functions."""
    return [text for _, text in _found(graph)]


def _found(graph: StepGraph) -> Iterator[tuple[Any, str]]:
    for step in graph.steps:
        for each in step.inputs:
            if not graph.gives_columns(each):
                continue
            if each.key is not None and not each.key.fields:
                yield from _warning(each.key.name, "key_by", each.key.key)
            elif step.functions and step.kind in WRITABLE and _is_before_an_exchange(step, graph):
                yield from _warning(step.name, step.kind, step.functions[0])


def _is_before_an_exchange(step: Step, graph: StepGraph) -> bool:
    behind = [(reader, each) for reader in graph.steps for each in reader.inputs if each.step == step.number]
    return any(
        each.exchange is not Exchange.FORWARD or _is_before_an_exchange(reader, graph) for reader, each in behind
    )


def _warning(step: str, kind: str, function: Any) -> Iterator[tuple[Any, str]]:
    expression = expression_text(kind, function)
    if not expression and getattr(function, "__name__", "") != "<lambda>":
        return
    advice = f"Write {expression} instead" if expression else "Use expressions or map_batches if you can"
    yield (
        function,
        f"the step {step} turns columns into rows in front of an exchange, which costs a multiple: it calls"
        f" {function_text(function)} with each row. {advice} (docs/columns.md).",
    )


def expression_text(kind: str, function: Any) -> str:
    """Returns the call by expressions that does what a step ``kind`` with this function does; "" if none is simple."""
    if not isinstance(function, FunctionType) or not _is_plain(function.__code__):
        return ""
    try:
        result = function(_Record())
    except Exception:  # noqa: BLE001  the function needs values
        return ""
    return _WRITERS[kind](result) if kind in _WRITERS else ""


def _is_plain(code: CodeType) -> bool:
    has_one_argument = (code.co_argcount, code.co_kwonlyargcount, len(code.co_varnames)) == (1, 0, 1)
    is_closed = not code.co_names and not code.co_freevars and not code.co_flags & 0x0C
    return has_one_argument and is_closed and {each.opname for each in dis.get_instructions(code)} <= PLAIN_OPERATIONS


class _Record(dict[str, Any]):
    """Record whose fields are columns."""

    def __init__(self) -> None:
        super().__init__({REST: REST})

    def __getitem__(self, name: Any) -> Any:
        return col(name)


def _is_column(value: object) -> bool:
    return isinstance(value, Expr) and value.function == "column"


def _as_filter(result: Any) -> str:
    return f"filter({result!r})" if isinstance(result, Expr) and not _is_column(result) else ""


def _as_selection(result: Any) -> str:
    if type(result) is not dict or not all(isinstance(name, str) for name in result):
        return ""
    fields = {name: value for name, value in result.items() if name != REST}
    if not fields or not all(isinstance(value, Expr) and name.isidentifier() for name, value in fields.items()):
        return ""
    method = "select" if len(fields) == len(result) else "with_columns"
    parts = [_assigned(name, value) for name, value in fields.items()]
    return f"{method}({', '.join(sorted(parts, key=_is_keyword))})"


def _assigned(name: str, value: Expr) -> str:
    return f'"{name}"' if _is_column(value) and value.output_name() == name else f"{name}={value!r}"


def _is_keyword(part: str) -> bool:
    return not part.startswith('"')


def _as_key(result: Any) -> str:
    keys = result if isinstance(result, tuple) else (result,)
    if keys and all(map(_is_column, keys)):
        names = ", ".join(f'"{key.output_name()}"' for key in keys)
        return f"key_by({names})"
    if isinstance(result, Expr):
        return f'with_columns(key={result!r}).key_by("key")'
    return ""


_WRITERS: Final = {"filter": _as_filter, "map": _as_selection, "key_by": _as_key}
