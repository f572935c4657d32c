"""What lives beyond the simulated job: the table of an immediate sink, and a service that answers at random."""

from __future__ import annotations

from random import Random
from typing import Any

from clonos.core.values import decode_rows


class Fenced(Exception):
    """A later incarnation has registered."""


class SimOutside:
    """Numbered output of one immediate sink task, kept in one atom with the next number."""

    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self.next_number = 0
        self.life = (0, 0)  # (generation, incarnation)
        self.rows: list[Any] = []  # of the current generation by number, see ``superseded``
        self.superseded: list[Any] = []  # let out by an earlier generation behind the checkpoint of a rollback
        self.generations: list[int] = []
        self.complaints: list[str] = []

    def register(self, generation: int, incarnation: int, restored_number: int) -> tuple[int, int | None]:
        """Fences earlier incarnations, answers the next number, and where an earlier generation had come to."""
        if (generation, incarnation) < self.life:
            raise Fenced
        superseded = None
        if generation > self.life[0] > 0:
            superseded = self.next_number
            self.superseded += self.rows[restored_number:]
            del self.rows[restored_number:], self.generations[restored_number:]
            self.next_number = restored_number
        self.life = (generation, incarnation)
        return self.next_number, superseded

    def write(self, incarnation: int, first_number: int, count: int, payload: bytes) -> int:
        """Takes new rows, drops repeated ones; a repeat with other content is an error."""
        if incarnation != self.life[1]:
            raise Fenced
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


class SimService:
    """Answers each question with a number of its own, and logs it with its key."""

    def __init__(self, luck: Random) -> None:
        self._luck = luck
        self.answers: list[tuple[object, str, int]] = []  # (question, key, answer)

    def ask(self, question: object, key: str) -> int:
        """A fresh random answer every time, so that a call made twice shows."""
        answer = self._luck.getrandbits(48)
        self.answers.append((question, key, answer))
        return answer
