"""Mutants of windows: records added twice, late records, the watermark in the snapshot, sessions that merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.kinds import object_pane_batch
from clonos.operators.operator import DueTimer, Scope
from clonos.operators.windows.assigners import SessionAssigner
from clonos.operators.windows.pane_agenda import EMITS
from clonos.operators.windows.pane_windows import PaneWindows
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
