"""Job of the demo: counts, in windows, the words that an HTTP server allows, and sets aside those that it bans.

::

    text -> words, each with its identity -> ask the server -> allowed -> by word -> 1 s windows -> counts
                                                            -> banned  ------------------------> rejected

Reading, asking and counting are separate steps, so that each can be killed without the others.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from clonos.api.windows import Tumbling
from clonos.connectors import files
from clonos.core.values import register
from clonos.demo.stoppable import Stoppable
from clonos.demo.text import identity_of, labels_of, words_of
from clonos.job import Job
from clonos.operators.windows.window_results import WindowResult
from clonos_services import clock, http

WINDOW = "1s"

WHOLE_BYTES: Final = 1 << 40
"""Block size that no file exceeds, so that one task reads each file from its start.

A task that is stopped has then read everything before the last line that was looked up.
"""
READ, ASK, COUNT = "read", "ask", "count"
"""Names of the steps whose tasks are killed."""


@register
class Asked(NamedTuple):
    """Word with the server's answer. ``asked_ns`` is the time of the answer, in ns since 1970."""

    identity: str
    word: str
    banned: bool
    asked_ns: int


def split_words(labels: dict[str, str], line: tuple[str, int, str]) -> list[tuple[str, str]]:
    """Splits a line with its file and offset into (identity, word) pairs."""
    path, offset_bytes, text = line
    return [(identity_of(labels[path], offset_bytes, index), word) for index, word in enumerate(words_of(text))]


def ask(url: str, word: tuple[str, str]) -> Asked:
    """Asks the server about one word.

    The answer is in the causal log before anything that depends on it leaves the task.
    """
    answer = http.get(url, params={"word": word[1], "identity": word[0]}).json()
    return Asked(word[0], word[1], answer["banned"], clock.time_ns())


def counted(window: WindowResult[str, list[str]]) -> dict[str, Any]:
    """Converts the result of a window to an output record."""
    return {
        "word": window.key,
        "start": window.start.isoformat(),
        "count": len(window.value),
        "identities": window.value,
        "at_ns": clock.time_ns(),
    }


def rejected(asked: Asked) -> dict[str, Any]:
    """Converts a banned word to an output record."""
    return {"word": asked.word, "identity": asked.identity, "at_ns": asked.asked_ns}


def wordcount(texts: list[Path], url: str, output: Path, stop: Path, parallelism: int, **options: Any) -> Job:
    """Creates the job, which reads the files until the file ``stop`` exists, and writes folders below ``output``."""
    job = Job("demo-wordcount", parallelism=parallelism, **options)
    source = Stoppable(files.lines([*texts], errors="replace", with_position=True, block_bytes=WHOLE_BYTES), stop)
    count_words(job.source(source, name=READ), labels_of(texts), url, output)
    return job


def count_words(lines: Any, labels: dict[str, str], url: str, output: Path) -> None:
    """Adds the steps after the source. ``lines``: a stream of paths, offsets in bytes and texts."""
    words = lines.flat_map(partial(split_words, labels))
    asked = words.rebalance().map(partial(ask, url), name=ASK)
    asked.filter(lambda word: word.banned).map(rejected).sink(files.jsonl(str(output / "rejected")), name="rejected")
    (
        asked.filter(lambda word: not word.banned)
        .key_by(lambda word: word.word)
        .window(Tumbling(WINDOW))
        .aggregate(list, lambda identities, word: identities.append(word.identity), name=COUNT)
        .map(counted)
        .sink(files.jsonl(str(output / "counts")), name="counts")
    )
