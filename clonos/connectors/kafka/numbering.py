"""Protocol by which one sink task writes each row once to Kafka: registration, fencing, numbers, commits in doubt.

The outside is one transactional id and one group without members. The group's offset is the number of the next row; the
offset's metadata names who has written it. Rows and number are one transaction, so a number says exactly which rows
are there. Nothing here talks to Kafka: ``register`` and ``write`` yield a ``Command`` and are sent its ``Answer``.

To register, a writer

1. begins a session (``BeginSession``), which ends the transaction of every earlier session of the transactional id, and
   fences it;
2. reads the number (``Read``) with the name of who has committed it, when no transaction is open any more;
3. stands down if that is a later incarnation;
4. else commits its own name with the number, before any row.

A writer that is fenced, or does not know whether its commit took place, registers again and so learns the
number. A later incarnation that was fenced between two of its steps wins in the end, because an earlier one stands
down as soon as it reads the name of the later one, and cannot commit if it does not read it.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from clonos.connectors.kafka.kafka_errors import KAFKA, GroupForeign, number_lost
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.core.model.errors import InternalError
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity

FORMAT: Final = "clonos/1"
SESSIONS_MAX: Final = 8
"""Sessions that one call begins before it gives up."""


class Stamp(NamedTuple):
    """Name of the writer that has committed a number.

    ``highest`` is the largest number that any generation has reached. ``is_new``: the generation has written no row
    yet, so that nobody may know yet which rows come again.
    """

    generation: int
    incarnation: int
    highest: int
    is_new: bool

    def text(self) -> str:
        """Returns the metadata of the offset."""
        return f"{FORMAT} {self.generation} {self.incarnation} {self.highest} {int(self.is_new)}"


class Committed(NamedTuple):
    """Content of the group: the number of the next row, and the name of the writer that has committed it."""

    number: int
    stamp: Stamp


class BeginSession(NamedTuple):
    """Begins a session. Answer: DONE, FENCED or IN_DOUBT."""


class Read(NamedTuple):
    """Reads what was committed last. Answer: ``Committed``, None if there is nothing, or IN_DOUBT."""


class Commit(NamedTuple):
    """Commits rows ``first`` to ``end`` - 1 and a number in one transaction.

    Answer: DONE; FENCED: a later session has begun, and nothing was written; IN_DOUBT: it is not known.
    """

    first: int
    end: int
    committed: Committed


class Outcome(Enum):
    """Answer to a command that changes something."""

    DONE = auto()
    FENCED = auto()
    IN_DOUBT = auto()


Command: TypeAlias = BeginSession | Read | Commit
Answer: TypeAlias = Outcome | Committed | None
Registering: TypeAlias = Generator[Command, Answer, Registration]
Writing: TypeAlias = Generator[Command, Answer, int]


class Numbering:
    """Numbers of one incarnation of a sink task. ``group`` names it in errors."""

    def __init__(self, group: str, servers: str, *, sessions_max: int = SESSIONS_MAX) -> None:
        self._group, self._servers = group, servers
        self._sessions_max = sessions_max
        self._identity = WriterIdentity("", "", 0, 0)
        self._restored_number = 0
        self._committed = Committed(0, Stamp(0, 0, 0, False))

    def register(self, identity: WriterIdentity, restored_number: int) -> Registering:
        """Registers an incarnation.

        Raises: WriterFenced: a later one has registered. NumberLost: the group has no number, or a smaller one than the
        rows of the snapshot. SystemUnreachable: other sessions or failures keep this one from registering.
        """
        self._identity, self._restored_number = identity, restored_number
        for _ in range(self._sessions_max):
            if (yield BeginSession()) is not Outcome.DONE:
                continue
            found = yield Read()
            if isinstance(found, Outcome):
                continue
            committed = self._entry(found)
            if (yield Commit(committed.number, committed.number, committed)) is Outcome.DONE:
                self._committed = committed
                number, stamp = committed
                return Registration(number, stamp.highest if stamp.is_new and stamp.highest > number else None)
        raise SystemUnreachable(
            KAFKA, self._servers, f"registering in the group {self._group}", f"{self._sessions_max} sessions were ended"
        )

    def write(self, first_number: int, count: int) -> Writing:
        """Writes ``count`` rows from ``first_number`` on, without those that are there; returns the next number.

        Raises: SystemUnreachable: transactions fail repeatedly. Else as ``register``.
        """
        end = first_number + count
        for _ in range(self._sessions_max):
            number, stamp = self._committed
            if first_number > number:
                raise InternalError(
                    f"row {first_number} is written to the group {self._group}, where row {number} is next"
                )
            if end <= number:
                return number
            committed = Committed(end, stamp._replace(highest=max(stamp.highest, end), is_new=False))
            if (yield Commit(number, end, committed)) is Outcome.DONE:
                self._committed = committed
                return end
            yield from self.register(self._identity, self._restored_number)
        raise SystemUnreachable(
            KAFKA,
            self._servers,
            f"writing rows in the group {self._group}",
            f"{self._sessions_max} transactions failed",
        )

    def repeat(self) -> Writing:
        """Commits the number again, so that it does not expire; returns it."""
        if (yield Commit(self._committed.number, self._committed.number, self._committed)) is not Outcome.DONE:
            yield from self.register(self._identity, self._restored_number)
        return self._committed.number

    def _entry(self, found: Committed | None) -> Committed:
        """Returns what this incarnation commits to register."""
        _, _, generation, incarnation = self._identity
        if found is None:
            if self._restored_number:
                raise number_lost(self._group, self._restored_number)
            return Committed(0, Stamp(generation, incarnation, 0, False))
        number, stamp = found
        if (stamp.generation, stamp.incarnation) > (generation, incarnation):
            raise WriterFenced(
                f"incarnation {stamp.incarnation} of generation {stamp.generation} has registered in {self._group}",
                by=(stamp.generation, stamp.incarnation),
            )
        if stamp.highest < self._restored_number:
            raise number_lost(self._group, self._restored_number)
        if stamp.generation == generation:
            return Committed(number, stamp._replace(incarnation=incarnation))
        return Committed(self._restored_number, Stamp(generation, incarnation, stamp.highest, True))


def committed_of(number: int, metadata: str | None, group: str) -> Committed:
    """Returns what an offset and its metadata say.

    Raises: GroupForeign: no sink has committed them.
    """
    words = (metadata or "").split(" ")
    if number < 0 or len(words) != 5 or words[0] != FORMAT or not all(word.isdecimal() for word in words[1:]):
        raise GroupForeign(group, metadata or "")
    generation, incarnation, highest, is_new = map(int, words[1:])
    return Committed(number, Stamp(generation, incarnation, highest, bool(is_new)))
