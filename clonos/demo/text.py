"""The text of the demo: what every Python installation carries (``pydoc_data.topics``), repeated to the wished length.

A word has an identity: (file, line, index in the line), the line being told by the offset of its first byte. Whoever
splits a line into words does it here, the job and the verdict alike: it is the one thing that they share.
"""

from __future__ import annotations

import importlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_WORD = re.compile(r"[A-Za-z][A-Za-z']*")


def words_of(line: str) -> list[str]:
    """The English words of a line, in lower case; the place in this list is a word's index."""
    return [word.lower() for word in _WORD.findall(line)]


def carried_lines() -> list[str]:
    """The lines with words of the text that this Python carries."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    lines = itertools.chain.from_iterable(topics[name].splitlines() for name in sorted(topics))
    return [line.strip() for line in lines if words_of(line)]


def write_text(folder: Path, lines: int, files: int) -> list[Path]:
    """So many lines in all, dealt to so many files in ``folder``."""
    paths = [folder / f"text-{number}.txt" for number in range(files)]
    text = itertools.cycle(carried_lines())
    for number, path in enumerate(paths):
        count = lines // files + (number < lines % files)
        path.write_text("".join(f"{line}\n" for line in itertools.islice(text, count)), "utf-8")
    return paths


def labels_of(paths: list[Path]) -> dict[str, str]:
    """A short name for each file: its own, or its path where two have the same."""
    times = Counter(path.name for path in paths)
    return {str(path): path.name if times[path.name] == 1 else str(path) for path in paths}


def words_in(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Every (identity, word) of these files."""
    labels = labels_of(paths)
    for path in paths:
        offset_bytes = 0
        with open(path, "rb") as lines:
            for line in lines:
                for index, word in enumerate(words_of(line.decode("utf-8", "replace"))):
                    yield identity_of(labels[str(path)], offset_bytes, index), word
                offset_bytes += len(line)


def identity_of(file: str, offset_bytes: int, index: int) -> str:
    """A word's identity as text."""
    return f"{file}:{offset_bytes}:{index}"
