"""Text of an expression: the code that makes it, with as few parentheses as Python needs."""

from __future__ import annotations

from typing import Any, Final, Protocol

COMPARISON, OR, XOR, AND, SUM, PRODUCT, UNARY, POWER, ATOM = range(9)
"""How tightly each kind of operator binds."""

INFIX: Final = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), COMPARISON),
    "|": OR,
    "^": XOR,
    "&": AND,
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "//", "%"), PRODUCT),
    "**": POWER,
}

PREFIX: Final = {"invert": "~", "negate": "-"}

CALLS: Final = ("coalesce", "concat_str", "min_horizontal", "max_horizontal")
"""Functions that are no methods."""

NAMES_COLUMNS: Final = (*CALLS, "when", "is_between", "clip")
"""Functions to which a text is the name of a column."""

POSITIONAL: Final = (
    *("name", "text", "values", "dtype", "decimals", "pattern", "value", "offset", "length", "every", "unit"),
    *("group", "characters"),
)
"""Options that are written without their name."""

TYPES: Final = {"int64": "int", "double": "float", "string": "str", "bool": "bool", "binary": "bytes"}
"""Python types by their names."""


class WrittenNode(Protocol):
    """Node of an expression, as its text needs it."""

    @property
    def function(self) -> str: ...

    @property
    def inputs(self) -> tuple[WrittenNode, ...]: ...

    @property
    def options(self) -> tuple[tuple[str, Any], ...]: ...

    def option(self, name: str) -> Any: ...


def written(expression: WrittenNode) -> str:
    """Returns the code that makes an expression."""
    return _written(expression)[0]


def _written(expression: WrittenNode) -> tuple[str, int]:
    """Returns the code, and how tightly its outermost operator binds."""
    function, inputs = expression.function, expression.inputs
    if function == "column":
        return f"col({expression.option('name')!r})", ATOM
    if function == "literal":
        return f"lit({_value(expression.option('value'))})", ATOM
    if function in INFIX:
        return _infix(expression), INFIX[function]
    if function in PREFIX:
        return PREFIX[function] + _within(inputs[0], UNARY), UNARY
    if function == "when":
        return _when(inputs), ATOM
    if function in CALLS:
        arguments = [*(_argument(each, function) for each in inputs), *_options(expression)]
        return f"{function}({', '.join(arguments)})", ATOM
    arguments = [*(_argument(each, function) for each in inputs[1:]), *_options(expression)]
    return f"{_within(inputs[0], ATOM)}.{function}({', '.join(arguments)})", ATOM


def _within(expression: WrittenNode, binding: int) -> str:
    text, own = _written(expression)
    return text if own >= binding else f"({text})"


def _infix(expression: WrittenNode) -> str:
    left, right = expression.inputs
    binding = INFIX[expression.function]
    is_chained = binding == COMPARISON  # Python would chain them
    if left.function == "literal" != right.function and not is_chained and _is_bare(left.option("value")):
        left_text = _value(left.option("value"))
    else:
        left_text = _within(left, binding + 1 if is_chained or binding == POWER else binding)
    if right.function == "literal" and left.function != "literal":
        right_text = _value(right.option("value"))
    else:
        right_text = _within(right, binding if binding == POWER else binding + 1)
    return f"{left_text} {expression.function} {right_text}"


def _is_bare(value: Any) -> bool:
    """Returns whether a constant on the left leaves the operator to the expression on the right."""
    return type(value) in (int, float) and 0 <= value < float("inf")


def _when(inputs: tuple[WrittenNode, ...]) -> str:
    text = ""
    for index in range(0, len(inputs) - 1, 2):
        text += f"{'.' if text else ''}when({_argument(inputs[index], 'when')})"
        text += f".then({_argument(inputs[index + 1], 'when')})"
    return text + (f".otherwise({_argument(inputs[-1], 'when')})" if len(inputs) % 2 else "")


def _argument(expression: WrittenNode, function: str) -> str:
    """Returns the code of an argument; a constant stands for itself, unless it would be the name of a column."""
    if expression.function != "literal":
        return written(expression)
    value = expression.option("value")
    return written(expression) if isinstance(value, str) and function in NAMES_COLUMNS else _value(value)


def _options(expression: WrittenNode) -> list[str]:
    texts = []
    is_positional = True
    for name, value in expression.options:
        is_positional = is_positional and name in POSITIONAL
        text = _type(value) if name == "dtype" else _value(value)
        texts.append(text if is_positional else f"{name}={text}")
    return texts


def _type(name: Any) -> str:
    return TYPES.get(name) or (repr(name) if isinstance(name, str) else f"pyarrow.{name}")


def _value(value: Any) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
