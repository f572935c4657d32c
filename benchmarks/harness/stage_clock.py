"""Stage clock: processor time of a slot's process by stage, measured by wrapped functions of the runtime.

A stage has the processor time of its functions without that of the stages inside them; the rest of a thread belongs to
no stage. A clock costs about 1 us per call, and there are a few calls per step.
"""

from __future__ import annotations

import gc
import importlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import msgspec

STAGES: Final = {
    "source: read": [
        "clonos.operators.split_source:OpenSplit.take",
        "clonos.operators.split_source:OpenSplit.buffered",
    ],
    "operator: flat_map": ["clonos.operators.steps.stateless:FlatMap.rows"],
    "operator: map_batches": ["clonos.operators.steps.stateless:MapBatches.columns"],
    "operator: count": [
        "clonos.operators.steps.keyed:RunningCount.keys",
        "clonos.operators.steps.keyed:RunningCount.keyed_columns",
    ],
    "operator: stateful_map": ["clonos.operators.steps.keyed:KeyedFunction.rows"],
    "keys: of the user": [
        "clonos.operators.chain_outputs:ToKeys.rows",
        "clonos.operators.chain_outputs:ToColumnKeys.columns",
    ],
    "keys: partition": ["clonos.core.values.keys:Router.split"],
    "output: gather": [
        "clonos.core.task.task_output:OutputPort._add",
        "clonos.core.task.task_output:OutputPort.columns",
    ],
    "output: encode": [
        "clonos.core.task.task_output:encode_rows",
        "clonos.core.task.task_output:encode_timed_rows",
        "clonos.core.task.task_output:encode_columns",
    ],
    "input: decode": ["clonos.core.task.inputs:decode_elements", "clonos.core.values.elements:RowParts.take"],
    "input: queue, cut, join": [
        "clonos.core.task.inputs:InputQueue.take",
        "clonos.core.task.inputs:InputQueue.run_length",
    ],
    "sink: write": ["clonos.operators.chain_outputs:ToSink.rows", "clonos.operators.chain_outputs:ToSink.columns"],
    "log: append, drain": [
        "clonos.core.task.record_or_replay:TaskLog.append",
        "clonos.core.task.record_or_replay:TaskLog.drain",
    ],
    "snapshot: state": ["clonos.operators.chain:OperatorChain.snapshot"],
    "snapshot: encode, store": ["clonos_standby.store_thread:SnapshotStore._write"],
    "task: take commands": ["clonos_standby.slot.task_thread:TaskThread.receive"],
    "task: hand over": ["clonos_standby.slot.task_thread:TaskThread.emit"],
    "task: steps": ["clonos.core.task.task:Task._live_step"],
    "slot: take emissions": ["clonos.core.slot.hosted_task:HostedTask.on_emission"],
    "slot: take messages": ["clonos_standby.slot.host:SlotHost.on_message"],
    "slot: deltas": ["clonos.core.channel.sender:ChannelSender.deltas"],
    "slot: tick": ["clonos.core.slot.hosted_task:HostedTask.tick"],
    "slot: standby update": ["clonos.core.standby.state_mirror:Standby.hold"],
    "transport: send": ["clonos.io.net.transport:Transport.send"],
    "transport: receive": ["clonos.io.net.message_receiver:MessageReceiver.receive_some"],
    "transport: wake, poll": ["clonos.io.net.transport:Transport.poll"],
    "inbox: drain": ["clonos_standby.inbox:Inbox.drain"],
}
COLLECTOR: Final = "garbage collector"
SCHEDULED: Final = "schedstat"


class Times(msgspec.Struct):
    """Times of one process. ``stages``: ns and calls. ``threads``: ns of processor time by name, with ZeroMQ's."""

    stages: dict[str, tuple[int, int]]
    threads: dict[str, int]


class _Clock(threading.local):
    """Stack of a thread's current stages, with the time used by inner stages."""

    def __init__(self) -> None:
        self.inner: list[int] = []


class StageClock:
    """Clock that wraps the stages of this process. ``times`` returns the time used since."""

    def __init__(self) -> None:
        self._ns: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._clock = _Clock()
        self._begun_ns = 0
        for stage, places in STAGES.items():
            for place in places:
                self._wrap(stage, place)
        gc.callbacks.append(self._collect)
        self._threads_before = _threads()

    def _wrap(self, stage: str, place: str) -> None:
        module_name, _, path = place.partition(":")
        owner: Any = importlib.import_module(module_name)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        function = owner.__dict__.get(name)
        if function is None:  # inherited, or another version of the runtime: the caller has its time
            return
        setattr(owner, name, self._timed(stage, function))

    def _timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        now_ns, clock, used_ns, calls = time.thread_time_ns, self._clock, self._ns, self._calls

        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            inner = clock.inner
            inner.append(0)
            begun_ns = now_ns()
            try:
                return function(*arguments, **named)
            finally:
                taken_ns = now_ns() - begun_ns
                used_ns[stage] += taken_ns - inner.pop()
                calls[stage] += 1
                if inner:
                    inner[-1] += taken_ns

        return timed

    def _collect(self, phase: str, _facts: dict[str, int]) -> None:
        if phase == "start":
            self._begun_ns = time.thread_time_ns()
            return
        taken_ns = time.thread_time_ns() - self._begun_ns
        self._ns[COLLECTOR] += taken_ns
        self._calls[COLLECTOR] += 1
        if self._clock.inner:
            self._clock.inner[-1] += taken_ns

    def times(self) -> Times:
        """Returns the times so far."""
        threads: Counter[str] = Counter()
        for thread, (name, used_ns) in _threads().items():
            threads[name] += used_ns - self._threads_before.get(thread, ("", 0))[1]
        return Times({stage: (self._ns[stage], self._calls[stage]) for stage in self._ns}, dict(threads))


def _threads() -> dict[int, tuple[str, int]]:
    """Returns name and processor time in ns by thread of this process."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[int, tuple[str, int]] = {}
    for folder in Path("/proc/self/task").iterdir():
        number = int(folder.name)
        try:
            used_ns = int((folder / SCHEDULED).read_text("ascii").split()[0])
            name = names.get(number) or (folder / "comm").read_text("utf-8").strip()
        except FileNotFoundError:  # it has just ended
            continue
        found[number] = (name, used_ns)
    return found


_clock_of_process: StageClock | None = None


def begin() -> None:
    """Wraps the stages of this process, once."""
    global _clock_of_process
    if _clock_of_process is None:
        _clock_of_process = StageClock()


def leave(folder: Path) -> None:
    """Writes the times of this process into a folder."""
    assert _clock_of_process is not None, "begin comes first"
    (folder / f"stages-{os.getpid()}").write_bytes(msgspec.msgpack.encode(_clock_of_process.times()))
