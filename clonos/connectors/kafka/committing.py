"""Protocol by which the output of a checkpoint goes to Kafka once, although its commit may be repeated.

Each task of the sink has a transactional id and a group. The group's offset is one more than the last checkpoint whose
rows are in the topic, and is committed in the transaction of these rows. As in ``numbering``, nothing here talks to
Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias

from clonos.connectors.kafka.kafka_errors import KAFKA, number_lost
from clonos.connectors.kafka.numbering import (
    SESSIONS_MAX,
    Answer,
    BeginSession,
    Command,
    Commit,
    Committed,
    Outcome,
    Read,
    Stamp,
)
from clonos.connectors.kit.external_system import SystemUnreachable

Committing: TypeAlias = Generator[Command, Answer, None]

STARTED: Final = 1
"""Number in the group of the job, which shows that its groups have not expired."""


class TaskOutput:
    """Output of one task, in one process of the driver."""

    def __init__(self, group: str, servers: str, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._group, self._servers = group, servers
        self._sessions_max = sessions_max
        self._number: int | None = None  # None without a session

    def commit(self, checkpoint: int, count: int, may_be_first: bool) -> Committing:
        """Writes ``count`` rows, unless those of the checkpoint or of a later one are there.

        ``may_be_first``: a missing number means that the task has written nothing.

        Raises: NumberLost: it does not mean that, and is missing. SystemUnreachable: transactions fail repeatedly.
        """
        for _ in range(self._sessions_max):
            if self._number is None:
                if (yield BeginSession()) is not Outcome.DONE:
                    continue
                found = yield Read()
                if isinstance(found, Outcome):
                    continue
                if found is None and not may_be_first:
                    raise number_lost(self._group, 1)
                self._number = 0 if found is None else found.number
            if self._number > checkpoint:
                return
            number = checkpoint + 1
            if (yield Commit(0, count, Committed(number, Stamp(0, 0, number, False)))) is Outcome.DONE:
                self._number = number
                return
            self._number = None  # the next session shows whether the transaction was committed
        raise SystemUnreachable(
            KAFKA,
            self._servers,
            f"committing checkpoint {checkpoint} as {self._group}",
            f"{self._sessions_max} attempts failed",
        )


def mark_started(group: str, servers: str, sessions_max: int = SESSIONS_MAX) -> Committing:
    """Commits the number that shows that the groups of the job have not expired.

    Raises: SystemUnreachable: transactions fail repeatedly.
    """
    for _ in range(sessions_max):
        if (yield BeginSession()) is not Outcome.DONE:
            continue
        if isinstance((yield Read()), Outcome):  # the library blocks in the first transaction with an unknown group
            continue
        if (yield Commit(0, 0, Committed(STARTED, Stamp(0, 0, STARTED, False)))) is Outcome.DONE:
            return
    raise SystemUnreachable(
        KAFKA, servers, f"committing the start of the job as {group}", f"{sessions_max} attempts failed"
    )


def is_started() -> Generator[Command, Answer, bool]:
    """Returns whether that number is there."""
    found = yield Read()
    return isinstance(found, Committed)
