"""Journals: what a source takes in and cannot read again is replicated before any step sees it (protocol 7).

The journal of a task is one more log beside the causal ones (``ids.journal_of``), shared with the task's keepers and
with nobody else. Its slot appends what comes in. What every keeper holds is released: to the task, which reads it by
``READ`` like any split, and to the producer as an acknowledgement. So a successor finds at a keeper all that any
incarnation has read. Offsets are bytes since the job's start; what lies before the last checkpoint is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

from clonos.core.channel.command_queue import CommandQueue
from clonos.core.external.external_output import KeeperLink
from clonos.core.log.causal_log import CausalLogs, check_overlap
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import Incarnation, TaskId, ViewNumber, journal_of, view_name
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.ports.task_failure import failure_of
from clonos.core.ports.task_port import Journalled
from clonos.core.recovery.gathering import choose_longest
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import Recourse, TaskFailed

PRODUCER_TIMEOUT_MS = 30_000
"""How long the connection to a producer may fail, tried again at each heartbeat, before the job fails."""


class ProducerConnectionFailed(EnvironmentFault):
    """A source that cannot be re-read was not reached for too long."""

    task: str
    patience_ms: int
    error: str

    def __str__(self) -> str:
        return f"the source {self.task} has had no connection for {self.patience_ms / 1000:g} s: {self.error}"


class SourceJournal:
    """Journal of one incarnation in its slot: what has come in, up to where it is replicated, and the connection."""

    def __init__(
        self,
        task: TaskId,
        incarnation: Incarnation,
        name: str,
        logs: CausalLogs,
        shell: EffectCollector,
        commands: CommandQueue,
        unread_bytes_max: int,
    ) -> None:
        self.task, self.incarnation, self.name = task, incarnation, name
        self.logs, self.shell, self.commands = logs, shell, commands
        self.unread_bytes_max = unread_bytes_max
        self.id = journal_of(task)
        self.found_bytes = 0  # what keepers had of it when this incarnation began: the task has it, for replay
        self.released_bytes = 0  # every keeper has it: the task has been given it, and may read it
        self.read_bytes = 0  # by the task
        #: Invariant: found_bytes, released_bytes and read_bytes <= end_bytes; read_bytes <= given_bytes
        self.is_wanted = False  # the task is live, and the journal has no end yet
        self.is_open = False
        self.is_held = False
        self.is_stopping = False  # the job ends after a last checkpoint: what is not released by now never is
        self.is_out_of_budget = False  # the task may not produce anything now
        self.met = ViewNumber(0)  # the view that was installed last while this incarnation lived
        self._opened_ns = 0
        self._failing_ns: int | None = None  # since when, if no connection has lasted since

    @property
    def end_bytes(self) -> int:
        """Offset after all that has come in."""
        return self.logs.end_bytes(self.id)

    @property
    def is_waiting(self) -> bool:
        """Whether something is not known to be replicated."""
        return self.end_bytes > self.released_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes that have come in and the task has not read."""
        return self.end_bytes - self.read_bytes

    @property
    def start_bytes(self) -> int:
        """Offset before which all is in the state of completed checkpoints."""
        return self.logs.replicas[self.id].start_bytes

    def adopt(self, start: int, found: Delta | None, left: Delta | None, lost_since: int | None) -> None:
        """Begins at ``start``, where the restored state ends, with what a keeper had or the last incarnation left here.

        Warns where neither is there and this is not the task's first incarnation; ``lost_since``: the generation, or
        None for the first incarnation.
        """
        if found is not None and left is not None:
            check_overlap(self.id, found.offset_bytes, found.data, left.offset_bytes, left.data)
        data = b""
        if copies := [copy for copy in (found, left) if copy is not None and copy.offset_bytes <= start]:
            longest = choose_longest(copies)
            data = longest.data[start - longest.offset_bytes :]
        elif lost_since is not None:
            self.shell.warn(
                f"no keeper has the journal of {self.name}: input after byte {start}"
                " is lost unless the producer sends it again",
                task=self.task,
                behind_bytes=start,
                generation=view_name(lost_since),
            )
        self.logs.begin(self.id, start, data)
        self.found_bytes = start + len(data)
        self.read_bytes = start
        self.begin_released(start)

    def begin_released(self, start_bytes: int) -> None:
        """Counts only what is in a completed checkpoint as released: some keepers may have less than was found."""
        self.released_bytes = start_bytes

    def apply_view(self, number: ViewNumber) -> None:
        """Takes over the number of the view that was installed last."""
        self.met = number

    @property
    def given_bytes(self) -> int:
        """Offset after what the task has: all that was found, for replay, and what was released."""
        return max(self.found_bytes, self.released_bytes)

    @property
    def recovered(self) -> bytes:
        """Bytes that the task is given when it starts."""
        return self._between(self.start_bytes, self.found_bytes)

    def _between(self, offset_bytes: int, end_bytes: int) -> bytes:
        start = self.start_bytes
        data = self.logs.replicas[self.id].data
        return bytes(memoryview(data)[offset_bytes - start : end_bytes - start])

    def close(self, view: View, is_succeeded_here: bool) -> Delta | None:
        """Closes the connection; returns what was found or released, for a successor in this slot.

        Returns nothing where a view was skipped, by which the task may have received other bytes in another slot.
        """
        self.shell.producers.close(self.task, self.incarnation)
        if not is_succeeded_here or view.number != self.met + 1 or self.given_bytes <= self.start_bytes:
            return None
        return Delta(self.id, self.start_bytes, False, self._between(self.start_bytes, self.given_bytes))

    def validate(self) -> None:
        """Asserts what holds between two events."""
        if self.id not in self.logs.replicas:
            return  # the logs are being gathered
        assert max(self.found_bytes, self.released_bytes) <= self.end_bytes, (self.task, self.end_bytes)
        assert self.read_bytes <= self.given_bytes, (self.task, self.read_bytes, self.given_bytes)

    # ------------------------------------------------------------------ what comes in

    def append(self, data: bytes) -> None:
        """Appends whole records that have come in."""
        self.logs.append(self.id, data)

    def release(self, links: Iterable[KeeperLink]) -> None:
        """Gives the task what every keeper has; nothing where there is no keeper.

        A keeper may acknowledge more than this journal has: it held a longer copy, or it lies.
        """
        replicated_bytes = min((link.acknowledged.get(self.id, 0) for link in links), default=0)
        self._release_to(min(replicated_bytes, self.end_bytes))

    def _release_to(self, replicated_bytes: int) -> None:
        """Releases what was found as a whole: the task, which has it, cannot tell where in it an offset lies."""
        if replicated_bytes <= self.released_bytes or self.is_stopping:
            return
        given_bytes, self.released_bytes = self.given_bytes, replicated_bytes
        if replicated_bytes >= self.found_bytes:
            self.commands.put(Journalled(self._between(given_bytes, replicated_bytes)))
            self.shell.producers.acknowledge(self.task, self.incarnation, replicated_bytes)
            self.open_if_due()

    def read(self, read_bytes: int) -> None:
        """Takes over up to where the task has read."""
        self.read_bytes = max(self.read_bytes, read_bytes)
        self.update_hold()

    def truncate(self, offset_bytes: int) -> None:
        """Releases and drops what a completed checkpoint has: that is as good as replicated."""
        self._release_to(offset_bytes)
        self.logs.truncate(self.id, offset_bytes)

    # ------------------------------------------------------------------ the connection to the producer

    def want(self) -> None:
        """Connects as soon as possible, because the task is live."""
        self.is_wanted = True
        self.open_if_due()

    def stop(self) -> None:
        """Takes in nothing more, because the job stops: what the last checkpoint lacks must not be acknowledged."""
        self.is_stopping = True
        self.update_hold()

    def open_if_due(self) -> None:
        """Connects when all that came in is replicated: the producer continues at the offset that is acknowledged."""
        if self.is_wanted and not (self.is_open or self.is_waiting or self.is_stopping):
            self.is_open, self._opened_ns = True, self.shell.now_ns()
            self.shell.producers.open(self.task, self.incarnation, self.released_bytes)
            if self.is_held:
                self.shell.producers.hold(self.task, self.incarnation, True)

    def set_out_of_budget(self, is_out: bool) -> None:
        """Takes over whether the task may produce nothing."""
        if is_out != self.is_out_of_budget:
            self.is_out_of_budget = is_out
            self.update_hold()

    def update_hold(self) -> None:
        """Takes in nothing more while the task cannot read, or has too much to read."""
        held = self.is_out_of_budget or self.is_stopping or self.unread_bytes > self.unread_bytes_max
        if held != self.is_held:
            self.is_held = held
            if self.is_open:
                self.shell.producers.hold(self.task, self.incarnation, held)

    def on_failed(self, error: str) -> TaskFailed | None:
        """Tries again at the next heartbeat, because the connection broke or there was none.

        Returns the failure of the task when connections have failed for longer than ``PRODUCER_TIMEOUT_MS``.
        """
        now_ns = self.shell.now_ns()
        self.is_open = False
        patience_ns = PRODUCER_TIMEOUT_MS * 1_000_000
        if self._failing_ns is None or now_ns - self._opened_ns > patience_ns:
            self._failing_ns = now_ns
            seconds = PRODUCER_TIMEOUT_MS // 1_000
            self.shell.warn(
                f"the source {self.name} has no connection, and tries for {seconds} s: {error}", task=self.task
            )
        if now_ns - self._failing_ns <= patience_ns:
            return None
        fault = ProducerConnectionFailed(self.name, PRODUCER_TIMEOUT_MS, error)
        return failure_of(self.task, self.incarnation, fault, Recourse.NONE, with_traceback=False)
