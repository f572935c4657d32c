"""Targets: JSON lines and CSV that are parsed to columns, with given and inferred types, and Arrow IPC files."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow

from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector
from tests.fuzz.folders import new_folder
from tests.fuzz.target import Target, of_bytes
from tests.fuzz.targets.of_files import READ_ERRORS, WORDS, Reading, read_through

TYPES = pyarrow.schema({"a": pyarrow.int64(), "b": pyarrow.string(), "at": pyarrow.timestamp("us", "UTC")})
ROWS = [{"a": 1, "b": "x", "at": "2026-01-01T00:00:00Z"}, {"a": None, "b": "say"}, {"b": "straße", "a": -5}]
JSON = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
CSV = b'a,b,at\n1,x,2026-01-01T00:00:00Z\n,"say ""hi""",\n-5,"a,b",\r\n\n7,"two\nlines",\n'
CELLS = (*WORDS, b",", b'""', b'"\n"', b"1.5", b'"a":', b"}{", b"a,b,at\n")


def targets() -> list[Target]:
    """Targets of this file."""
    texts: list[tuple[str, bytes, str, Any]] = [
        ("json lines as columns", JSON, "a.jsonl", files.jsonl("x", schema=TYPES)),
        ("csv", CSV, "b.csv", files.csv("x", schema=TYPES)),
        ("csv with line ends in cells", CSV, "c.csv", files.csv("x", schema=TYPES, newlines_in_values=True)),
    ]
    return [
        *(
            Target(name, of_bytes([sample, sample * 3], CELLS), Reading(file, source.reader), READ_ERRORS, share=3)
            for name, sample, file, source in texts
        ),
        Target("inferred json lines", of_bytes([JSON], CELLS), Inferring("d.jsonl"), INFERRED, share=3),
        Target("inferred csv", of_bytes([CSV], CELLS), Inferring("e.csv"), INFERRED, share=3),
        Target(
            "avro files", of_bytes([avro_file(), avro_file("deflate")], WORDS), Inferring("g.avro"), INFERRED, share=3
        ),
        Target("arrow files", of_bytes([arrow_file(), arrow_file("lz4")]), Inferring("f.arrow"), INFERRED, share=3),
    ]


def avro_file(codec: str = "null") -> bytes:
    """A small file of blocks of Avro."""
    fields = [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": {"type": "array", "items": "string"}}]
    schema = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
    rows = [{"a": number, "b": ["x"] * number} for number in range(20)]
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, codec=codec, sync_interval=60, sync_marker=b"0123456789abcdef")
    return file.getvalue()


INFERRED = (*READ_ERRORS, InvalidConnector)


class Inferring:
    """Writes an input to a file, lists its splits and reads them as a source does."""

    def __init__(self, name: str) -> None:
        self._path = new_folder() / name

    def __call__(self, data: bytes) -> None:
        self._path.write_bytes(data)
        made: dict[str, Any] = {
            ".jsonl": lambda: files.jsonl(self._path, columns=True),
            ".csv": lambda: files.csv(self._path),
            ".arrow": lambda: files.arrow(self._path),
            ".avro": lambda: files.avro(self._path, block_bytes=100),
        }
        source = made[self._path.suffix]()
        for split in source.splits(2):
            read_through(source.reader(), split)


def arrow_file(compression: str | None = None) -> bytes:
    """A file of two batches."""
    table = pyarrow.table({"n": [1, None, 3], "t": ["a", "straße", None], "l": [[1], [], None]})
    sink = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()
