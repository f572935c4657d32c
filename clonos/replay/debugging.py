"""Debugger of a replay: it stops in user code in front of a record, or where user code has raised."""

from __future__ import annotations

import pdb
import sys
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

from clonos.core.log.call_outcomes import RAISED_IN_CALL
from clonos.core.model.code_location import INSTALLED, LIBRARY
from clonos.core.ports.task_port import TaskStopped
from clonos.core.values.column_rows import rows_of_columns
from clonos.io.epochs.record_parts import FailedHere
from clonos.replay.output_comparison import ROWS_SHOWN, shown
from clonos.replay.record_condition import RecordCondition
from clonos.replay.record_hooks import RecordAt

SKIPPED: Final = [pattern for name in LIBRARY for pattern in (name, f"{name}.*")]


class ReplayQuit(TaskStopped):
    """The user has ended the replay from its debugger."""


class ReplayDebugger(pdb.Pdb):
    """Debugger that stops in user code only, and whose ``quit`` ends the replay."""

    def __init__(self) -> None:
        super().__init__(skip=SKIPPED, nosigint=True)
        self.prompt = "(replay-pdb) "

    def do_quit(self, arg: str) -> bool | None:
        """Ends the replay."""
        sys.settrace(None)
        raise ReplayQuit

    do_q = do_exit = do_EOF = do_quit  # noqa: N815  the name of ``cmd``

    def get_stack(self, f: FrameType | None, t: TracebackType | None) -> tuple[list[tuple[FrameType, int]], int]:
        """Returns the frames of user code, and the index of the innermost one; all frames if there are none."""
        stack, index = super().get_stack(f, t)
        inside = [place for place, (frame, _) in enumerate(stack) if _is_library(frame)]
        mine = [each for each in stack[max(inside, default=-1) + 1 :] if _is_users(each[0])]
        if not mine:  # a library raised that user code has called, or clonos itself
            mine = [each for each in stack if _is_users(each[0]) and inside and each in stack[inside[0] :]]
        return (mine, len(mine) - 1) if mine else (stack, index)


def _is_library(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in LIBRARY


def _is_users(frame: FrameType) -> bool:
    return not _is_library(frame) and not frame.f_code.co_filename.startswith(("<frozen ", *INSTALLED))


def without_frames(error: BaseException, failure: FailedHere | None) -> str:
    """Returns what to do about an exception of an asynchronous call, which does not run in a replay, so that it has no
    frame here; "" for any other exception. ``failure``: with which the record ends."""
    is_of_call = any(note.startswith(RAISED_IN_CALL) for note in getattr(error, "__notes__", ()))
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    if not is_of_call or any(map(_is_users, frames)):
        return ""
    given = f"{failure.record}, which it was given" if failure is not None and failure.record else "its record"
    return (
        "an asynchronous call has raised, and calls do not run in a replay: the log has their outcomes. To stop in its"
        f" function, call that with {given}, under a debugger"
    )


def examine(error: BaseException) -> None:
    """Opens the debugger where an exception was raised."""
    debugger = ReplayDebugger()
    debugger.reset()
    try:
        debugger.interaction(None, error.__traceback__)
    except ReplayQuit:
        pass


class StoppingHook:
    """Hook that stops in the function of the user that gets the next record for which ``condition`` holds.

    No function of the user gets a batch of columns.
    """

    def __init__(self, condition: RecordCondition, report: Callable[[str], None] = print) -> None:
        self.condition = condition
        self._report = report

    def __call__(self, at: RecordAt) -> None:
        if at.last is None and self.condition(at):
            self._report(described_record(at))
            debugger = ReplayDebugger()
            debugger.set_trace(sys._getframe())


def described_record(at: RecordAt) -> str:
    """Describes a record, or a batch, in front of a step."""
    if at.last is not None:
        return (
            f"a batch of the step {at.step}, from the records {at.number:,} to {at.last:,}: {_shown_batch(at.record)}"
        )
    number = "a record" if at.number is None else f"record {at.number:,}"
    key = "" if at.key is None else f", key {shown(at.key)}"
    return f"{number} of the step {at.step}{key}: {shown(at.record)}"


def _shown_batch(batch: Any) -> str:
    rows = rows_of_columns(batch.slice(0, ROWS_SHOWN))
    more = batch.num_rows - len(rows)
    return ", ".join(map(shown, rows)) + (f" and {more:,} more" if more else "")
