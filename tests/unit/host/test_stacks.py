"""Stacks of the threads of a process: what they show of a task that is stuck, and what a sampler counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from clonos.core.ports.operator_chain import Collector
from clonos.core.wire.stack_messages import SampleTask, ShowThreads, StacksShown
from clonos.operators.user_errors import Guard
from clonos_standby.stacks import (
    ABSENT,
    ANSWERS_MAX,
    SAMPLES_PER_S,
    StackAnswers,
    StackSampler,
    ThreadStack,
    decode_process,
    decode_samples,
    encode_stacks,
    folded,
    process_stacks,
)
from tests.harnesses.lone_slot import LIMIT_S

NAME = "task ask/0 1.1"


class Raising:
    """A record whose ``repr`` raises."""

    def __repr__(self) -> str:
        raise ValueError("no text")


class Stuck:
    """Thread of a task whose step is in user code until it is released."""

    def __init__(self) -> None:
        self.is_inside, self.is_released = threading.Event(), threading.Event()

    def wait(self, record: object) -> object:
        """A function of a user that does not end."""
        self.is_inside.set()
        self.is_released.wait(LIMIT_S)
        return record

    @contextmanager
    def on(self, record: object) -> Iterator[threading.Thread]:
        """The thread, while the function has this record."""
        guard = Guard("enrich", True, cast("Collector", None), None)
        thread = threading.Thread(target=lambda: guard.each(lambda each: self.wait(each), [record]), name=NAME)
        thread.start()
        assert self.is_inside.wait(LIMIT_S)
        try:
            yield thread
        finally:
            self.is_released.set()
            thread.join()


def _of_task() -> ThreadStack:
    (found,) = [each for each in process_stacks().threads if each.name == NAME]
    return found


def test_a_task_that_is_stuck_is_shown_with_its_step_its_record_and_its_line() -> None:
    with Stuck().on({"word": "to"}):
        found = _of_task()
    assert (found.task, found.step, found.is_waiting) == ("ask/0", "enrich", False)
    assert found.arguments == (("each", "{'word': 'to'}"),)
    assert any(frame.endswith("in wait: self.is_released.wait(LIMIT_S)") for frame in found.frames)


def test_threads_of_tasks_come_first_and_the_calling_thread_is_left_out() -> None:
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait, name="a thread of no task")
    other.start()
    with Stuck().on(1):
        threads = process_stacks().threads
    is_over.set()
    other.join()
    assert threads[0].name == NAME
    assert "a thread of no task" in [each.name for each in threads]
    assert threading.current_thread().name not in [each.name for each in threads]


@pytest.mark.parametrize(
    ("record", "shown"),
    [(Raising(), "<Raising instance at"), ("a" * 10_000, "'aaaa"), (list(range(10_000)), "[0, 1, 2")],
)
def test_a_record_without_a_short_text_is_shown_all_the_same(record: object, shown: str) -> None:
    with Stuck().on(record):
        ((_, text),) = _of_task().arguments
    assert text.startswith(shown)
    assert len(text) <= 310


def test_a_dump_survives_its_encoding() -> None:
    found = process_stacks()
    assert decode_process(encode_stacks(found)) == found


def test_a_sampler_counts_the_stack_of_its_thread_only() -> None:
    with Stuck().on(1) as thread:
        sampler = StackSampler(thread)
        for _ in range(3):
            sampler.sample()
        found = sampler.run(1 / SAMPLES_PER_S, threading.Event())
    ((stack, times),) = found.counts.items()
    assert times == found.samples + 3
    assert stack.startswith("Stuck.on.<locals>.<lambda> (test_stacks.py:")
    assert ";Stuck.wait (test_stacks.py:" in stack


def test_a_thread_that_does_not_run_has_no_stack() -> None:
    assert folded(None) == ABSENT


def test_a_sampler_ends_with_its_slot() -> None:
    has_to_end = threading.Event()
    has_to_end.set()
    with Stuck().on(1) as thread:
        assert StackSampler(thread).run(LIMIT_S, has_to_end).samples == 0


class _Answers:
    def __init__(self) -> None:
        self.shown: list[StacksShown] = []
        self.has_answer = threading.Event()
        self.made = StackAnswers(self._send)

    def _send(self, shown: StacksShown) -> None:
        self.shown.append(shown)
        self.has_answer.set()

    def one(self) -> StacksShown:
        """The first answer."""
        assert self.has_answer.wait(LIMIT_S)
        return self.shown[0]


def test_a_slot_answers_while_its_task_is_stuck() -> None:
    answers = _Answers()
    with Stuck().on(1):
        answers.made.answer(ShowThreads(7), ())
        shown = answers.one()
    assert shown.number == 7
    assert NAME in [each.name for each in decode_process(shown.stacks).threads]
    answers.made.close()


def test_a_task_that_the_slot_does_not_have_has_no_samples() -> None:
    answers = _Answers()
    answers.made.answer(SampleTask(cast("Any", 0), 1000, 8), ())
    assert decode_samples(answers.one().stacks).samples == 0
    answers.made.close()


def test_a_slot_makes_few_answers_at_one_time_and_ends_them_with_itself() -> None:
    answers = _Answers()
    with Stuck().on(1) as thread:
        tasks: Any = [_Task(thread)]
        for number in range(ANSWERS_MAX + 3):
            answers.made.answer(SampleTask(cast("Any", 0), 60_000, number), tasks)
        answers.made.close()
        assert [shown.number for shown in sorted(answers.shown, key=_number)] == list(range(ANSWERS_MAX))


class _Task:
    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread


_number: Callable[[StacksShown], int] = lambda shown: shown.number  # noqa: E731
