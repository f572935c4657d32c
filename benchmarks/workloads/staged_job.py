"""Synthetic job: the paced word count through several stages, with a given size of state, with or without shuffles."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.harness.timestamp_sink import MARK, TimestampSink
from benchmarks.workloads.paced import Pace, PacedLines
from benchmarks.workloads.words import DISTINCT
from clonos import Context, Job, ValueState

LAST: Final = "count"


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages of the job. ``state_mb``: of all stages together. ``is_shuffled``: each stage exchanges records by key;
    without it the first one does, and the others pass them on one to one."""

    depth: int = 3
    state_mb: int = 50
    is_shuffled: bool = True

    @staticmethod
    def of(text: str) -> Stages:
        """Reads ``DEPTH,MB,shuffled`` or ``DEPTH,MB,plain``. Raises ValueError."""
        found = re.fullmatch(r"([1-9]\d*),(\d+),(shuffled|plain)", text)
        if found is None:
            raise ValueError(f"{text!r} is not like 3,50,shuffled or 3,50,plain")
        return Stages(int(found[1]), int(found[2]), found[3] == "shuffled")

    def __str__(self) -> str:
        shuffled = "shuffled" if self.is_shuffled else "one to one"
        return f"{self.depth} stages, {self.state_mb} MB of state, {shuffled}"

    def job(self, pace: Pace) -> Job:
        """Makes the job lines -> stages -> sink; the last stage has the name ``LAST``."""
        job = Job("stages")
        stateful = self.depth if self.is_shuffled else 1
        stage = Counting(self.state_mb * 1_000_000 // (stateful * DISTINCT))
        stream: Any = job.source(PacedLines(pace), name="lines").flat_map(str.split).map(with_no_count)
        for number in range(1, self.depth + 1):
            name = LAST if number == self.depth else f"stage-{number}"
            if number == 1 or self.is_shuffled:
                stream = stream.key_by(word_of, name=f"by_word-{number}").process(stage, name=name)
            else:
                stream = stream.rescale().map(same, name=name)
        stream.sink(TimestampSink(pace.folder))
        return job


def with_no_count(word: str) -> tuple[str, int]:
    """Returns the word as a record of the stages."""
    return word, 0


def word_of(record: tuple[str, int]) -> str:
    """Returns the first field."""
    return record[0]


def same(record: tuple[str, int]) -> tuple[str, int]:
    """Returns the record unchanged."""
    return record


class Counting:
    """Process function that counts words, and keeps some bytes for each that is no mark."""

    count = ValueState("count", default=0)
    value = ValueState("value", default=b"")

    def __init__(self, value_bytes: int) -> None:
        self.value_bytes = value_bytes

    def process(self, record: tuple[str, int], context: Context[str, tuple[str, int]]) -> None:
        """Counts a word."""
        word = record[0]
        count = context.state(self.count)
        if count.value == 0 and word[0] != MARK:
            context.state(self.value).value = random.Random(1).randbytes(self.value_bytes)
        count.value += 1
        context.emit((word, count.value))
