"""Vectors through ``postgres.table`` into pgvector and back: as they were, or an error of their row."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from clonos import col, files
from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import InvalidConnector
from clonos.job import Job
from clonos.operators.connector_contract import Registration
from tests.connectors.postgres.table_samples import identity, registered
from tests.connectors.servers.postgres import PostgresServer
from tests.unit.connectors.refusing import numbered

pytestmark = pytest.mark.connectors

TYPES = {"id": "bigint", "embedding": "vector(3)"}
ENDS = [struct.unpack("<f", bits.to_bytes(4, "little"))[0] for bits in (0x7F7FFFFF, 0xFF7FFFFF, 0x00800000)]
VECTORS: list[Any] = [[0.5, -0.0, 3.0], (1, 1 << 24, -2), ENDS, None, [struct.unpack("<f", b"\xcd\xcc\xcc=")[0]] * 3]


def vectors_in(server: PostgresServer, table: str = "passages") -> list[Any]:
    """Vectors as numbers of 32 bits, so that -0.0 differs from 0.0."""
    rows = server.run(f"SELECT embedding FROM {table} ORDER BY id")
    return [text and bits_of(list(map(float, text[1:-1].split(",")))) for (text,) in rows]


def bits_of(vector: Any) -> bytes:
    return struct.pack(f"{len(vector)}f", *vector)


def test_vectors_of_rows_and_of_columns_come_out_as_they_went_in(with_vectors: PostgresServer) -> None:
    sink = pg.table(with_vectors.full_url, "passages", TYPES)
    sink.check_start()
    good, errors = numbered(sink, [{"id": at, "embedding": vector} for at, vector in enumerate(VECTORS)])
    assert not errors
    column = pyarrow.array(VECTORS, pyarrow.list_(pyarrow.float32(), 3))
    batch = pyarrow.record_batch({"id": range(len(VECTORS), 2 * len(VECTORS)), "embedding": column})
    assert sink.holds(batch)
    doubles = pyarrow.array(VECTORS, pyarrow.list_(pyarrow.float64()))
    with registered(sink, identity(1)) as writer:
        writer.write(0, good)
        writer.write_columns(len(good), batch)
        batch = pyarrow.record_batch({"id": range(2 * len(VECTORS), 3 * len(VECTORS)), "embedding": doubles})
        writer.write_columns(2 * len(good), batch)
    expected = [vector and bits_of(vector) for vector in VECTORS]
    assert vectors_in(with_vectors) == expected * 3


def test_half_vectors_come_out_as_they_went_in(with_vectors: PostgresServer) -> None:
    halves = [[0.0999755859375, 65504.0], [2.0**-24, -0.0]]
    sink = pg.table(with_vectors.full_url, "passages", {"id": "bigint", "embedding": "halfvec(2)"})
    column = pyarrow.array(halves, pyarrow.list_(pyarrow.float16(), 2))
    with registered(sink, identity(1)) as writer:
        assert writer.write(0, [(0, halves[0]), (1, halves[1])]) == 2
        assert writer.write_columns(2, pyarrow.record_batch({"id": [2, 3], "embedding": column})) == 4
    assert vectors_in(with_vectors) == [bits_of(vector) for vector in halves * 2]


def test_a_vector_that_the_column_would_change_is_an_error_of_its_row(with_vectors: PostgresServer) -> None:
    fine = {"id": 1, "embedding": [1, 2, 3]}
    bad = [[0.1, 2.0, 3.0], [1.0, 2.0], [1.0, 2.0, float("nan")], [1.0, 2.0, 1e300], {"a": 1}]
    sink = pg.table(with_vectors.full_url, "passages", TYPES)
    sink.check_start()
    good, errors = numbered(sink, [fine, *({"id": 2, "embedding": vector} for vector in bad), fine])
    assert good == [fine, fine]
    assert [error.record["embedding"] for error in errors][:2] == bad[:2]
    assert "its embedding is [0.1, 2.0, 3.0], which a column of the type vector(3) does not hold" in errors[0].error
    rounding = pg.table(with_vectors.full_url, "passages", TYPES, round_vectors=True)
    rounding.check_start()
    good, errors = numbered(rounding, [{"id": at, "embedding": vector} for at, vector in enumerate(bad)])
    assert len(errors) == len(bad) - 1
    with registered(rounding, identity(1)) as writer:
        writer.write(0, good)
    assert vectors_in(with_vectors) == [bits_of([0.1, 2.0, 3.0])]


def test_a_vector_is_replaced_by_its_key_and_restored(with_vectors: PostgresServer) -> None:
    sink = pg.table(with_vectors.full_url, "passages", TYPES, upsert="id")
    with registered(sink, identity(1)) as early:
        early.write(0, [(1, VECTORS[0]), (2, ENDS)])
        early.write(2, [(1, VECTORS[1]), (2, None), (3, ENDS)])
    assert vectors_in(with_vectors) == [bits_of(VECTORS[1]), None, bits_of(ENDS)]
    late = sink.immediate_writer()
    assert late.register(identity(2, generation=2), 2) == Registration(2, None)
    late.close()
    assert vectors_in(with_vectors) == [bits_of(VECTORS[0]), bits_of(ENDS)]


def test_a_job_of_columns_writes_each_vector_once(with_vectors: PostgresServer, tmp_path: Path) -> None:
    vectors = [[float(n), n / 4, -n / 8] for n in range(600)]
    column = pyarrow.array(vectors, pyarrow.list_(pyarrow.float32(), 3))
    pyarrow.parquet.write_table(pyarrow.table({"id": range(600), "embedding": column}), tmp_path / "in.parquet")
    job = Job("vectors", slots="thread", store=tmp_path / "store")
    rows = job.source(files.parquet(str(tmp_path / "in.parquet"))).filter(col("id") >= 200)
    rows.sink(pg.table(with_vectors.full_url, "passages", TYPES))
    assert "columns     source, filter, sink" in job.explain()
    job.run()
    assert vectors_in(with_vectors) == [bits_of(vector) for vector in vectors[200:]]


def test_a_database_without_the_type_of_a_column_is_found_at_the_start(postgres: PostgresServer) -> None:
    with pytest.raises(InvalidConnector, match=r'type "vector" does not exist\. Run CREATE EXTENSION vector') as raised:
        pg.table(postgres.full_url, "passages", TYPES).check_start()
    assert "the table passages cannot be created" in str(raised.value)
    with pytest.raises(InvalidConnector, match=r'type "txt" does not exist\. Correct it in columns='):
        pg.table(postgres.full_url, "passages", {"id": "txt"}).check_start()
