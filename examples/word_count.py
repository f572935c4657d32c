"""Count the words of text files, and write the counts to Parquet files.

Gives one row per word and second: the word, the second (processing time), and how often the word was read in it.

    clonos run examples/word_count.py
    python -c "import pyarrow.parquet; print(pyarrow.parquet.read_table('out/word_count'))"
"""

from __future__ import annotations

import re
from pathlib import Path

from clonos import Job, Tumbling, WindowResult, files

TEXTS = Path(__file__).with_name("data") / "texts"


def words(line: str) -> list[str]:
    return re.findall(r"[a-z']+", line.lower())


def row(window: WindowResult[str, int]) -> dict[str, object]:
    return {"word": window.key, "second": window.start, "count": window.value}


job = Job("word_count", parallelism=2, checkpoint_every="1s")
(
    job.source(files.lines(TEXTS), name="texts")
    .flat_map(words, name="words")
    .key_by(lambda word: word)
    .window(Tumbling("1s"))
    .count(name="count")
    .map(row)
    .sink(files.parquet("out/word_count"), name="counts")
)
