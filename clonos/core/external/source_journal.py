"""Journals: what a source takes from the outside and cannot read again is kept before anybody sees it.

The journal of a task is one more log beside the causal ones (``ids.journal_of``), shared with the task's keepers and
with nobody else. Its slot appends what comes in; what every keeper holds is released: to the task, which reads it by
``READ`` like any split, and to the pusher as an acknowledgement. So a successor finds at a keeper whatever anybody has
read. Offsets are bytes since the job's start. What lies before the last completed checkpoint goes, as with any log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from clonos.core.log.causal_log import check_overlap
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import ViewNumber, journal_of, view_name
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_port import Journalled
from clonos.core.recovery.gathering import choose_longest
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import Recourse

if TYPE_CHECKING:
    from clonos.core.external.external_output import KeeperLink
    from clonos.core.slot.hosted_task import HostedTask


PRODUCER_TIMEOUT_MS = 30_000
"""How long an intake may fail, tried again at each heartbeat, before the job fails."""


class ProducerConnectionFailed(EnvironmentFault):
    """A source that cannot be re-read was not reached for too long."""

    task: str
    patience_ms: int
    error: str

    def __str__(self) -> str:
        return f"the source {self.task} has had no connection for {self.patience_ms / 1000:g} s: {self.error}"


class SourceJournal:
    """The slot's end, of one incarnation: what has come in, up to where it is kept, and the intake."""

    def __init__(self, hosted: HostedTask) -> None:
        self.hosted = hosted
        self.id = journal_of(hosted.task)
        self.found_bytes = 0  # what keepers had of it when this incarnation began: the task has it, for replay
        self.released_bytes = 0  # every keeper has it: the task has been given it, and may read it
        self.read_bytes = 0  # by the task
        self.is_wanted = False  # the task is live, and the journal has no end yet
        self.is_open = False
        self.is_held = False
        self.is_stopping = False  # the job ends behind a last checkpoint: what is not released by now never is
        self.met = ViewNumber(0)  # the view that was installed last while this incarnation lived
        self._opened_ns = 0
        self._failing_ns: int | None = None  # since when, if no connection has lasted since

    @property
    def end_bytes(self) -> int:
        """Offset behind all that has come in."""
        return self.hosted.logs.end_bytes(self.id)

    @property
    def is_waiting(self) -> bool:
        """Something is not known to be kept."""
        return self.end_bytes > self.released_bytes

    @property
    def unread_bytes(self) -> int:
        """What has come in and the task has not read."""
        return self.end_bytes - self.read_bytes

    @property
    def start_bytes(self) -> int:
        """Offset before which all is in the state of completed checkpoints."""
        return self.hosted.logs.replicas[self.id].start_bytes

    def adopt(self, found: Delta | None) -> None:
        """Begins where the restored state ends, with what a keeper had, or this incarnation's forerunner here."""
        hosted = self.hosted
        start = hosted.snapshot.journal_offset_bytes if hosted.snapshot is not None else 0
        left = hosted.slot.journals.pop(hosted.task, None)
        if found is not None and left is not None:
            check_overlap(self.id, found.offset_bytes, found.data, left.offset_bytes, left.data)
        data = b""
        if copies := [copy for copy in (found, left) if copy is not None and copy.offset_bytes <= start]:
            longest = choose_longest(copies)
            data = longest.data[start - longest.offset_bytes :]
        elif not hosted.placement.is_first:
            hosted.shell.warn(
                f"no keeper has the journal of {hosted.plan.task_name(hosted.task)}: what came in behind byte {start},"
                " if anything did, is lost unless it is sent again",
                task=hosted.task,
                behind_bytes=start,
                generation=view_name(hosted.slot.view.generation),
            )
        hosted.logs.begin(self.id, start, data)
        self.found_bytes = start + len(data)
        self.read_bytes = start
        self.begin_released(start)

    def begin_released(self, start_bytes: int) -> None:
        """Of what was found, some keepers may have less: nothing is released that is in no completed checkpoint."""
        self.released_bytes = start_bytes

    @property
    def given_bytes(self) -> int:
        """What the task has: all that was found, for replay, and what was released."""
        return max(self.found_bytes, self.released_bytes)

    @property
    def recovered(self) -> bytes:
        """What the task is given when it starts."""
        return self._between(self.start_bytes, self.found_bytes)

    def _between(self, offset_bytes: int, end_bytes: int) -> bytes:
        start = self.start_bytes
        data = self.hosted.logs.replicas[self.id].data
        return bytes(memoryview(data)[offset_bytes - start : end_bytes - start])

    def close(self) -> None:
        """The incarnation is over. What was found or released stays for a successor in this slot, should no keeper
        live; but not when a view was skipped, by which it may have lived, and received other bytes, elsewhere."""
        hosted, slot = self.hosted, self.hosted.slot
        hosted.shell.producers.close(hosted.task, hosted.incarnation)
        slot.journals.pop(hosted.task, None)
        is_succeeded_here = slot.view.placements[hosted.task].slot == slot.id and slot.view.number == self.met + 1
        if is_succeeded_here and self.given_bytes > self.start_bytes:
            data = self._between(self.start_bytes, self.given_bytes)
            slot.journals[hosted.task] = Delta(self.id, self.start_bytes, False, data)

    # ------------------------------------------------------------------ what comes in

    def on_data(self, data: bytes) -> None:
        """Whole records have come in."""
        hosted = self.hosted
        hosted.logs.append(self.id, data)
        hosted.effects.grown(self.id)
        hosted.effects.pump()
        self.update_hold()

    def release(self, links: Iterable[KeeperLink]) -> None:
        """What every keeper has goes to the task; nothing where there is none."""
        self._release_to(min((link.acknowledged.get(self.id, 0) for link in links), default=0))

    def _release_to(self, kept_bytes: int) -> None:
        """What was found counts as a whole: the task, which has it, cannot tell where in it an offset lies."""
        if kept_bytes <= self.released_bytes or self.is_stopping:
            return
        given_bytes, self.released_bytes = self.given_bytes, kept_bytes
        if kept_bytes >= self.found_bytes:
            self.hosted.command(Journalled(self._between(given_bytes, kept_bytes)))
            self.hosted.shell.producers.acknowledge(self.hosted.task, self.hosted.incarnation, kept_bytes)
            self.open_if_due()

    def read(self, read_bytes: int) -> None:
        """The task has read up to here."""
        self.read_bytes = max(self.read_bytes, read_bytes)
        self.update_hold()

    def truncate(self, offset_bytes: int) -> None:
        """A completed checkpoint has what lies before: that is as good as kept."""
        self._release_to(offset_bytes)
        self.hosted.logs.truncate(self.id, offset_bytes)
        self.hosted.effects.send_to_keepers()

    # ------------------------------------------------------------------ the intake

    def want(self) -> None:
        """The task is live."""
        self.is_wanted = True
        self.open_if_due()

    def stop(self) -> None:
        """The job is being stopped: what the last checkpoint will not have must not be acknowledged."""
        self.is_stopping = True
        self.update_hold()

    def open_if_due(self) -> None:
        """Opens when all that came in is kept: so the pusher may go on, and be told, from one offset."""
        hosted = self.hosted
        if self.is_wanted and not (self.is_open or self.is_waiting or self.is_stopping):
            self.is_open, self._opened_ns = True, hosted.shell.now_ns()
            hosted.shell.producers.open(hosted.task, hosted.incarnation, self.released_bytes)
            if self.is_held:
                hosted.shell.producers.hold(hosted.task, hosted.incarnation, True)

    def update_hold(self) -> None:
        """Nothing more is taken in while the task cannot read, or has too much to read."""
        hosted = self.hosted
        held = (
            hosted.is_out_of_budget or self.is_stopping or self.unread_bytes > hosted.slot.options.credit_window_bytes
        )
        if held != self.is_held:
            self.is_held = held
            if self.is_open:
                hosted.shell.producers.hold(hosted.task, hosted.incarnation, held)

    def on_failed(self, error: str) -> None:
        """The connection broke, or there was none: tried again at the next heartbeat, but not for ever."""
        hosted, now_ns = self.hosted, self.hosted.shell.now_ns()
        self.is_open = False
        patience_ns = PRODUCER_TIMEOUT_MS * 1_000_000
        if self._failing_ns is None or now_ns - self._opened_ns > patience_ns:
            self._failing_ns = now_ns
        if now_ns - self._failing_ns > patience_ns and hosted.failed is None:
            fault = ProducerConnectionFailed(hosted.plan.task_name(hosted.task), PRODUCER_TIMEOUT_MS, error)
            hosted.failed = failure_of(hosted.task, hosted.incarnation, fault, Recourse.NONE, with_traceback=False)
            hosted.slot.send_to_coordinator(hosted.failed)
