"""Mutants of windows: records added twice, late records, the watermark in the snapshot, sessions that merge; and of the
parts that ``split_hot_keys=True`` makes of the records of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.core.values.copying import copied
from clonos.operators.aggregates.partial import MergingParts, PartialAggregate
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.kinds import object_pane_batch, partial_rows
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.windows.assigners import SessionAssigner
from clonos.operators.windows.pane_agenda import EMITS
from clonos.operators.windows.pane_windows import PaneWindows
from clonos.operators.windows.partial_step import PartialStep
from clonos.operators.windows.window_operator import WATERMARK
from clonos.operators.windows.window_rules import WindowRules
from clonos_chaos.project.mutants.mutation import Mutation, mutant


@mutant("2")
def panes_take_a_record_twice(mutation: Mutation) -> None:
    """A record is added to one pane, once."""

    def by_pane(right: Any, *arguments: Any) -> dict[int, list[Any]]:
        return {pane: [*rows, rows[-1]] for pane, rows in right(*arguments).items()}

    mutation.wrap(object_pane_batch, "by_pane", by_pane)


@mutant("2")
def late_records_are_dropped(mutation: Mutation) -> None:
    """Late records go to the side output."""
    mutation.swap(LateRecords, "take", lambda self, values, times, watermark_ns: None)


@mutant("5")
def windows_forget_the_watermark(mutation: Mutation) -> None:
    """The snapshot of a step of windows holds its watermark."""

    def opened(right: Any, self: PaneWindows[Any], scope: Scope) -> None:
        scope.state.table(WATERMARK).entries.clear()
        right(self, scope)

    mutation.wrap(PaneWindows, "open", opened)


@mutant("2")
def sessions_do_not_merge(mutation: Mutation) -> None:
    """Sessions between which a record lies become one."""
    mutation.swap(SessionAssigner, "joined", lambda self, first, second: None)


@mutant("2")
def lateness_is_ignored(mutation: Mutation) -> None:
    """A window takes records until its lateness has passed."""
    mutation.swap(WindowRules, "lateness_ns", property(lambda self: 0, lambda self, lateness_ns: None))


@mutant("2")
def ended_windows_are_retained(mutation: Mutation) -> None:
    """The state of a window is deleted when its lateness has passed."""

    def fire(right: Any, self: PaneWindows[Any], due: Sequence[DueTimer]) -> None:
        right(self, [timer for timer in due if timer.token[0] == EMITS])

    mutation.wrap(PaneWindows, "fire", fire)


@mutant("2")
def parts_take_the_place_of_what_a_key_has(mutation: Mutation) -> None:
    """A part is merged with what its key has."""

    def insert(right: Any, self: MergingParts, accumulator: Any, term: Any) -> Any:
        return copied(term.accumulator) if type(term) is PartialAggregate else right(self, accumulator, term)

    mutation.wrap(MergingParts, "insert", insert)
    mutation.wrap(MergingParts, "insert_or_keep", insert)


@mutant("2")
def parts_mix_panes(mutation: Mutation) -> None:
    """The records of a part are of one pane."""

    def by_pane(right: Any, *arguments: Any) -> dict[int, list[Any]]:
        panes = right(*arguments)
        return {min(panes): [row for rows in panes.values() for row in rows]}

    mutation.wrap(partial_rows, "by_pane", by_pane)


@mutant("2")
def late_records_are_in_parts(mutation: Mutation) -> None:
    """Records of panes behind the watermark pass as they are, because the windows decide which of them are late."""
    mutation.swap(PartialStep, "_first_open", lambda self, low, high, reached_ns: low)
