"""Stacks of the threads of a process: what each is at, once for a thread dump, and again and again for a flame graph.

Another thread than those that are shown reads them, so that a thread that is stuck is shown too. That takes the global
interpreter lock: while C code holds it, nobody in the process answers. Functions in C have no frames here; their time
is that of the line that called them.
"""

from __future__ import annotations

import os
import reprlib
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import dropwhile
from types import FrameType
from typing import Any, Final

import msgspec

from clonos.core.ports.step_code import package_of, step_of
from clonos.core.wire.stack_messages import SampleTask, ShowThreads, StacksShown
from clonos.operators.user_errors import RAISED
from clonos_standby.slot.hang_watch import (
    PACKAGES,
    WatchedThread,
    is_user_code,
    is_waiting,
    line_text,
)
from clonos_standby.slot.log_forwarding import THREAD_OF_CALL, THREAD_OF_TASK

FRAMES_MAX: Final = 200
THREADS_MAX: Final = 500
VALUE_CHARACTERS_MAX: Final = 300
SAMPLES_PER_S: Final = 100
STACKS_MAX: Final = 20_000
"""Different stacks of one flame graph; further ones count as ``OTHERS``."""

ANSWERS_MAX: Final = 4
"""Answers that are made at one time; further requests get none."""

SAMPLE_MS_MAX: Final = 60_000
CLOSE_TIMEOUT_S: Final = 1.0

WAITING: Final = "(waits for its slot)"
OTHERS: Final = "(other stacks)"
ABSENT: Final = "(does not run)"


class ThreadStack(msgspec.Struct, frozen=True, array_like=True):
    """Thread and its stack. ``task``: whose code it runs, if any; ``step``: the innermost one on the stack.

    ``is_waiting``: a task that waits for its slot: for input, or until its output is taken. ``arguments``: of the
    function of user code that the step has called, such as a record, as text. ``frames``: innermost last.
    """

    name: str
    task: str
    step: str
    is_waiting: bool
    arguments: tuple[tuple[str, str], ...]
    frames: tuple[str, ...]


class ProcessStacks(msgspec.Struct, frozen=True, array_like=True):
    """Process and its threads, those of tasks first."""

    pid: int
    host: str
    threads: tuple[ThreadStack, ...]


class StackSamples(msgspec.Struct, frozen=True, array_like=True):
    """Samples of the stack of a thread. ``counts``: by stack, whose functions are separated by ``;``, outermost first:
    the format of folded stacks."""

    samples: int
    counts: dict[str, int]


encode_stacks: Final = msgspec.msgpack.Encoder().encode
decode_process: Final = msgspec.msgpack.Decoder(ProcessStacks).decode
decode_samples: Final = msgspec.msgpack.Decoder(StackSamples).decode


class _ShortRepr(reprlib.Repr):
    """``repr`` that looks at a part of large collections only. A ``repr`` of user code that raises is named."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = VALUE_CHARACTERS_MAX
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = 20

    def text(self, value: object) -> str:
        """Returns a value as text."""
        try:
            shown = self.repr(value)
        except RAISED as error:
            return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
        return shown if len(shown) <= VALUE_CHARACTERS_MAX else f"{shown[:VALUE_CHARACTERS_MAX]}..."


def process_stacks() -> ProcessStacks:
    """Returns the stacks of all threads of this process but the calling one. Runs ``repr`` of values of user code."""
    own, names = threading.get_ident(), {each.ident: each.name for each in threading.enumerate()}
    found = [
        _shown(names.get(ident, f"thread {ident}"), frame)
        for ident, frame in sys._current_frames().items()
        if ident != own
    ]
    found.sort(key=lambda each: (not each.task, each.name))
    return ProcessStacks(os.getpid(), socket.gethostname(), tuple(found[:THREADS_MAX]))


def _shown(name: str, frame: FrameType) -> ThreadStack:
    task = task_of(name)
    frames = _frames(frame)
    lines = tuple(line_text(each) for each in reversed(frames[:FRAMES_MAX]))
    arguments = _arguments(frames) if task else ()
    waits = bool(task) and is_waiting(frame)
    return ThreadStack(name, task, step_of(frame) if task else "", waits, arguments, lines)


def task_of(name: str) -> str:
    """Returns the task whose code a thread runs, by the name of the thread; "" if it runs none."""
    return name.split(" ")[1] if name.startswith((THREAD_OF_TASK, THREAD_OF_CALL)) else ""


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Returns the frames of a stack, innermost first."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def _arguments(frames: list[FrameType]) -> tuple[tuple[str, str], ...]:
    """Returns the arguments, as they are now, of the function of user code that the innermost step has called."""
    called: FrameType | None = None
    for frame in frames:
        if package_of(frame) in PACKAGES:
            if called is not None:
                break
        elif is_user_code(frame.f_code.co_filename):
            called = frame
    if called is None:
        return ()
    code, short = called.f_code, _ShortRepr()
    values: dict[str, Any] = called.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple((name, short.text(values[name])) for name in names if name in values)


class StackSampler:
    """Sampler of one thread at ``SAMPLES_PER_S``; without one nothing is measured, and no task pays for it."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._counts: Counter[str] = Counter()

    def run(self, length_s: float, has_to_end: threading.Event) -> StackSamples:
        """Samples for this time, or until ``has_to_end`` is set; returns what was seen."""
        due_s = time.monotonic()
        deadline_s, taken = due_s + length_s, 0
        while due_s < deadline_s and self._thread.is_alive():
            if has_to_end.wait(max(0.0, due_s - time.monotonic())):
                break
            self.sample()
            taken += 1
            due_s = max(due_s + 1 / SAMPLES_PER_S, time.monotonic())
        return StackSamples(taken, dict(self._counts))

    def sample(self) -> None:
        """Looks once."""
        stack = folded(sys._current_frames().get(self._thread.ident or 0))
        self._counts[stack if stack in self._counts or len(self._counts) < STACKS_MAX else OTHERS] += 1


def folded(frame: FrameType | None) -> str:
    """Returns a stack on one line, outermost function first, without those that begin the thread."""
    if frame is None:
        return ABSENT
    if is_waiting(frame):
        return WAITING
    frames = dropwhile(lambda each: package_of(each) == "threading", reversed(_frames(frame)[:FRAMES_MAX]))
    return ";".join(map(_function, frames))


def _function(frame: FrameType) -> str:
    """Returns the name of a function and where it begins, without what separates functions and counts."""
    code = frame.f_code
    text = f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return text.replace(";", ":").replace("\n", " ")


class StackAnswers:
    """Threads of a slot that make its answers, because ``repr`` of values of user code and the sampling of a task take
    their time. ``send`` is called in them, all else in the I/O thread."""

    def __init__(self, send: Callable[[StacksShown], object]) -> None:
        self._send = send
        self._threads: list[threading.Thread] = []
        self._has_to_end = threading.Event()

    def answer(self, asked: ShowThreads | SampleTask, tasks: Iterable[WatchedThread]) -> None:
        """Begins to answer a request. ``tasks``: those of the slot that the request is about."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= ANSWERS_MAX:
            return
        if isinstance(asked, ShowThreads):
            thread = threading.Thread(target=self._show, args=(asked.number,), name="thread dump", daemon=True)
        else:
            found = next(iter(tasks), None)
            work = (asked, None if found is None else found.thread)
            thread = threading.Thread(target=self._sample, args=work, name="stack sampler", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _show(self, number: int) -> None:
        self._send(StacksShown(number, encode_stacks(process_stacks())))

    def _sample(self, asked: SampleTask, thread: threading.Thread | None) -> None:
        samples = StackSamples(0, {})
        if thread is not None:
            length_s = min(asked.sample_ms, SAMPLE_MS_MAX) / 1000
            samples = StackSampler(thread).run(length_s, self._has_to_end)
        self._send(StacksShown(asked.number, encode_stacks(samples)))

    def close(self) -> None:
        """Ends the threads; one whose ``repr`` of user code does not return is left."""
        self._has_to_end.set()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT_S)
