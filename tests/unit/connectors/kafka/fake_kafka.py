"""A transactional id and a group of Kafka in memory: sessions fence each other, commits may be in doubt."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Any, TypeVar

from clonos.connectors.kafka.numbering import (
    Answer,
    BeginSession,
    Command,
    Commit,
    Committed,
    Outcome,
    Read,
    committed_of,
)

Result = TypeVar("Result")


class Fate(Enum):
    """How a command ends."""

    WORKS = auto()
    LOST = auto()  # nothing happens, and the writer does not know it
    DOUBTFUL = auto()  # it happens, and the writer does not know it
    LATE = auto()  # the same, but it happens when the next session begins
    DIES_BEFORE = auto()  # the writer dies, and nothing happens
    DIES_AFTER = auto()  # the writer dies when it has happened


FATES = tuple(Fate)


class Died(Exception):
    """The process of the writer has ended."""


class FakeKafka:
    """What brokers keep."""

    def __init__(self) -> None:
        self.session = 0
        self.offset: tuple[int, str] | None = None
        self.rows: list[tuple[int, int]] = []
        """Committed rows in their order: generation and number."""
        self.registered: list[tuple[int, int, int]] = []
        """Generation, incarnation and number of rows before, for each commit of a new name."""
        self.completed = 0
        """Last checkpoint that a driver has committed."""
        self._late: Commit | None = None

    @property
    def committed(self) -> Committed | None:
        """What the group has."""
        return None if self.offset is None else committed_of(*self.offset, "group")

    def apply(self, commit: Commit) -> None:
        """Makes the rows and the number of a transaction visible."""
        number, stamp = commit.committed
        before = self.committed
        if before is None or before.stamp[:2] != stamp[:2]:
            self.registered.append((stamp.generation, stamp.incarnation, len(self.rows)))
        self.rows += [(stamp.generation, row) for row in range(commit.first, commit.end)]
        self.offset = number, stamp.text()

    def begin(self) -> int:
        """Ends the open transaction, and begins a session."""
        late, self._late = self._late, None
        if late is not None:
            self.apply(late)
        self.session += 1
        return self.session

    def delay(self, commit: Commit) -> None:
        """Keeps a transaction whose end the next session brings about."""
        self._late = commit


class FakeClient:
    """Client of one writer. ``fate`` is asked before each command."""

    def __init__(self, kafka: FakeKafka, fate: Callable[[], Fate] = lambda: Fate.WORKS) -> None:
        self.kafka, self.fate = kafka, fate
        self.session = 0
        self.commands = 0

    def run(self, protocol: Generator[Command, Answer, Result]) -> Result:
        """Runs a call to its end."""
        steps = self.steps(protocol)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def steps(self, protocol: Generator[Command, Answer, Result]) -> Generator[None, None, Result]:
        """Runs a call, one command a step."""
        answer: Any = None
        while True:
            try:
                command = protocol.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self.commands += 1
            answer = self._answer(command, self.fate())
            yield

    def _answer(self, command: Command, fate: Fate) -> Answer:
        if fate is Fate.DIES_BEFORE:
            raise Died
        answer = Outcome.IN_DOUBT if fate is Fate.LOST else self._done(command, fate)
        if fate is Fate.DIES_AFTER:
            raise Died
        return answer

    def _done(self, command: Command, fate: Fate) -> Answer:
        kafka = self.kafka
        if isinstance(command, BeginSession):
            self.session = kafka.begin()
        elif isinstance(command, Read):
            return Outcome.IN_DOUBT if fate is Fate.DOUBTFUL else kafka.committed
        elif self.session != kafka.session:
            return Outcome.FENCED
        elif fate is Fate.LATE:
            kafka.delay(command)
        else:
            kafka.apply(command)
        return Outcome.IN_DOUBT if fate in (Fate.DOUBTFUL, Fate.LATE) else Outcome.DONE
