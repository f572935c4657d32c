"""Expressions of pyarrow.compute and of Polars in a step. Their library computes them, in the task's process.

Each computes a record from that record alone, and the same at each run; others are refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import ExpressionMisused

FIELD: Final = re.compile(r"^(nested_field_ref|field_ref|call): '(.*)'$", re.MULTILINE)

NOT_REPEATABLE: Final = "random"
"""Function of Arrow that gives something else at each run."""


class ForeignExpr(Expr):
    """Expression of another library. ``text``, ``names`` and ``output`` are those that the library gives it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self.option("text"))

    def columns(self) -> set[str]:
        """Returns the names of the columns that it reads."""
        return set(self.option("names"))

    def output_name(self) -> str:
        """Returns the name that its library gives the result.

        Raises: ExpressionMisused: an argument does not fit.
        """
        name = self.option("output")
        if name is None:
            raise ExpressionMisused(repr(self), "has no name", "Give it one: select(name=expression).")
        return str(name)


def as_foreign(given: Any) -> ForeignExpr | None:
    """Returns an expression of pyarrow or Polars as a node, None if the value is neither.

    Raises: ExpressionMisused: it depends on other records, or gives something else at each run.
    """
    library, kind = type(given).__module__.partition(".")[0], type(given).__name__
    if library == "pyarrow" and kind == "Expression":
        return _of_arrow(given)
    if library == "polars" and kind == "Expr":
        return _of_polars(given)
    return None


def _of_arrow(expression: Any) -> ForeignExpr:
    import pyarrow

    (buffer,) = expression.__reduce__()[1]
    schema = pyarrow.ipc.open_file(buffer).schema
    found = FIELD.findall(schema.to_string(truncate_metadata=False, show_schema_metadata=True))
    names: list[str | None] = []
    inner = 0
    for key, text in found:
        if key == "nested_field_ref":
            names.append(None)  # the next one is the column, the others are fields of it
            inner = int(text)
        elif key == "field_ref":
            if names and names[-1] is None:
                names[-1] = text
            elif not inner:
                names.append(text)
            inner = max(0, inner - 1)
        elif text == NOT_REPEATABLE:
            raise ExpressionMisused(str(expression), "gives something else at each run", "Use clonos.random in map.")
    output = names[0] if len(found) == 1 and found[0][0] == "field_ref" else None
    options = (("text", str(expression)), ("expression", expression), ("names", tuple(names)), ("output", output))
    return ForeignExpr("arrow", (), options)


def _of_polars(expression: Any) -> ForeignExpr:
    text, meta = str(expression), expression.meta
    if meta.has_multiple_outputs():
        raise ExpressionMisused(text, "gives several columns", "Write one expression for each.")
    names = tuple(dict.fromkeys(meta.root_names()))
    if not names:
        raise ExpressionMisused(text, "reads no column", "Use lit(...) of clonos for a constant.")
    if not meta.is_row_separable():
        raise ExpressionMisused(
            text,
            "computes a record from other records too, and a batch may be cut anywhere",
            "Use the steps of the stream for it: aggregate, top_k or a window.",
        )
    options = (
        ("text", text),
        ("serialized", meta.serialize()),
        ("names", names),
        ("output", meta.output_name(raise_if_undetermined=False)),
    )
    return ForeignExpr("polars", (), options)
