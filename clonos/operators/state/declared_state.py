"""State that operators declare, and what opens it: a step opens no other state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from clonos.core.model.errors import InternalError
from clonos.operators.state.keyed_state import StateBackend, Table
from clonos.operators.state.state_spec import ANY, NO_KEY, StateKind, StateSpec

if TYPE_CHECKING:
    from clonos.operators.state.column_spec import ColumnSpec
    from clonos.operators.state.column_table import ColumnTable
    from clonos.operators.state.row_store import RowStore


def full_name(step: str, spec: StateSpec, part: int | str | None = None) -> str:
    """Returns the name of the state of a step in a snapshot. ``part`` is in the place of ``ANY``."""
    assert (part is None) == (ANY not in spec.name), f"{spec.name}: its number or name"
    name = spec.name if part is None else spec.name.replace(ANY, str(part))
    return f"{step}/{name}"


class StepState:
    """State of an operator in one incarnation: opens what it declares.

    How a change of the width divides it may depend on the step; what opens it need not know it.
    """

    __slots__ = ("_backend", "_step", "_specs", "_checked")

    def __init__(self, backend: StateBackend, step: str, specs: Sequence[StateSpec]) -> None:
        self._backend, self._step = backend, step
        self._specs = {spec.fixed(NO_KEY): spec for spec in specs}
        self._checked: dict[int, StateSpec] = {}  # those that were opened, by their identity: windows open many panes
        known = {spec.name for spec in specs} | {number.of for spec in specs for number in spec.numbers}
        strange = [spec.owner for spec in specs if spec.owner and spec.owner not in known]
        assert not strange, f"{step} has no state and no sequence {strange}"

    def table(self, spec: StateSpec, part: int | str | None = None) -> Table:
        """Returns the table with its restored entries, or a new one. ``part``: its number or name, see ``ANY``.

        Raises: StateUndeclared. StateOfOtherForm: the snapshot has columns of this name.
        """
        name = self._name(spec, StateKind.TABLE, part)
        return self._backend.table(name, deletes_empty=spec.deletes_empty, is_small=spec.is_small)

    def column_table(self, spec: StateSpec, columns: ColumnSpec, part: int | str | None = None) -> ColumnTable:
        """Returns the table in columns with its restored keys, or a new one.

        Raises: StateUndeclared. StateOfOtherForm: it was stored with other types, or not in columns.
        """
        return self._backend.column_table(self._name(spec, StateKind.COLUMNS, part), columns)

    def row_store(self, spec: StateSpec, part: int | str | None = None) -> RowStore:
        """Returns the row store with its restored rows, or a new one.

        Raises: StateUndeclared. StateOfOtherForm: the snapshot has a table of this name.
        """
        return self._backend.row_store(self._name(spec, StateKind.ROWS, part))

    def restored(self, spec: StateSpec) -> list[int]:
        """Returns the numbers of restored state of this declaration that the operator has not opened yet, in order."""
        before, _, after = f"{self._step}/{spec.name}".partition(ANY)
        is_table = spec.kind is StateKind.TABLE
        names = self._backend.restored(before) if is_table else self._backend.restored_columns(before)
        return sorted(int(name[len(before) : len(name) - len(after)]) for name in names if name.endswith(after))

    def drop(self, spec: StateSpec, part: int | str | None = None) -> None:
        """Deletes a whole table or row store that the operator has opened."""
        self._backend.drop(full_name(self._step, spec, part))

    def _name(self, spec: StateSpec, kind: StateKind, part: int | str | None) -> str:
        """Returns the name of state that is about to be opened."""
        if self._checked.get(id(spec)) is not spec or spec.kind is not kind:
            self._check(spec, kind, part)
        return full_name(self._step, spec, part)

    def _check(self, spec: StateSpec, kind: StateKind, part: int | str | None) -> None:
        """Raises: StateUndeclared."""
        opened = spec.fixed(NO_KEY)
        is_declared = opened in self._specs
        is_one = part is not None and opened.named(part) in self._specs
        if not (is_declared or is_one) or spec.kind is not kind:
            declared = [str(each) for each in self._specs.values() if each.name == spec.name]
            raise StateUndeclared(self._step, f"{spec} as {kind}", ", ".join(declared))
        if is_declared:
            self._checked[id(spec)] = spec


class DeclaredState:
    """Declarations of the state of several steps."""

    __slots__ = ("_named", "_patterns")

    def __init__(self, declared: Iterable[tuple[str, StateSpec]]) -> None:
        """Takes pairs (step, declaration)."""
        pairs = dict.fromkeys(declared)
        self._named = {full_name(*pair): pair for pair in pairs if ANY not in pair[1].name}
        numbered = [pair for pair in pairs if ANY in pair[1].name]
        self._patterns = sorted(numbered, key=lambda pair: -len(pair[1].name))  # the narrowest one first

    def __iter__(self) -> Iterator[tuple[str, StateSpec]]:
        """Yields (step, declaration)."""
        yield from self._named.values()
        yield from self._patterns

    def find(self, name: str) -> tuple[str, StateSpec, str] | None:
        """Returns step and declaration of stored state, and what is in the place of ``ANY``, else "".

        None: no step declares it.
        """
        if (found := self._named.get(name)) is not None:
            return (*found, "")
        for step, spec in self._patterns:
            before, _, after = f"{step}/{spec.name}".partition(ANY)
            part = name[len(before) : len(name) - len(after)]
            if part and name == before + part + after and not (spec.name == ANY and "/" in part):
                return step, spec, part
        return None


class StateUndeclared(InternalError):
    """An operator opens state that it does not declare, or declares otherwise."""

    step: str
    opened: str
    declared: str

    def __str__(self) -> str:
        declared = f"declares {self.declared}" if self.declared else "declares none of this name"
        return f"the step {self.step} opens the state {self.opened}, and {declared}: see Operator.state_specs."
