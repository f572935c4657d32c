"""Writer of the immediate Kafka sink: rows leave within tens of milliseconds, each once."""

from __future__ import annotations

import time
from typing import Any, Final

from clonos.connectors.kafka.client import Cluster
from clonos.connectors.kafka.message import ROW_HEADERS, RowForm
from clonos.connectors.kafka.numbering import Numbering
from clonos.connectors.kafka.transactions import Transactions
from clonos.operators.connector_contract import Registration, WriterIdentity

REPEAT_S: Final = 3_600.0
"""Time without rows after which the number is committed again, so that it does not expire while the job runs."""


def group_of(job_id: str, task_name: str) -> str:
    """Returns the name of the group and of the transactional id of a sink task."""
    return f"clonos-{job_id}-{task_name}"


class TopicWriter:
    """Registered connection of one incarnation of a sink task (``TruncatingWriter``)."""

    def __init__(self, cluster: Cluster, topic: str, form: RowForm, *, repeat_s: float = REPEAT_S) -> None:
        self._cluster, self._topic, self._form = cluster, topic, form
        self._repeat_s = repeat_s
        self._transactions: Transactions | None = None
        self._committed_s = 0.0
        self._task = self._generation = b""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Registers this incarnation and fences earlier ones.

        Raises: WriterFenced: a later one has registered. NumberLost, GroupForeign, SystemRefused, SystemUnreachable.
        """
        name = group_of(identity.job_id, identity.task_name)
        self._task, self._generation = identity.task_name.encode(), b"%d" % identity.generation
        self._transactions = Transactions(self._cluster, self._topic, name)
        self._numbering = Numbering(name, self._cluster.servers)
        registration = self._transactions.run(self._numbering.register(identity, restored_number))
        self._committed_s = time.monotonic()
        return registration

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Writes rows and the number after them in one transaction; returns the number.

        Raises: RowNotWritable, MessageRefused: a row cannot be a message. Else as ``register``.
        """
        assert self._transactions is not None, "a writer is registered before rows are written"
        task_header, number_header, generation_header = ROW_HEADERS
        task, generation = (task_header, self._task), (generation_header, self._generation)
        messages = [
            self._form.outgoing(row, index, [task, (number_header, b"%d" % (first_number + index)), generation])
            for index, row in enumerate(rows)
        ]
        number = self._transactions.run(self._numbering.write(first_number, len(rows)), messages, first_number)
        self._committed_s = time.monotonic()
        return number

    def forget(self, before_number: int) -> None:
        """Keeps the number from expiring; called after each completed checkpoint."""
        if self._transactions is not None and time.monotonic() - self._committed_s > self._repeat_s:
            self._transactions.run(self._numbering.repeat())
            self._committed_s = time.monotonic()

    def close(self) -> None:
        """Closes the connections."""
        if self._transactions is not None:
            self._transactions.close()
