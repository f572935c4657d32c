"""Words to count: generated once from a seed, stored in a folder, read by both sides of every comparison.

A pool of lines is read ``repeats`` times, distributed line by line over the readers. After it each reader returns every
word once more: the last rows of a sink then have every word's final count, and a sink keeps only those.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

DISTINCT: Final = 10_000
WORDS_A_LINE: Final = 10
POOL_LINES: Final = 50_000
LINES_MIN: Final = 1_000
SEED: Final = 20
FINAL_ROWS: Final = 60_000
"""Last rows that a sink keeps: more than can come after the first word of an epilogue."""


def vocabulary() -> list[str]:
    """Returns different words of two to ten letters."""
    stream = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < DISTINCT:
        found["".join(stream.choices("abcdefghijklmnopqrst", k=stream.randint(2, 10)))] = None
    return list(found)


def pool() -> list[str]:
    """Returns lines of words with a Zipf distribution."""
    stream = random.Random(SEED + 1)
    words = vocabulary()
    drawn = stream.choices(words, weights=[1 / rank for rank in range(1, DISTINCT + 1)], k=POOL_LINES * WORDS_A_LINE)
    return [" ".join(drawn[at : at + WORDS_A_LINE]) for at in range(0, len(drawn), WORDS_A_LINE)]


def epilogue() -> list[str]:
    """Returns lines with every word once."""
    words = vocabulary()
    return [" ".join(words[at : at + WORDS_A_LINE]) for at in range(0, DISTINCT, WORDS_A_LINE)]


def prepare(folder: Path) -> None:
    """Writes the lines into a folder, for ``Share``."""
    (folder / "pool.txt").write_text("\n".join(pool()), "utf-8")
    (folder / "epilogue.txt").write_text("\n".join(epilogue()), "utf-8")


@dataclass(frozen=True, slots=True)
class Workload:
    """Workload of the word count: the first ``lines`` of the pool, ``repeats`` times.

    ``is_staged``: the time of each stage is measured, too.
    """

    folder: str
    repeats: int = 1
    lines: int = POOL_LINES
    readers: int = 2
    is_staged: bool = False

    def of_words(self, words: float) -> Workload:
        """Returns the same workload with about ``words`` words."""
        repeats = max(1, round(words / (POOL_LINES * WORDS_A_LINE)))
        lines = min(POOL_LINES, max(LINES_MIN, round(words / WORDS_A_LINE)))
        return replace(self, repeats=repeats, lines=lines)

    @property
    def words(self) -> int:
        """Returns the number of words."""
        return (self.lines * self.repeats + self.readers * DISTINCT // WORDS_A_LINE) * WORDS_A_LINE

    def finals(self) -> Counter[str]:
        """Computes the final count of each word with ``split`` and a Counter."""
        counted: Counter[str] = Counter()
        for word, count in Counter(" ".join(self._pool()).split()).items():
            counted[word] = count * self.repeats
        for word in (Path(self.folder) / "epilogue.txt").read_text("utf-8").split():
            counted[word] += self.readers
        return counted

    def share(self, reader: int) -> Share:
        """Returns the lines of one reader."""
        lines = self._pool()[reader :: self.readers]
        return Share(lines, (Path(self.folder) / "epilogue.txt").read_text("utf-8").split("\n"), self.repeats)

    def _pool(self) -> list[str]:
        return (Path(self.folder) / "pool.txt").read_text("utf-8").split("\n")[: self.lines]


class Share:
    """Lines of one reader in memory, read in slices that do not cross the end of the pool."""

    def __init__(self, lines: list[str], epilogue: list[str], repeats: int) -> None:
        self.lines, self.epilogue, self.repeats = lines, epilogue, repeats
        self.size = len(lines) * repeats + len(epilogue)

    def after(self, position: int, lines_max: int) -> list[str]:
        """Returns at least one line from a position on; [] at the end."""
        turn, at = divmod(position, len(self.lines))
        if turn < self.repeats:
            return self.lines[at : at + lines_max]
        at = position - len(self.lines) * self.repeats
        return self.epilogue[at : at + lines_max]

    def columns(self) -> ColumnShare:
        """Returns the share as record batches."""
        return ColumnShare(self)


class ColumnShare:
    """Lines of one reader as record batches with one column, ``line``."""

    def __init__(self, share: Share) -> None:
        import pyarrow

        self.lines = pyarrow.record_batch({"line": pyarrow.array(share.lines)})
        self.epilogue = pyarrow.record_batch({"line": pyarrow.array(share.epilogue)})
        self.repeats = share.repeats

    def after(self, position: int, lines_max: int) -> Any:
        """Returns a slice from a position on; None at the end."""
        turn, at = divmod(position, self.lines.num_rows)
        if turn < self.repeats:
            return self.lines.slice(at, lines_max)
        at = position - self.lines.num_rows * self.repeats
        return self.epilogue.slice(at, lines_max) if at < self.epilogue.num_rows else None
