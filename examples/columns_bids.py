"""Filter bids in columns and price them in dollars, by expressions: no Python code runs per record.

Makes Parquet files of bids in `in/bids/`, and writes the dear ones to `out/dear_bids/`:

    python examples/columns_bids.py
"""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet

from clonos import Job, col, files, lit, when

INPUT = Path("in/bids")

job = Job("columns_bids", parallelism=2, checkpoint_every="1s")
bids = job.source(files.parquet(str(INPUT)), name="bids")
dear = bids.filter((col("price") >= 500) & col("url").str.starts_with("https://"), name="dear")
priced = dear.with_columns(
    dollars=(col("price") * 0.908).round(2),
    item=col("url").str.extract("item=([a-z]+)"),
    kind=when(col("price") >= 900).then(lit("top")).otherwise(lit("dear")),
    name="priced",
)
priced.select("auction", "dollars", "item", "kind").sink(files.parquet("out/dear_bids"), name="output")


def make_input() -> None:
    """Writes two files of 500 bids each."""
    INPUT.mkdir(parents=True, exist_ok=True)
    for file in range(2):
        numbers = range(file * 500, file * 500 + 500)
        schemes = {number: "http" if number % 3 else "https" for number in numbers}
        bids = [
            {"auction": number % 40, "price": number, "url": f"{schemes[number]}://shop/?item=abc{'x' * (number % 3)}"}
            for number in numbers
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(bids), INPUT / f"{file}.parquet")


if __name__ == "__main__":
    make_input()
    job.run(slots="process")
