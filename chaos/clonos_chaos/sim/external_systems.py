"""Simulated external systems: the numbered output of an immediate sink, and a service that answers at random."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from clonos.core.log.call_outcomes import CallNeverHappened
from clonos.core.values import decode_rows
from clonos.operators.connector_contract import WriterIdentity

if TYPE_CHECKING:
    from clonos.core.ports.operator_chain import ChainContext


class SimFenced(Exception):
    """A later incarnation has registered: (generation, incarnation)."""

    def __init__(self, by: tuple[int, int]) -> None:
        super().__init__(by)
        self.by = by


JOB_ID = "fuzz"
"""Id under which simulated jobs register at external systems."""


class SimExternalSystem:
    """Numbered output of one immediate sink task, stored atomically with the next number."""

    knows_output = True
    """Whether it says at a registration which rows it has."""

    withdraws = False
    """Whether a rollback withdraws the rows written after the checkpoint; no alarm is then due."""

    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self.next_number = 0
        self.life = (0, 0)  # (generation, incarnation)
        self.rows: list[Any] = []  # of the current generation by number, see ``superseded``
        self.superseded: list[Any] = []  # written by an earlier generation after the checkpoint of a rollback
        self.superseded_next = 0  # number at which earlier generations ended
        self.withdrawn = 0  # rows
        #: (first, next) number of each superseded range; none is empty. A system that does not know it has no next
        self.alarms_due: list[tuple[int, int | None]] = []
        self.generations: list[int] = []
        self.complaints: list[str] = []

    def register(self, generation: int, incarnation: int, restored_number: int) -> tuple[int, int | None]:
        """Fences earlier incarnations; returns the next number, and the number at which an earlier generation ended.

        The second number is repeated until the output passes it, because the first incarnation to register may die
        before it raises the alarm. Raises SimFenced: a later incarnation has registered.
        """
        if (generation, incarnation) < self.life:
            raise SimFenced(self.life)
        if generation > self.life[0] > 0:
            if restored_number > self.next_number:
                self.complaints.append(
                    f"{self.task_name}: the checkpoint has output up to {restored_number}, the external system to"
                    f" {self.next_number}"
                )
            if not self.withdraws:
                self._leave_behind(restored_number)
            del self.rows[restored_number:], self.generations[restored_number:]
            self.next_number = restored_number
        self.life = (generation, incarnation)
        return self.next_number, self.superseded_next if self.superseded_next > self.next_number else None

    def _leave_behind(self, restored_number: int) -> None:
        self.superseded_next = max(self.superseded_next, self.next_number)
        if self.superseded_next > restored_number:
            self.alarms_due.append((restored_number, self.superseded_next))
        self.superseded += self.rows[restored_number:]

    def forget(self, incarnation: int, before_number: int) -> None:
        """Takes note that no restart goes back beyond this number."""

    def compare(self) -> None:
        """Compares a real external system with this model; subclasses record complaints."""

    def write(self, incarnation: int, first_number: int, count: int, payload: bytes) -> int:
        """Appends new rows and drops repeated ones; a repeat with other content is a complaint. Raises SimFenced."""
        if incarnation != self.life[1]:
            raise SimFenced(self.life)
        rows = decode_rows(payload)
        if first_number > self.next_number:
            self.complaints.append(f"{self.task_name}: a gap from {self.next_number} to {first_number}")
        assert len(rows) == count, (len(rows), count)
        for number, row in enumerate(rows, first_number):
            if number < self.next_number:
                if self.rows[number] != row and self.generations[number] == self.life[0]:
                    self.complaints.append(f"{self.task_name}: {number} was {self.rows[number]}, is {row}")
            else:
                self.rows.append(row)
                self.generations.append(self.life[0])
                self.next_number = number + 1
        return self.next_number


class SimStream(SimExternalSystem):
    """Stream that drops a row whose id it has seen. It knows nothing else: no numbers, no incarnations.

    ``rows`` are those that count. Each of them must be in the stream.
    """

    knows_output = False

    def __init__(self, task_name: str) -> None:
        super().__init__(task_name)
        self._identities: dict[int, WriterIdentity] = {}  # by incarnation
        self._stored: dict[str, Any] = {}  # by id

    def register(self, generation: int, incarnation: int, restored_number: int) -> tuple[int, int | None]:
        """Fences nobody. The rows of earlier generations from the restored number on do not count any more."""
        self._identities[incarnation] = WriterIdentity(JOB_ID, self.task_name, generation, incarnation)
        if generation > self.life[0] > 0:
            if self.next_number > restored_number:
                self.alarms_due.append((restored_number, None))
            self.superseded += self.rows[restored_number:]
            del self.rows[restored_number:], self.generations[restored_number:]
            self.next_number = len(self.rows)
        self.life = max(self.life, (generation, incarnation))
        return restored_number, None

    def write(self, incarnation: int, first_number: int, count: int, payload: bytes) -> int:
        identity = self._identities[incarnation]
        rows = decode_rows(payload)
        assert len(rows) == count, (len(rows), count)
        for number, row in enumerate(rows, first_number):
            name = f"{identity.id_space}/{number}"
            if self._stored.setdefault(name, row) != row:
                self.complaints.append(f"the id {name} names two rows: {self._stored[name]} and {row}")
            if identity.generation == self.life[0] and number >= self.next_number:
                if number > self.next_number:
                    self.complaints.append(f"{self.task_name}: a gap from {self.next_number} to {number}")
                self.rows.append(row)
                self.generations.append(identity.generation)
                self.next_number = number + 1
        return first_number + count

    def compare(self) -> None:
        """Compares the rows that count with those that the stream has under the ids that they were given."""
        for number, (row, generation) in enumerate(zip(self.rows, self.generations, strict=True)):
            name = f"{WriterIdentity(JOB_ID, self.task_name, generation, 0).id_space}/{number}"
            if self._stored.get(name) != row:
                self.complaints.append(f"the row {row} is lost: the stream has {self._stored.get(name)} as {name}")


class ServiceDown(Exception):
    """Error answer of the simulated service, which has logged the call all the same."""

    def __init__(self, answer: int) -> None:
        super().__init__(answer)
        self.answer = answer


class SimAsked(NamedTuple):
    """One call in the log of the service."""

    question: Any
    key: str
    answer: int
    task_name: str  # empty where the asker is not known
    generation: int
    life: tuple[int, bool]  # incarnation, and whether it began as a shadow
    is_effect: bool
    is_in_doubt: bool  # an earlier life announced it and died before it knew the outcome
    is_reconciled: bool = False  # the service had reported that there was no such call


class SimService:
    """Service that answers or fails each call with a distinct number, and logs it with its key."""

    def __init__(self, rng: Random, failure: float = 0.0) -> None:
        self._rng = rng
        self._failure = failure
        self._answer_by_key: dict[str, int] = {}
        self.answers: list[SimAsked] = []
        self.never_happened: set[str] = set()  # keys reconciled before there was a call

    def ask(
        self,
        question: object,
        key: str,
        context: ChainContext | None = None,
        is_effect: bool = False,
        is_in_doubt: bool = False,
        is_reconciled: bool = False,
    ) -> int:
        """Answers with a fresh random number, so that a call made twice shows. Raises ServiceDown."""
        answer = self._rng.getrandbits(48) + 1
        fails = self._rng.random() < self._failure
        self._answer_by_key[key] = -answer if fails else answer
        self.answers.append(
            SimAsked(
                question,
                key,
                -answer if fails else answer,
                context.task_name if context else "",
                context.generation if context else 0,
                (context.incarnation, context.is_shadow) if context else (0, False),
                is_effect,
                is_in_doubt,
                is_reconciled,
            )
        )
        if fails:
            raise ServiceDown(answer)
        return answer

    def reconcile(self, key: str) -> int:
        """Returns the outcome of the call with this key.

        Raises CallNeverHappened: there was no such call. Raises ServiceDown: the call failed.
        """
        answer = self._answer_by_key.get(key)
        if answer is None:
            self.never_happened.add(key)
            raise CallNeverHappened
        if answer < 0:
            raise ServiceDown(-answer)
        return answer
