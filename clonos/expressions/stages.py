"""Stages: what the steps select, with_columns, filter, drop and rename do to columns, as the plan has them.

A stage knows the names of its columns without a schema: which it reads, which it gives, and where a column goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clonos.expressions.expression import Expr

NAMING: Final = ("alias", "name.suffix", "name.prefix")
"""Functions that change the name of a column and nothing else."""


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Step on columns.

    ``kind``: "select", "with_columns", "filter", "drop" or "rename". ``columns``: expressions by the names of their
    results; of a filter its condition, of a rename the old columns by their new names. ``dropped``: names.
    ``is_checked``: the columns were known when the step was added, so that a source may leave out what is dropped.
    """

    step: str
    kind: str
    columns: tuple[tuple[str, Expr], ...] = ()
    dropped: tuple[str, ...] = ()
    is_checked: bool = False

    def __str__(self) -> str:
        """Returns the call of the method that added the step."""
        texts = ", ".join(self.texts())
        return f"{self.kind}({{{texts}}})" if self.kind == "rename" else f"{self.kind}({texts})"

    def texts(self) -> tuple[str, ...]:
        """Returns the arguments of the step, as code."""
        if self.kind == "drop":
            return tuple(map(repr, self.dropped))
        if self.kind == "rename":
            return tuple(f"{each.output_name()!r}: {name!r}" for name, each in self.columns)
        return tuple(_text(self.kind, name, each) for name, each in self.columns)

    def reads(self, wanted: frozenset[str] | None) -> frozenset[str] | None:
        """Returns the columns of the input that are needed for the columns ``wanted`` of the result; None: all.

        Expressions of columns that nobody wants are computed all the same.
        """
        used = frozenset().union(*(each.columns() for _, each in self.columns))
        if self.kind == "select":
            return used
        if wanted is None:
            return None
        # A column that with_columns replaces gives the result its place.
        given = {name for name, _ in self.columns} if self.kind == "rename" else set()
        return used | (wanted - given) | frozenset(() if self.is_checked else self.dropped)

    def gives(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Returns the names of the columns of the result; None if those of the input are not known and matter."""
        if self.kind == "select":
            return tuple(name for name, _ in self.columns)
        if names is None or self.kind == "filter":
            return names
        if self.kind == "drop":
            return tuple(name for name in names if name not in self.dropped)
        if self.kind == "rename":
            new_names = {each.output_name(): name for name, each in self.columns}
            return tuple(new_names.get(name, name) for name in names)
        return tuple(dict.fromkeys((*names, *(name for name, _ in self.columns))))

    def renamed(self, column: str) -> str | None:
        """Returns the name that a column of the input has in the result unchanged, None if it is not there."""
        if self.kind == "filter":
            return column
        if self.kind == "drop":
            return None if column in self.dropped else column
        found = [name for name, each in self.columns if plain_column(each) == column]
        if self.kind == "with_columns":
            is_replaced = column in dict(self.columns) and column not in found
            return None if is_replaced else column
        if self.kind == "rename":
            return found[0] if found else None if column in dict(self.columns) else column
        return column if column in found else found[0] if found else None


def plain_column(expression: Expr) -> str | None:
    """Returns the name of the column that an expression gives unchanged, None if it computes something."""
    while expression.function in NAMING:
        (expression,) = expression.inputs
    return str(expression.option("name")) if expression.function == "column" else None


def _text(kind: str, name: str, expression: Expr) -> str:
    if kind == "filter" or expression.output_name() == name:
        return repr(expression)
    return f"{name}={expression!r}" if name.isidentifier() else f"{expression!r}.alias({name!r})"
