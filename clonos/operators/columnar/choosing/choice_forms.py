"""Forms over columns of the steps that choose among the records of a key: top_k, deduplicate and distinct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from clonos.operators.columnar.choosing.batch_choice import FirstOfBatch, HighestOfBatch, LastInBatch
from clonos.operators.columnar.column_form import ColumnForm, Schemas
from clonos.operators.columnar.key_reasons import key_reason
from clonos.operators.columnar.row_forms import SPAN_TIME
from clonos.operators.operator import Operator

K_MAX: Final = 1 << 10
"""Largest k for which the state is in columns: a key has room for k records."""

Keep = Literal["first", "last"]
"""Record of several with one key that ``deduplicate`` keeps."""


class ChoiceRules(NamedTuple):
    """Record of a key that is kept, the length of time (None: of all time), and whether records have timestamps."""

    keep: Keep
    within_ns: int | None
    has_times: bool

    @property
    def has_state(self) -> bool:
        """Whether the choice depends on earlier batches."""
        return self.keep == "first" or self.within_ns is not None or self.has_times

    @property
    def keeps_records(self) -> bool:
        """Whether the state has whole records."""
        return self.keep == "last" and self.within_ns is not None


@dataclass(frozen=True)
class TopKForm(ColumnForm):
    """Highest records of each key by the column ``by``: their lists, or the ranks that have changed in a column.

    ``chooser`` creates the operator of a kind of records.
    """

    keys: tuple[str, ...]
    by: str
    k: int
    rank: str | None
    chooser: Callable[..., Any]
    time: str | None = None
    """Column of the timestamps, which results have beside the key; None for ranks, and without timestamps."""

    @property
    def gives_dicts(self) -> bool:
        """See ``ColumnForm``."""
        return self.rank is not None

    @property
    def is_written(self) -> bool:
        """See ``ColumnForm``."""
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the columns of results with lists, beside these."""
        return self.keys if self.time is None or self.time in self.keys else (*self.keys, self.time)

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.choosing.cells import has_ranks
        from clonos.operators.columnar.running.stored_keys import plain_type

        if self.k > K_MAX:
            return f"k above {K_MAX:,} works on rows"
        if self.by not in schema.names:
            return f"there is no column {self.by!r}"
        if not has_ranks(plain_type(schema.field(self.by).type)):
            return f"ranks of the type {schema.field(self.by).type} work on rows"
        return key_reason(self.keys, schema)

    def stored(self, schemas: Schemas) -> Schemas:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.running.stored_keys import plain

        return (plain(schema, schema.names),)

    def results(self, schemas: Schemas) -> Any:
        """See ``ColumnForm``."""
        from clonos.operators.kinds.column_highest import list_fields, ranked_schema

        (schema,) = schemas
        return list_fields(schema, self.keys, self.names) if self.rank is None else ranked_schema(schema, self.rank)

    def before_exchange(self, step: str) -> Callable[[], Operator] | None:
        """See ``ColumnForm``."""
        return None if self.rank is None else partial(HighestOfBatch, self.keys, self.by, self.k)

    def operator(self, step: str, schemas: Schemas) -> Any:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.kinds.column_kind import ColumnKind

        return self.chooser(step, ColumnKind(schema, self.keys), self.by, self.k, self.rank)


@dataclass(frozen=True)
class DeduplicateForm(ColumnForm):
    """First record of each key of all time or of each span of it, or the last one, so far or of each span.

    ``keys`` are the columns of the stream's key, to which ``by`` adds another. ``chooser`` creates the operator of a
    kind of records.
    """

    keys: tuple[str, ...]
    by: str | None
    rules: ChoiceRules
    chooser: Callable[[str, Any, ChoiceRules], Any]

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the columns that are compared."""
        return (*self.keys, *(() if self.by is None or self.by in self.keys else (self.by,)))

    def row_reason(self, schemas: Schemas) -> str:
        """See ``ColumnForm``."""
        (schema,) = schemas
        if self.rules.keeps_records and self.rules.has_times and SPAN_TIME in schema.names:
            return f"it has a column {SPAN_TIME!r} of its own"
        return key_reason(self.names, schema)

    def stored(self, schemas: Schemas) -> Schemas:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.columnar.running.stored_keys import plain, plain_records

        return (plain_records(schema) if self.rules.keeps_records else plain(schema, self.names),)

    def results(self, schemas: Schemas) -> Any:
        """See ``ColumnForm``."""
        from clonos.operators.kinds.column_spans import schema_of_spans

        (schema,) = schemas
        return schema_of_spans(schema) if self.rules.keeps_records and self.rules.has_times else schema

    def before_exchange(self, step: str) -> Callable[[], Operator] | None:
        """See ``ColumnForm``."""
        choice = FirstOfBatch if self.rules.keep == "first" else LastInBatch
        return partial(choice, self.names) if self.rules.within_ns is None else None

    def operator(self, step: str, schemas: Schemas) -> Any:
        """See ``ColumnForm``."""
        (schema,) = schemas
        from clonos.operators.kinds.column_kind import ColumnKind

        return self.chooser(step, ColumnKind(schema, self.names, len(self.keys)), self.rules)
