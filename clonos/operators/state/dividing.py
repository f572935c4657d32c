"""Division of the state of old tasks among new ones, when a vertex gets another number of tasks.

New task j of q takes from each old task i what the scope of each declaration gives it. The result follows from the
arguments alone: equal calls give equal bytes. Old tasks are added one after the other, in the order of their indexes:

    division = Division(declared, task, parallelism, max_parallelism)
    for index, pieces in enumerate(old_tasks):
        image = division.new_image(index, len(old_tasks))
        for piece in pieces:
            image.apply(piece)
        division.add(image)
    state = division.result()

Entries of other tasks are left out while they are decoded, so that memory has the own part of the tables and a piece.
Of columns it has those of one old task besides. State by key of an old task that has no key group of the new one is
not decoded at all. State of steps that declare none is left out: it is of other tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from clonos.core.model.errors import InternalError, JobError
from clonos.core.values.keys import groups_of_task
from clonos.operators.event_time.source_watermarks import least_times
from clonos.operators.state.declared_state import DeclaredState, full_name
from clonos.operators.state.divided_tables import OldState, OldTable, OwnKeys, Ranks, own_rows
from clonos.operators.state.keyed_state import StateImage
from clonos.operators.state.state_changes import DecodedSection, Entries, Section, read_section
from clonos.operators.state.state_spec import ANY, Numbers, StateKind, StateScope, StateSpec

if TYPE_CHECKING:
    from clonos.operators.state.column_changes import ColumnSection

COMBINED: Final[dict[StateScope, Callable[[list[Any]], Any]]] = {
    StateScope.MIN: min,
    StateScope.MAX: max,
    StateScope.SUM: sum,
    StateScope.TIMES: least_times,
    StateScope.DEAL: itemgetter(0),
    StateScope.UNION: itemgetter(0),
}
"""What becomes of the values of several old tasks with one key."""

OF_TASKS: Final = frozenset({StateScope.EQUAL, StateScope.FIRST, *COMBINED})
"""Scopes of tables whose entries are values of the task."""

BY_KEY: Final = frozenset({StateScope.KEYED, StateScope.REFERRED, StateScope.REFERRING})
"""Scopes of state that is divided by keys."""


class StateUndivided(JobError):
    """The width of a step cannot change, because its state cannot be divided."""

    step: str
    state: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the number of tasks of the step {self.step} cannot change: {self.reason} (state {self.state})."
            " Start it with the number of tasks that it had, or name it otherwise so that it begins with empty state."
        )


class StateWithoutDeclaration(InternalError):
    """A snapshot has state of a step that the step does not declare, so that nothing tells how to divide it."""

    state: str

    def __str__(self) -> str:
        return f"its step does not declare the state {self.state}, or as another kind"


class OwnImage(StateImage):
    """Image of an old task with what a new task may take of it. Columns are whole."""

    __slots__ = ("_declared", "_has_own_keys", "_own")

    def __init__(self, declared: DeclaredState, own: OwnKeys, has_own_keys: bool) -> None:
        """``has_own_keys``: whether the old task has a key group of the new one."""
        super().__init__()
        self._declared, self._own, self._has_own_keys = declared, own, has_own_keys

    def _read(self, section: Section) -> DecodedSection:
        spec = self._wanted(section.name)
        if spec is None:
            return DecodedSection([], [], [])
        deleted, keys, values = read_section(section)
        if spec.scope is StateScope.KEYED and keys:
            keys, values = own_rows(spec, self._own, keys, values)
        return DecodedSection(deleted, keys, values)

    def _apply_columns(self, sections: tuple[ColumnSection, ...]) -> None:
        if wanted := tuple([each for each in sections if self._wanted(each.name) is not None]):
            super()._apply_columns(wanted)

    def _wanted(self, name: str) -> StateSpec | None:
        """Returns the declaration of state; None if the new task takes none of it."""
        found = declaration_of(self._declared, name)
        if found is None or found[1].scope is StateScope.EMPTY:
            return None
        return found[1] if self._has_own_keys or found[1].scope not in BY_KEY else None


class _Part(NamedTuple):
    """State of an old task. ``part``: what is in the place of ``ANY``. ``is_own``: it has only entries of own keys."""

    name: str
    spec: StateSpec
    part: str
    state: OldState
    is_own: bool


class Division:
    """Division of the state of old tasks for one new task."""

    def __init__(self, declared: DeclaredState, task: int, parallelism: int, max_parallelism: int) -> None:
        """``task``: index of the new task among ``parallelism``.

        Raises: StateUndivided: the width of a step cannot change, whatever its state is.
        """
        check_widths(declared)
        self._declared, self._own = declared, OwnKeys(task, parallelism, max_parallelism)
        self._kinds = {(step, spec.name): spec.kind for step, spec in declared}
        self._image = StateImage()
        self._next: dict[tuple[str, str], int] = {}  # the next number by step and sequence
        self._indexes: dict[str, Any] = {}  # of the keys of slots that several keys share
        self._of_tasks: dict[str, _TaskTable] = {}
        self._old_tasks = 0

    def new_image(self, index: int, width: int) -> OwnImage:
        """Returns an empty image for the pieces of old task ``index`` of ``width``."""
        own, old = self._own.groups, groups_of_task(index, width, self._own.max_parallelism)
        return OwnImage(self._declared, self._own, max(own.start, old.start) < min(own.stop, old.stop))

    def add(self, image: StateImage) -> None:
        """Takes its part of an old task, of which ``image`` has all or what the new one may take; it is not changed.

        Raises: StateUndivided: the width of a step cannot change with this state. StateWithoutDeclaration.
        """
        steps: dict[str, list[_Part]] = {}
        for name, kind, state in _states_of(image):
            if (found := declaration_of(self._declared, name)) is None:
                continue
            step, spec, part = found
            if spec.kind is not kind:
                raise StateWithoutDeclaration(name)
            if spec.scope in BY_KEY:
                is_own = isinstance(image, OwnImage) and kind is StateKind.TABLE
                steps.setdefault(step, []).append(_Part(name, spec, part, _old_state(spec, state), is_own))
            elif spec.scope is StateScope.DRAINED and _is_filled(kind, state):
                raise StateUndivided(step, name, "records wait in it")
            elif spec.scope in OF_TASKS and name not in self._of_tasks:
                self._of_tasks[name] = _TaskTable(step, spec, name, [{}] * self._old_tasks)
        for step, parts in steps.items():
            self._move(step, {part.name: part for part in parts})
        for name, table in self._of_tasks.items():
            table.add(image.tables.get(name, {}))
        self._old_tasks += 1

    def result(self) -> StateImage:
        """Returns the state of the new task."""
        tables = self._image.tables
        for name, table in self._of_tasks.items():
            if entries := table.of(self._own):
                tables[name] = entries
        for step, spec in self._declared:
            if spec.scope is StateScope.NEXT and (number := self._next.get((step, spec.owner), 0)):
                tables[full_name(step, spec)] = {0: number}
        return self._image

    # --- state by key

    def _move(self, step: str, parts: dict[str, _Part]) -> None:
        """Adds what moves of the state of a step by key."""
        chosen: set[str] = set()
        for name in sorted(parts, key=lambda name: parts[name].spec.scope is not StateScope.KEYED):
            self._choose(step, name, parts, chosen)
        ranks = self._ranks(step, parts)
        moving = [part for part in parts.values() if part.state.is_moving]
        for part in moving:
            part.state.place(self._image, part.name, self._indexes)
        for part in moving:
            part.state.move([(each, self._renumbering(step, each, part, parts, ranks)) for each in part.spec.numbers])

    def _choose(self, step: str, name: str, parts: dict[str, _Part], chosen: set[str]) -> None:
        """Decides what moves of one state."""
        if name in chosen or name not in parts:
            return
        chosen.add(name)
        _, spec, part, state, is_own = parts[name]
        if spec.scope is StateScope.KEYED:
            if not is_own:
                state.choose_own(self._own)
            return
        if spec.scope is StateScope.REFERRING and (step, spec.owner) not in self._kinds:
            state.choose_referring(spec.numbers, self._numbers_left(step, spec.owner, parts))
            return
        owner = _name_of(step, spec.owner, part)
        self._choose(step, owner, parts, chosen)
        found = parts.get(owner)
        if found is None:
            state.choose_none()
        elif spec.scope is StateScope.REFERRED:
            state.choose_referred([found.state.numbers(each) for each in found.spec.numbers if each.of == spec.name])
        else:
            state.choose_referring([each for each in spec.numbers if each.of == spec.owner], found.state.chosen)

    def _numbers_left(self, step: str, sequence: str, parts: dict[str, _Part]) -> list[int]:
        """Returns the numbers of a sequence in tables whose entries have keys."""
        found: list[int] = []
        for _, spec, _, state, _ in [part for part in parts.values() if part.spec.scope is StateScope.KEYED]:
            for each in spec.numbers:
                found += state.numbers(each) if each.of == sequence else ()
        return found

    def _is_place(self, step: str, numbers: Numbers) -> bool:
        """Returns whether numbers are those of slots or rows, not of a sequence."""
        return self._kinds.get((step, numbers.of)) in (StateKind.COLUMNS, StateKind.ROWS)

    def _ranks(self, step: str, parts: dict[str, _Part]) -> dict[str, Ranks]:
        """Returns the new numbers of the sequences of a step."""
        found: dict[str, list[Any]] = {}
        for _, spec, _, state, _ in parts.values():
            for each in spec.numbers:
                if not self._is_place(step, each):
                    found.setdefault(each.of, []).append(state.numbers(each))
        ranks = {}
        for name, numbers in found.items():
            ranks[name] = Ranks(numbers, self._next.get((step, name), 0))
            self._next[step, name] = ranks[name].first + len(ranks[name])
        return ranks

    def _renumbering(
        self, step: str, numbers: Numbers, part: _Part, parts: dict[str, _Part], ranks: dict[str, Ranks]
    ) -> Any:
        """Returns what gives numbers anew; None if there is no state to which they could refer."""
        if not self._is_place(step, numbers):
            return ranks[numbers.of]
        target = parts.get(_name_of(step, numbers.of, part.part))
        return None if target is None else target.state.moved


class _TaskTable:
    """Table whose entries are values of the task, of all old tasks."""

    def __init__(self, step: str, spec: StateSpec, name: str, before: list[Entries]) -> None:
        """``before``: those of the first old tasks, which have no such table."""
        self._step, self._spec, self._name, self._tasks = step, spec, name, before

    def add(self, entries: Entries) -> None:
        """Adds that of the next old task.

        Raises: StateUndivided: the entries should be equal in all tasks.
        """
        if self._spec.scope is StateScope.EQUAL and self._tasks and entries != self._tasks[0]:
            raise StateUndivided(self._step, self._name, "it is not the same in all tasks")
        self._tasks.append(entries)

    def of(self, own: OwnKeys) -> Entries:
        """Returns the entries of a new task."""
        scope, tasks = self._spec.scope, self._tasks
        if scope in (StateScope.EQUAL, StateScope.FIRST):
            return dict(tasks[0])
        if scope is StateScope.SUM and own.task:
            return {}
        entries = [item for task in tasks for item in task.items()]
        if scope is StateScope.DEAL and not self._spec.deletes_empty:
            entries = entries[own.task :: own.parallelism]
        values: dict[Any, list[Any]] = {}
        for key, value in entries:
            values.setdefault(key, []).append(value)
        if self._spec.deletes_empty:
            joined = {key: _joined(found, scope, own) for key, found in values.items()}
            return {key: items for key, items in joined.items() if items}
        return {key: COMBINED[scope](found) for key, found in values.items()}


def _joined(containers: list[Any], scope: StateScope, own: OwnKeys) -> Any:
    """Returns the items of the lists or dicts of all old tasks, or those that are dealt to a new task."""
    dealt = slice(own.task, None, own.parallelism) if scope is StateScope.DEAL else slice(None)
    if not isinstance(containers[0], dict):
        return [item for each in containers for item in each][dealt]
    found: dict[Any, Any] = {}
    for key, value in [item for each in containers for item in each.items()]:
        found.setdefault(key, value)
    return dict(list(found.items())[dealt])


def declaration_of(declared: DeclaredState, name: str) -> tuple[str, StateSpec, str] | None:
    """Returns step and declaration of state, and what is in the place of ``ANY``; None for state of other steps.

    Raises: StateWithoutDeclaration: its step does not declare it.
    """
    found = declared.find(name)
    if found is None and any(name.startswith(f"{step}/") for step, _ in declared):
        raise StateWithoutDeclaration(name)
    return found


def check_widths(declared: DeclaredState) -> None:
    """Checks that the widths of steps can change, as far as their declarations tell.

    Raises: StateUndivided.
    """
    for step, spec in declared:
        if spec.scope is StateScope.FIXED:
            raise StateUndivided(step, spec.name, spec.reason)


def _states_of(image: StateImage) -> Iterator[tuple[str, StateKind, Any]]:
    for name, entries in image.tables.items():
        yield name, StateKind.TABLE, entries
    for name, table in image.columns.items():
        yield name, StateKind.COLUMNS, table
    for name, store in image.stores.items():
        yield name, StateKind.ROWS, store


def _old_state(spec: StateSpec, state: Any) -> OldState:
    if spec.kind is StateKind.TABLE:
        return OldTable(spec, state)
    from clonos.operators.state.divided_columns import OldRows, OldSlots  # loads Arrow, which jobs of rows do not need

    return OldSlots(spec, state) if spec.kind is StateKind.COLUMNS else OldRows(spec, state)


def _is_filled(kind: StateKind, state: Any) -> bool:
    """Returns whether there is an entry, slot or row."""
    return bool(len(state.live()) if kind is StateKind.COLUMNS else len(state))


def _name_of(step: str, name: str, part: str) -> str:
    """Returns the full name of other state of a step, with the same number or name in the place of ``ANY``."""
    return f"{step}/{name.replace(ANY, part)}"
