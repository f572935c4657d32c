"""Text of the demo: the help topics in every Python installation (``pydoc_data.topics``), repeated as often as needed.

A word is identified by (file, offset of its line in bytes, index in the line). The job and the verdict split lines into
words with the same function, the only code that they share.
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
    """Returns the English words of a line in lower case; the index of a word is its position in this list."""
    return [word.lower() for word in _WORD.findall(line)]


def topic_lines() -> list[str]:
    """Returns the lines with words of the help topics of this Python."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    lines = itertools.chain.from_iterable(topics[name].splitlines() for name in sorted(topics))
    return [line.strip() for line in lines if words_of(line)]


def write_text(folder: Path, lines: int, files: int) -> list[Path]:
    """Writes ``lines`` lines, distributed over ``files`` files in ``folder``."""
    paths = [folder / f"text-{number}.txt" for number in range(files)]
    text = itertools.cycle(topic_lines())
    for number, path in enumerate(paths):
        count = lines // files + (number < lines % files)
        path.write_text("".join(f"{line}\n" for line in itertools.islice(text, count)), "utf-8")
    return paths


def labels_of(paths: list[Path]) -> dict[str, str]:
    """Returns a short name for each file: its name, or its path if two files have the same name."""
    times = Counter(path.name for path in paths)
    return {str(path): path.name if times[path.name] == 1 else str(path) for path in paths}


def words_in(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """Yields (identity, word) for every word of the files."""
    labels = labels_of(paths)
    for path in paths:
        offset_bytes = 0
        with open(path, "rb") as lines:
            for line in lines:
                for index, word in enumerate(words_of(line.decode("utf-8", "replace"))):
                    yield identity_of(labels[str(path)], offset_bytes, index), word
                offset_bytes += len(line)


def identity_of(file: str, offset_bytes: int, index: int) -> str:
    """Formats the identity of a word."""
    return f"{file}:{offset_bytes}:{index}"
