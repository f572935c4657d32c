"""``clonos replay --key``: what one key has gone through in an epoch, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos.operators.job_image import JobImage
from clonos.operators.key_places import tasks_of_key
from clonos.operators.steps.awaited_events import Cancel, Event
from clonos.replay.epoch import Epoch
from clonos.replay.key_chain import KeyChain
from clonos.replay.key_steps import KeyState, KeyStep, StepEvent, state_json
from clonos.replay.model_exchange import ChatMessage, messages_of
from clonos.replay.output_comparison import compared, shown
from clonos.replay.replay_report import ReplayReport
from clonos.replay.replaying import Replayed, described, replay_epoch
from clonos.replay.seen_calls import CallKind, SeenCall, seeing
from clonos.replay.what_if import WhatIf

MESSAGE_CHARACTERS_MAX: Final = 2_000
"""Characters of a message that the text shows; JSON has all."""


DIFFERS: Final = "the replay does not repeat what the task did: clonos replay without --key shows where"


class KeyNotFound(JobError):
    """The record has nothing of a key. ``steps``: those with state by key, ``elsewhere``: the tasks that may have
    the key."""

    key: str
    task: str
    steps: tuple[str, ...]
    others: tuple[str, ...]
    elsewhere: tuple[str, ...]

    def __str__(self) -> str:
        if self.others:
            others = f" It has {', '.join(self.others)}."
        elif self.steps:
            others = f" It has no key at {', '.join(self.steps)}."
        else:
            others = " It has no step with state by key."
        remedy = f" Replay the record of {' or '.join(self.elsewhere)}: the key is there." if self.elsewhere else ""
        return (
            f"the record of {self.task} has nothing of the key {self.key}, neither a record nor state.{others}{remedy}"
        )


@dataclass
class KeyTimeline:
    """Course of one key in an epoch, and the replay that showed it. ``key``: as it was given. ``is_as_recorded``: the
    replay did what the live task did. ``states``: of the key at the end, by step."""

    epoch: Epoch
    key: str
    replayed: Replayed
    steps: list[KeyStep]
    is_as_recorded: bool
    states: dict[str, KeyState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def calls(self) -> list[SeenCall]:
        """Calls of all steps."""
        return [call for step in self.steps for call in step.calls]

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of all prompts, and of all replies."""
        answers = [call.answer for call in self.calls if call.answer is not None]
        return sum(each.prompt_tokens for each in answers), sum(each.completion_tokens for each in answers)

    def __str__(self) -> str:
        return "\n".join(self.lines({}))

    @property
    def costs(self) -> dict[str, float]:
        """Money that the calls have cost, by currency."""
        found = dict[str, float]()
        for call in self.calls:
            if call.answer is not None and call.answer.currency:
                found[call.answer.currency] = found.get(call.answer.currency, 0.0) + call.answer.cost
        return found

    @property
    def title(self) -> str:
        """First line of the text: the task, the key, and counts."""
        head = self.epoch.head
        keys = ", ".join(dict.fromkeys(shown(each.key) for each in self.steps)) or self.key
        places = [(step.step, each.number) for step in self.steps for each in step.records if step.has_records]
        records = len({each for each in places if each[1] is not None}) + sum(number is None for _, number in places)
        counts = [counted(records, "record"), counted(len(self.calls), "call"), *tokens_text(*self.tokens)]
        counts += [cost_text(amount, currency) for currency, amount in self.costs.items()]
        return f"{head.task}, epoch {head.epoch} of {head.job}, key {keys}: {', '.join(counts)}"

    def lines(self, shown_before: dict[str, Sequence[ChatMessage]]) -> Iterator[str]:
        """Yields the text. ``shown_before``: by step, the messages of the last prompt and its reply."""
        yield self.title
        for step in self.steps:
            yield ""
            yield from step_lines(step, shown_before)
        seen = {each.step for each in self.steps}
        for name, state in self.states.items():
            if name not in seen:
                yield from ("", f"no record at {name}, whose state is {state_text(state)}")
        yield ""
        if (error := self.replayed.user_error) is not None:
            yield f"then {described(error)}"
        elif self.replayed.open_call:
            yield f"then the log ends at a call of {self.replayed.open_call}"
        else:
            yield "then the record ends"
        yield from (f"note: {note}" for note in self.notes)

    def head_json(self) -> dict[str, Any]:
        """Returns what the timeline is of, for a program."""
        head = self.epoch.head
        return {"job": head.job, "task": head.task, "epoch": head.epoch}

    def to_json(self) -> dict[str, Any]:
        """Returns the timeline for a program."""
        error, (prompt, completion) = self.replayed.user_error, self.tokens
        return {
            **self.head_json(),
            "steps": [each.to_json() for each in self.steps],
            "states": [{"step": step, "state": state_json(state)} for step, state in self.states.items()],
            "calls": len(self.calls),
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "costs": self.costs,
            "error": None if error is None else described(error),
            "open_call": self.replayed.open_call or None,
            "as_recorded": self.is_as_recorded,
            "notes": self.notes,
        }


def timeline_of(
    epoch: Epoch, key: str, allowed: frozenset[str], image: JobImage | None = None, what_if: WhatIf | None = None
) -> KeyTimeline:
    """Replays an epoch and returns what a key has gone through.

    Args:
        epoch: the record.
        key: as ``str`` or ``repr`` shows it.
        allowed: what of the world outside user code may ask, see ``isolation.KINDS``.
        image: of changed code, None for that of the record; ``what_if`` runs its asynchronous functions.

    Raises: KeyNotFound. RecordRefused, TaskNotInJob: the replay cannot begin.
    """
    chains: list[KeyChain] = []

    def new_chain(vertex: Any, record: Epoch, _hook: Any) -> KeyChain:
        chains.append(KeyChain(vertex, record, key, what_if))
        return chains[0]

    with seeing(lambda call: chains[0].take_call(call)):
        replayed = replay_epoch(epoch, image=image, allowed=allowed, hook=lambda at: None, new_chain=new_chain)
    chain = chains[0]
    states = chain.states()
    if not chain.steps and not states:
        plan, steps, others = replayed.image.plan, tuple(chain.keyed_steps), tuple(chain.other_keys)
        tasks = tasks_of_key(plan, plan.vertex_of[replayed.task], key)
        elsewhere = tuple(each for each in tasks if each != epoch.task) if steps else ()
        raise KeyNotFound(key, epoch.task, steps, others, elsewhere)
    notes = [*epoch.head.missing, *epoch.head.redacted]
    notes += [f"the step {each} has its state in columns: --step shows its batches" for each in chain.in_columns]
    report = ReplayReport(epoch, replayed, compared(epoch, replayed))
    if image is None and not report.is_as_recorded:
        notes.append(DIFFERS)
    return KeyTimeline(epoch, key, replayed, chain.steps, report.is_as_recorded, states, notes)


# ------------------------------------------------------------------ text


def head_lines(step: KeyStep) -> Iterator[str]:
    """Yields the text of what has come to a step."""
    if step.event is StepEvent.TIMER:
        yield f"a timer or a watermark at {step.step}"
    for number, record in step.records:
        if step.event is StepEvent.EVENT:
            yield _event_line(record, step.step)
        else:
            yield f"{'a record' if number is None else f'record {number:,}'} at {step.step}: {shown(record)}"


def _event_line(record: Any, step: str) -> str:
    """Returns the text of an event, a cancellation, or what redaction has left of one."""
    if isinstance(record, Event):
        return f"the event {record.name!r} at {step}: {shown(record.value)}"
    if isinstance(record, Cancel):
        return f"a cancellation at {step}: {shown(record.value)}"
    return f"an event at {step}: {shown(record)}"


def step_lines(step: KeyStep, shown_before: dict[str, Sequence[ChatMessage]]) -> Iterator[str]:
    """Yields the text of what a key goes through at a step. ``shown_before``: by step, what need not be shown again."""
    yield from head_lines(step)
    yield f"  state before: {state_text(step.before)}"
    if step.calls_as_before:
        yield f"  {counted(step.calls_as_before, 'call')} as before"
    for number, call in enumerate(step.calls, step.calls_as_before + 1):
        yield from (f"  {line}" for line in call_lines(call, number, shown_before.get(step.step, ())))
        if call.prompt is not None:
            shown_before[step.step] = call.conversation
    if step.is_open:
        yield "  is under way where the log ends"
    if step.awaits:
        yield f"  awaits the event {step.awaits!r}"
    if step.error:
        yield f"  raised {step.error}"
    if step.result is not None:
        yield f"  result: {cut(step.result)}"
    yield f"  state after: {state_text(step.after)}"
    yield from (f"  note: {note}" for note in step.notes)


def call_lines(call: SeenCall, number: int, before: Sequence[ChatMessage] = ()) -> Iterator[str]:
    """Yields the text of a call. ``before``: messages that need not be shown again where the prompt begins with
    them."""
    if call.prompt is None:
        request = f"event {call.request}" if call.kind is CallKind.EVENT else f"{call.service}({cut(call.request)})"
        yield f"{number} {request}{', an effect' if call.is_effect else ''}"
    else:
        messages = call.prompt.messages
        known = len(before) if messages[: len(before)] == tuple(before) else 0
        counts = [f"{counted(len(messages), 'message')}{f', {known:,} as before' if known else ''}"]
        if call.answer is not None:
            counts += tokens_text(call.answer.prompt_tokens, call.answer.completion_tokens)
            counts += [cost_text(call.answer.cost, call.answer.currency)] if call.answer.currency else []
        yield f"{number} {call.service}, {call.prompt.model}: {', '.join(counts)}"
        for message in messages[known:]:
            yield from (f"    {line}" for line in message_lines(message))
    yield from (f"  {line}" for line in answer_lines(call))


def answer_lines(call: SeenCall) -> Iterator[str]:
    """Yields the text of the outcome of a call."""
    if not call.is_answered:
        yield "-> the log has no outcome"
    elif call.error:
        yield f"-> raised {cut(call.error)}"
    elif call.answer is not None:
        if call.answer.text:
            first, *rest = cut(call.answer.text).split("\n")
            yield f"-> {first}"
            yield from (f"   {line}" for line in rest)
        yield from (f"-> {each}" for each in call.answer.tool_calls)
    else:
        yield f"-> {cut(call.result or '')}"


def message_lines(message: ChatMessage) -> Iterator[str]:
    """Yields the text of a message."""
    first, *rest = cut(message.text).split("\n")
    yield f"{message.role}: {first}"
    yield from (f"  {line}" for line in rest)


def state_text(state: KeyState) -> str:
    """Describes the state of a key."""
    return "; ".join(f"{name} = {_value_text(value)}" for name, value in state.items()) or "none"


def _value_text(value: Any) -> str:
    messages = messages_of(value)
    return counted(len(messages), "message") if messages else shown(value)


def tokens_text(prompt: int, completion: int) -> list[str]:
    """Describes tokens, if there are any."""
    return [f"{prompt:,} + {completion:,} tokens"] if prompt or completion else []


def cost_text(amount: float, currency: str) -> str:
    """Describes money, such as ``0.0021 USD``."""
    return f"{amount:.4f}".rstrip("0").rstrip(".") + f" {currency}"


def cut(text: str) -> str:
    """Returns a text with at most ``MESSAGE_CHARACTERS_MAX`` characters of it."""
    if len(text) <= MESSAGE_CHARACTERS_MAX:
        return text
    return f"{text[:MESSAGE_CHARACTERS_MAX]}... ({len(text):,} characters, which --format json has)"


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun, such as ``2 calls``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
