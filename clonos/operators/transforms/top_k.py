"""Running top k of each key: the new list whenever a record changes it, or the ranks that a batch has changed.

The operator serves records of any kind, rows and columns: see ``clonos.operators.kinds``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.columnar.choosing.choice_forms import TopKForm
from clonos.operators.columnar.row_forms import RECORDS
from clonos.operators.columnar.support import name_reason
from clonos.operators.facts import Facts, KnownInputs, facts_of, with_form
from clonos.operators.fields import compared_text
from clonos.operators.kinds.kind import BatchT, By, Kind
from clonos.operators.kinds.kind_step import KindStep
from clonos.operators.kinds.object_kind import ObjectKind
from clonos.operators.operator import Scope
from clonos.operators.state.state_spec import StateSpec


class TopK(KindStep[BatchT]):
    """The ``k`` records of each key with the highest rank, highest first; of equal ranks the earlier record.

    With ``rank`` they are records with their rank in a field of this name: the ranks that a batch has changed, once,
    from the first one on. Keys come in the order of their first change, and the ranks of a key ascend.
    """

    runs_user_code = True
    may_be_in_place = True
    key_field: ClassVar[str | None] = ""
    _kind: Kind[BatchT]

    @classmethod
    def facts(cls, given: KnownInputs, by: By, k: int, rank: str | None) -> Facts:
        """Returns those for records that ``by`` compares, None for the records themselves.

        ``rank``: the field of the results that gets the rank; None for lists.
        """
        chooser: type[TopK[Any]] = cls
        facts = replace(
            facts_of(partial(chooser, given.step, ObjectKind(), by, k, rank), given),
            calls=(UserFunction(by, None),) if callable(by) else (),
            names_columns=isinstance(by, str),
            key_field="" if rank is None else None,
            keeps_times=rank is None,
            state=(
                ("k", str(k)),
                compared_text(by),
                *(() if rank is None else (("results", "changed ranks"),)),
            ),
        )
        (keys,) = given.keys
        if not keys or not isinstance(by, str):
            return facts
        time = given.timestamp_column if rank is None else None
        form = TopKForm(keys, by, k, rank, chooser, None if time is None else time.name)
        if rank is None:  # files of columns refuse the tuples in the plan
            reasons = (form.row_reason((schema,)) for schema in given.schemas())
            if reason := next(filter(None, reasons), name_reason((*form.names, RECORDS))):
                return replace(facts, row_reason=reason)
        return with_form(facts, form)

    def __init__(self, step: str, kind: Kind[BatchT], by: By, k: int, rank: str | None) -> None:
        self._step, self._kind, self._by, self._k, self._rank = step, kind, by, k, rank
        self.takes_columns = kind.takes_columns

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return self._kind.highest_specs

    def open(self, scope: Scope) -> None:
        self._highest = self._kind.highest(scope.state, self._by, self._k)

    def _take(self, batch: BatchT) -> None:
        if self._rank is None:
            self._highest.pass_lists(self, batch)
        else:
            self._highest.pass_ranks(self, batch, self._rank)
