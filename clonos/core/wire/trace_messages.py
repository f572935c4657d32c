"""Messages about traced records: the tasks through which they have passed (protocol 4)."""

from __future__ import annotations

import msgspec

from clonos.core.model.ids import Incarnation
from clonos.core.wire.log_delta import Count
from clonos.core.wire.message_fields import Name


class TracedStep(msgspec.Struct, frozen=True, array_like=True):
    """Step of a task that has processed a traced record. Times in ns since the Unix epoch, by the clock of the host.

    ``source``: number of the task that has read the record, which with ``read_ns`` names the trace. ``sender``: the
    task from which it came, empty at the source. ``sent_ns``: when the sender emitted it, at a source when it was read.
    ``taken_ns``: when the task took it from its queue. ``ended_ns``: when the task emitted what came of it.
    """

    task: Name
    incarnation: Incarnation
    source: Count
    read_ns: Count
    sender: Name
    sent_ns: Count
    taken_ns: Count
    ended_ns: Count
    call_ns: Count  # part of the time in which it waited for an asynchronous call
    records: Count  # of the step


class StepsTraced(msgspec.Struct, frozen=True, array_like=True, tag="steps_traced"):
    """Slot to the coordinator's process at the heartbeat: what traced records have passed since the last one.

    Sent once, so it may be lost. Nothing depends on it.
    """

    steps: tuple[TracedStep, ...]
