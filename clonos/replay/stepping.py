"""Forwards and backwards through a replay, record by record, with the state of the record's key.

Backwards is a replay from the start up to an earlier record: a replay repeats itself, so no state is stored.
"""

from __future__ import annotations

import ast
import cmd
import sys
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos.core.ports.task_port import TaskStopped
from clonos.replay.debugging import ReplayDebugger, ReplayQuit, described_record
from clonos.replay.epoch import Epoch
from clonos.replay.record_condition import RecordCondition, condition_of
from clonos.replay.record_hooks import RecordAt
from clonos.replay.replay_chain import ReplayChain
from clonos.replay.replaying import Replayed, described, replay_epoch
from clonos.replay.shown_state import StateEntries, changes_text, state_entries, state_text

NEVER: Final = 1 << 62
COMMANDS: Final = "next, back, goto RECORD, find CONDITION, record, state [KEY], debug, continue, quit; help says more"


class _Rewound(TaskStopped):
    """The user goes back to an earlier place, which another replay reaches."""


class Stepper(cmd.Cmd):
    """Prompt of ``clonos replay --step``. A place is a record in front of a step; places count from 1."""

    prompt = "(replay) "

    def __init__(
        self, epoch: Epoch, allowed: frozenset[str] = frozenset(), stdin: Any = None, stdout: Any = None
    ) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self._epoch, self._allowed = epoch, allowed
        self._place = 0
        self._target = 1
        self._is_wanted: RecordCondition | None = None  # what ``find`` looks for
        self._at: RecordAt | None = None
        self._chain: ReplayChain | None = None
        self._seen: RecordAt | None = None  # the record whose state is shown again once it is processed
        self._before: StateEntries = {}  # the state in front of a batch, of which the changes are shown
        self._is_rewound = self._debugs = False
        self._goes_to = ""  # the number of the record that ``goto`` looks for
        self._last_number = 0  # of a record that was passed

    def run(self) -> None:
        """Steps until the user quits."""
        self._print(COMMANDS)
        while True:
            self._place, self._is_rewound = 0, False
            found = replay_epoch(self._epoch, allowed=self._allowed, hook=self._pass, started=self._start)
            if self._is_rewound:
                continue
            if found.was_quit or not self._at_end(found):
                return

    def _start(self, replayed: Replayed) -> None:
        self._chain = replayed.chain

    def _pass(self, at: RecordAt) -> None:
        """Hook in front of each record."""
        self._place += 1
        self._last_number = max(self._last_number, at.last or at.number or 0)
        self._show_state_after()
        is_here = self._is_wanted(at) if self._is_wanted is not None else self._place >= self._target
        if not is_here:
            return
        self._at, self._is_wanted, self._target, self._goes_to = at, None, NEVER, ""
        self._print(f"{self._place}: {described_record(at)}")
        self._print(f"   state before: {self._state_text(at)}")
        self._seen = at
        self._before = self._entries(at) if at.last is not None else {}
        self.cmdloop()
        if self._debugs:
            self._debugs = False
            ReplayDebugger().set_trace(sys._getframe())

    def _at_end(self, found: Replayed) -> bool:
        """Asks where a replay has ended. Returns whether the user goes back."""
        self._show_state_after()
        self._at = None
        self._place += 1
        error = found.user_error
        end = "the end of the record" if error is None else f"the end: {described(error)}"
        if self._goes_to:
            end = f"record {self._goes_to} does not exist: the last record is {self._last_number:,}. This is {end}"
        elif self._is_wanted is not None:
            end = "\n".join((f"{end}; no further record is: {self._is_wanted.text}", *self._is_wanted.reasons()))
        self._is_wanted, self._goes_to = None, ""
        self._print(end)
        try:
            self.cmdloop()
        except _Rewound:
            return True
        except ReplayQuit:
            return False
        return False

    def _print(self, text: str) -> None:
        self.stdout.write(f"{text}\n")

    # ------------------------------------------------------------------ state

    def _show_state_after(self) -> None:
        if self._seen is not None:
            is_batch = self._seen.last is not None
            text = changes_text(self._before, self._entries(self._seen)) if is_batch else self._state_text(self._seen)
            self._print(f"   state after:  {text}")
            self._seen = None

    def _entries(self, at: RecordAt) -> StateEntries:
        return {} if self._chain is None else state_entries(self._chain.state, at.step)

    def _state_text(self, at: RecordAt) -> str:
        return state_text(self._entries(at), at.key)

    # ------------------------------------------------------------------ commands

    def do_next(self, arg: str) -> bool:
        """next [N]: go N records forwards (1)."""
        self._target = self._place + self._number(arg)
        return True

    def do_back(self, arg: str) -> bool:
        """back [N]: go N records backwards (1)."""
        self._target = max(1, self._place - self._number(arg))
        self._rewind()
        return True

    def do_goto(self, arg: str) -> bool:
        """goto RECORD: go to the record of this number, forwards or backwards."""
        if self._look_for(f"record={arg.strip()}"):
            self._goes_to = arg.strip()
            self._rewind()
        return False

    def do_find(self, arg: str) -> bool:
        """find CONDITION: go to the next record for which it holds, such as key=ann, record=9, n > 7."""
        if self._at is None:
            self._print("the record has ended: goto 1 begins again")
            return False
        return self._look_for(arg)

    def do_record(self, arg: str) -> None:
        """record: show the record again."""
        self._print("the end" if self._at is None else described_record(self._at))

    def do_state(self, arg: str) -> None:
        """state [KEY]: show the state of the record's key, or of another one, as it is before the record."""
        at = self._at
        if at is None:
            self._print("the record has ended: go back first")
            return
        self._print(f"   {state_text(self._entries(at), _key_of(arg) if arg else at.key)}")

    def do_debug(self, arg: str) -> bool:
        """debug: open the debugger of Python in the function that gets the record."""
        if self._at is None:
            self._print("the record has ended: go back first")
            return False
        self._debugs = True
        return True

    def do_continue(self, arg: str) -> bool:
        """continue: go to the end of the record."""
        self._target = NEVER
        return True

    def do_quit(self, arg: str) -> bool:
        """quit: end the replay."""
        raise ReplayQuit

    do_n, do_b, do_c, do_r, do_s = do_next, do_back, do_continue, do_record, do_state
    do_q = do_EOF = do_quit  # noqa: N815  the name of ``cmd``

    def emptyline(self) -> bool:
        """Does nothing."""
        return False

    def _look_for(self, condition: str) -> bool:
        """Goes on to the record for which a condition holds. Returns whether it is one."""
        try:
            self._is_wanted = condition_of(condition)
        except JobError as error:
            self._print(str(error))
            return False
        return True

    def _rewind(self) -> None:
        self._is_rewound, self._seen = True, None
        raise _Rewound

    def _number(self, arg: str) -> int:
        return int(arg) if arg.strip().isdigit() else 1


def _key_of(text: str) -> Any:
    """Returns a key as the user writes it: a literal of Python, else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
