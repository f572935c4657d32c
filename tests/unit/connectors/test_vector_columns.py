"""Vectors through sinks of columns: read back by the libraries of others as they were, or an error of their row."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable

from clonos.connectors import delta, files, iceberg
from clonos.connectors.connector_errors import RowNotWritable
from tests.harnesses.iceberg_tables import NAME, catalog_in, threads_ended
from tests.harnesses.iceberg_tables import found as found_in_table
from tests.unit.connectors.writing import JOB, writer_of

LISTS = pyarrow.list_(pyarrow.float32())
FIXED = pyarrow.list_(pyarrow.float32(), 3)
VECTORS = [[0.5, -0.0, 3.0], None, [struct.unpack("<f", b"\xcd\xcc\xcc=")[0], 2.0**100, -2.0]]


def sink_of(kind: str, folder: Path, schema: Any) -> Any:
    if kind == "parquet":
        return files.parquet(folder / "t", schema=schema)
    if kind == "delta":
        return delta.table(folder / "t", schema=schema)
    return iceberg.table(NAME, catalog=catalog_in(folder), schema=schema)


def found(kind: str, folder: Path) -> list[Any]:
    if kind == "parquet":
        rows = list(files.read_committed(folder / "t"))
    elif kind == "delta":
        rows = DeltaTable(folder / "t").to_pyarrow_table().to_pylist()
    else:
        rows = found_in_table(catalog_in(folder))
    return [row["embedding"] for row in sorted(rows, key=lambda row: int(row["n"]))]


def bits_of(vector: list[float] | None) -> bytes | None:
    """Numbers of 32 bits, so that -0.0 differs from 0.0."""
    return None if vector is None else struct.pack(f"{len(vector)}f", *vector)


@pytest.mark.keeps_sockets
@pytest.mark.parametrize("vectors", [LISTS, FIXED], ids=["lists", "fixed"])
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_vectors_come_out_as_they_went_in(tmp_path: Path, kind: str, vectors: Any) -> None:
    schema = pyarrow.schema([("n", pyarrow.int64()), ("embedding", vectors)])
    with threads_ended():
        sink = sink_of(kind, tmp_path, schema)
        sink.prepare_output(JOB, resume=False, overwrite=False)
        writer = writer_of(sink)
        writer.write([{"n": n, "embedding": vector} for n, vector in enumerate(VECTORS)])
        batch = {"n": pyarrow.array([3, 4, 5]), "embedding": pyarrow.array(VECTORS, vectors)}
        writer.write_columns(pyarrow.record_batch(batch))
        for bad in (
            [1.0, 1e300, 2.0],
            [1.0, "x", 2.0],
            *([[1.0, 2.0]] if (kind, vectors) == ("parquet", FIXED) else []),
        ):
            with pytest.raises(RowNotWritable, match="its embedding cannot be written"):
                writer.write([{"n": 6, "embedding": bad}])
        part = writer.prepare(1)
        writer.close()
        assert part is not None
        sink.commit(JOB, 1, [part])
        assert list(map(bits_of, found(kind, tmp_path))) == [bits_of(vector) for vector in VECTORS * 2]
