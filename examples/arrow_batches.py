"""Work on columns with Arrow: keep the frequent words of `word_count.py`, and add their length.

Gives Parquet files. `map_batches` gets and returns a `pyarrow.RecordBatch`, so no row becomes a Python object. The
input is the output folder of another job, of which only committed rows are read: run `word_count.py` first.

    clonos run examples/arrow_batches.py
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute as compute

from clonos import Job, files


def frequent(batch: Any) -> Any:
    chosen = batch.filter(compute.greater_equal(batch["count"], 3))
    return chosen.append_column("length", compute.utf8_length(chosen["word"]))


job = Job("arrow_batches", parallelism=2, checkpoint_every="1s")
counts = job.source(files.parquet("out/word_count"), name="counts")
counts.map_batches(frequent, name="frequent").sink(files.parquet("out/frequent_words"), name="words")
