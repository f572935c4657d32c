"""Form of a step over columns: what it needs of its input, which the plan knows before the job runs.

The plan asks it once: for columns that it can work on it makes the operator over columns, for others, and where columns
are not known, the plan takes the operator over rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from clonos.operators.operator import Operator

Schemas = tuple[Any, ...]
"""``pyarrow.Schema`` of each input: one, or those of both sides of a join."""


class ColumnForm(ABC):
    """Base of all forms."""

    @property
    def keeps_records(self) -> bool:
        """Whether the state has whole records, which it emits."""
        return False

    @property
    def emits_columns(self) -> bool:
        """Whether the results over columns are columns."""
        return True

    @property
    def gives_dicts(self) -> bool:
        """Whether rows of the results are dicts by the names of their columns."""
        return False

    @property
    def gives_keys(self) -> bool:
        """Whether rows of the results can be keys."""
        return False

    @property
    def is_written(self) -> bool:
        """Whether a sink of columns writes the results although their rows are no dicts."""
        return False

    @property
    def has_mixed_rows(self) -> bool:
        """Whether rows of the results differ in their form, so that their columns do not tell it."""
        return False

    @property
    def keeps_key(self) -> bool:
        """Whether the results stay in the task of the key of their (left) records, whose columns they have."""
        return False

    @abstractmethod
    def row_reason(self, schemas: Schemas) -> str:
        """Returns why the step works on rows for columns of these schemas; "" if it works on columns."""

    @abstractmethod
    def stored(self, schemas: Schemas) -> Schemas:
        """Returns the part of each schema without ``row_reason`` that the operator and its state depend on."""

    @abstractmethod
    def results(self, schemas: Schemas) -> Any:
        """Returns the schema of the results for schemas without ``row_reason``, if they are columns."""

    def before_exchange(self, step: str) -> Callable[[], Operator] | None:
        """Returns what makes the operators in front of an exchange by the columns of the key; None without them."""
        return None

    @abstractmethod
    def operator(self, step: str, schemas: Schemas) -> Operator:
        """Creates the operator over columns; ``schemas`` are what ``stored`` has returned."""
