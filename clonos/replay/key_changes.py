"""``clonos replay --key --code``: where the turns of a key part if the code is another one.

A turn parts at the first call that asks for something else: what the recorded code asked is compared with what the
changed code asks, message by message.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from clonos.operators.job_image import JobImage
from clonos.replay.epoch import Epoch
from clonos.replay.key_steps import KeyStep
from clonos.replay.key_timeline import (
    KeyTimeline,
    answer_lines,
    call_lines,
    counted,
    cut,
    head_lines,
    message_lines,
    state_text,
    timeline_of,
)
from clonos.replay.model_exchange import ModelRequest
from clonos.replay.replaying import described
from clonos.replay.seen_calls import SeenCall, text_of
from clonos.replay.what_if import WhatIf

CONTEXT_LINES: Final = 2
"""Lines around a change of a prompt that are shown."""


class ChangedTurn(NamedTuple):
    """Turn of a key with the recorded and with the changed code. ``now``: None if the changed code has not come there.

    ``part``: place of the first call that asks for something else, or that one of them does not make; None if all ask
    the same.
    """

    was: KeyStep
    now: KeyStep | None

    @property
    def part(self) -> int | None:
        """Place of the first call that differs, from 0."""
        if self.now is None:
            return None
        pairs = zip_longest(self.was.calls, self.now.calls)
        places = (place for place, (was, now) in enumerate(pairs) if _asked(was) != _asked(now))
        return next(places, None)

    @property
    def is_equal(self) -> bool:
        """Whether the turn is the same in calls, result and state."""
        if self.now is None or self.part is not None:
            return False
        ends = [(each.result, each.error, each.awaits, text_of(each.after)) for each in (self.was, self.now)]
        return ends[0] == ends[1]


@dataclass
class KeyChanges:
    """Comparison of what a key goes through with the recorded code and with a changed one."""

    was: KeyTimeline
    now: KeyTimeline
    what_if: WhatIf

    @property
    def turns(self) -> list[ChangedTurn]:
        """Turns of the key."""
        now = [*self.now.steps, *[None] * (len(self.was.steps) - len(self.now.steps))]
        return [ChangedTurn(*each) for each in zip(self.was.steps, now, strict=False)]

    @property
    def is_as_recorded(self) -> bool:
        """Whether no turn parts."""
        return all(each.is_equal for each in self.turns) and self.now.replayed.user_error is None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.was.title
        for turn in self.turns:
            if turn.now is not None:
                yield ""
                yield from _turn_lines(turn)
        yield ""
        if (error := self.now.replayed.user_error) is not None:
            yield f"then the changed code ends: {described(error)}"
        turns = [each for each in self.turns if each.was.has_records]
        parted = sum(not each.is_equal for each in turns)
        differ = "differs" if parted == 1 else "differ"
        yield f"{parted:,} of {counted(len(turns), 'turn')} {differ}; {counted(len(self.what_if.made), 'call')} made"
        yield from (f"note: {note}" for note in self.was.notes)

    def to_json(self) -> dict[str, Any]:
        """Returns the comparison for a program."""
        error = self.now.replayed.user_error
        return {
            **self.was.head_json(),
            "turns": [_turn_json(each) for each in self.turns],
            "made": self.what_if.made,
            "error": None if error is None else described(error),
            "as_recorded": self.is_as_recorded,
            "notes": self.was.notes,
        }


def changes_of_key(epoch: Epoch, key: str, allowed: frozenset[str], image: JobImage, what_if: WhatIf) -> KeyChanges:
    """Compares what a key goes through with the recorded code and with a changed one. See ``timeline_of``.

    Raises: KeyNotFound. RecordRefused, TaskNotInJob: the replay cannot begin.
    """
    was = timeline_of(epoch, key, allowed)
    with what_if.answering():
        now = timeline_of(epoch, key, allowed, image, what_if)
    return KeyChanges(was, now, what_if)


def prompt_changes(was: SeenCall, now: SeenCall) -> list[str]:
    """Returns the lines of two requests that differ, with ``-`` and ``+``, and those around them."""
    before, after = list(_request_lines(was)), list(_request_lines(now))
    found = list(difflib.unified_diff(before, after, n=CONTEXT_LINES, lineterm=""))[2:]
    return ["..." if line.startswith("@@") else f"{line[:1]} {line[1:]}" for line in found][1:]


def _request_lines(call: SeenCall) -> Iterator[str]:
    if call.prompt is None:
        yield f"{call.service}({call.request})"
        return
    yield f"{call.service}, {call.prompt.model}"
    yield from (f"{name} = {text_of(value)}" for name, value in call.prompt.settings.items())
    for message in call.prompt.messages:
        yield from message_lines(message)


def _asked(call: SeenCall | None) -> tuple[str, str, ModelRequest | None] | None:
    return None if call is None else call.asked


def _turn_lines(turn: ChangedTurn) -> Iterator[str]:
    was, now, part = turn.was, turn.now, turn.part
    assert now is not None, "a turn that the changed code has not come to is not shown"
    yield from head_lines(was)
    if text_of(was.before) != text_of(now.before):
        yield f"  state before: {state_text(now.before)}, in place of {state_text(was.before)}"
    if same := len(was.calls) if part is None else part:
        yield f"  {counted(same, 'call')} as before"
    if part is not None:
        yield from (f"  {line}" for line in _part_lines(turn, part))
        for number, call in enumerate(now.calls[part + 1 :], part + 2):
            yield from (f"  {line}" for line in call_lines(call, number))
    yield from _end_lines(was, now)


def _part_lines(turn: ChangedTurn, part: int) -> Iterator[str]:
    """Yields where a turn parts: what was asked then, and what is asked now."""
    assert turn.now is not None, "a turn that parts has come there"
    was = turn.was.calls[part] if part < len(turn.was.calls) else None
    now = turn.now.calls[part] if part < len(turn.now.calls) else None
    if was is not None and now is not None and was.service == now.service:
        yield f"{part + 1} {was.service} is asked for something else"
        yield from (f"    {line}" for line in prompt_changes(was, now))
        yield from (f"  then {line}" for line in answer_lines(was))
        yield from (f"  now  {line}" for line in answer_lines(now))
        return
    for name, call in (("then", was), ("now", now)):
        if call is None:
            yield f"{part + 1} {name} no further call"
        else:
            yield from (f"{name} {line}" for line in call_lines(call, part + 1))


def _end_lines(was: KeyStep, now: KeyStep) -> Iterator[str]:
    yield from (f"  note: {note}" for note in now.notes)
    if not all(call.is_answered for call in now.calls):
        return
    ends = [_end_text(each) for each in (was, now)]
    if ends[0] != ends[1]:
        yield f"  was  {ends[0]}"
        yield f"  is   {ends[1]}"
    elif ends[0]:
        yield f"  {ends[0]}, as before"
    states = [state_text(each.after) for each in (was, now)]
    if text_of(was.after) != text_of(now.after):
        yield f"  state after was {states[0]}"
        yield f"              is  {states[1]}"


def _end_text(step: KeyStep) -> str:
    if step.error:
        return f"raised {cut(step.error)}"
    if step.awaits:
        return f"awaits the event {step.awaits!r}"
    return "" if step.result is None else f"result: {cut(step.result)}"


def _turn_json(turn: ChangedTurn) -> dict[str, Any]:
    part, now = turn.part, turn.now
    changes: list[str] = []
    if part is not None and now is not None and part < min(len(turn.was.calls), len(now.calls)):
        changes = prompt_changes(turn.was.calls[part], now.calls[part])
    return {
        "equal": turn.is_equal,
        "parts_at_call": None if part is None else part + 1,
        "changes": changes,
        "was": turn.was.to_json(),
        "now": None if now is None else now.to_json(),
    }
