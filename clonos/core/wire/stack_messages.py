"""Messages of thread dumps and flame graphs: what the threads of a slot are at. The machine of a slot has no part in
them; its I/O thread takes them, so that a task that is stuck does not have to answer (protocol 4)."""

from __future__ import annotations

import msgspec

from clonos.core.model.ids import TaskId
from clonos.core.wire.log_delta import Count


class ShowThreads(msgspec.Struct, frozen=True, array_like=True, tag="show_threads"):
    """Coordinator's process to a slot: send the stacks of all threads of your process. Answered by ``StacksShown``."""

    number: Count  # of the request


class SampleTask(msgspec.Struct, frozen=True, array_like=True, tag="sample_task"):
    """Coordinator's process to the slot of a task: look at the stack of the task's thread again and again for this
    time, then send what was seen. Answered by ``StacksShown``."""

    task: TaskId
    sample_ms: Count
    number: Count


class StacksShown(msgspec.Struct, frozen=True, array_like=True, tag="stacks_shown"):
    """Slot to the coordinator's process: stacks, encoded. Sent once for each request."""

    number: Count
    stacks: bytes
