"""Targets: input files (lines, JSON, Parquet, compressed), splits and marks, output folders and their content."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import lz4.frame
import msgspec
import pyarrow
import pyarrow.parquet
from xxhash import xxh3_64_hexdigest

from clonos.connectors import files
from clonos.connectors.connector_errors import (
    InputChanged,
    InputMalformed,
    InputUnreadable,
    InvalidConnector,
    NotOutputOwner,
    OutputCorrupt,
    SplitMalformed,
    UnexpectedInput,
)
from clonos.connectors.filesystem.file_splits import FileSplit, encode_split
from clonos.connectors.filesystem.output_parts import (
    MANIFESTS,
    OUTPUT_FORMAT,
    PARTS,
    Manifest,
    Owner,
    Part,
    decode_parts,
    state_folder,
)
from clonos.connectors.in_memory import values
from clonos.core.model.errors import InternalError
from clonos.operators.connector_contract import SplitReader, WriterContext, check_split
from tests.fuzz.folders import PLACEHOLDER, in_folder, new_folder
from tests.fuzz.target import Target, of_bytes, of_json, of_msgpack
from tests.unit.connectors.reading import as_rows

READ_ERRORS = (InputMalformed, InputUnreadable, InputChanged)
WORDS = (
    b"\n",
    b"\r\n",
    b"\r",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3",
    b'"',
    b"{",
    b"[",
    b"[" * 2000,
    b"NaN",
    b"1e999",
    b'"\\ud800"',
    b"\\u0000",
    b"9" * 5000,
)


def targets() -> list[Target]:
    """Targets of this file."""
    return [*_texts(), *_compressed(), _parquet(), *_splits(), *_outputs()]


class Reading:
    """Writes an input to a file and reads it as a source does, in pieces, from a mark too."""

    def __init__(self, name: str, reader: Any, begin: int = 0) -> None:
        self._path = new_folder() / name
        self._reader = reader
        self._begin = begin

    def __call__(self, data: bytes) -> None:
        self._path.write_bytes(data)
        status = os.stat(self._path)
        end = max(self._begin, len(data))
        split = encode_split(
            FileSplit(1, str(self._path), status.st_size, status.st_mtime_ns, min(self._begin, end), end)
        )
        read_through(self._reader(), split)


def read_through(reader: SplitReader[Any], split: bytes) -> None:
    """Reads all records of a split, then some of them again from a mark."""
    try:
        reader.open(split, None)
        mark = reader.mark()
        while (rows := reader.read(3)) is not None:
            assert as_rows(rows)
            mark = reader.mark()
        reader.open(split, mark)
        reader.read(1)
    finally:
        reader.close()


# ------------------------------------------------------------------ texts


def _texts() -> list[Target]:
    lines = [b"", b"one\ntwo\r\nthree", "straße\n\U0001f600\n".encode() * 9, b"\xef\xbb\xbfbom\n", b"x" * 3000 + b"\n"]
    texts = [
        json.dumps(value).encode() + b"\n" for value in ({"a": 1, "b": [1.5, None, True]}, "text", 17, [[["deep"]]])
    ]
    words = of_bytes(lines, WORDS)
    return [
        Target("lines", words, Reading("a.txt", files.lines("x").reader), READ_ERRORS, share=10),
        Target(
            "lines with positions",
            words,
            Reading(
                "b.txt", files.lines("x", encoding="utf-8-sig", with_position=True, line_bytes_max=500).reader, begin=3
            ),
            READ_ERRORS,
            share=5,
        ),
        Target(
            "lines in a multibyte encoding",
            words,
            Reading("c.txt", files.lines("x", encoding="shift_jis", errors="replace").reader),
            READ_ERRORS,
            share=3,
        ),
        Target(
            "json lines",
            of_bytes([*texts, b"".join(texts)], WORDS),
            Reading("d.jsonl", files.jsonl("x").reader),
            READ_ERRORS,
            share=10,
        ),
    ]


def _compressed() -> list[Target]:
    text = b"some words and more of them\n" * 20
    samples = {
        "gz": gzip.compress(text, mtime=0) + gzip.compress(b"second member\n", mtime=0),
        "bz2": bz2.compress(text),
        "xz": lzma.compress(text),
        "lz4": lz4.frame.compress(text),
        "zst": pyarrow.Codec("zstd").compress(text, asbytes=True),
    }
    reader = files.lines("x").reader
    return [
        Target(f"lines in {suffix}", of_bytes([sample]), Reading(f"e.txt.{suffix}", reader), READ_ERRORS, share=2)
        for suffix, sample in samples.items()
    ]


# ------------------------------------------------------------------ Parquet


def _parquet() -> Target:
    tables = [
        pyarrow.table({"n": [1, None, 3] * 5, "t": ["a", "straße", None] * 5}),
        pyarrow.table(
            {"d": pyarrow.array(["a", "b", "a"]).dictionary_encode(), "l": [[1], [], None], "x": [0.5, 1.5, None]}
        ),
        pyarrow.table({"s": [{"a": 1, "b": "x"}, None], "b": [b"\x00", b""], "o": [True, None]}),
    ]
    samples = []
    for number, table in enumerate(tables):
        sink = io.BytesIO()
        compression = ("snappy", "none", "zstd")[number]
        pyarrow.parquet.write_table(
            table, sink, row_group_size=7, compression=compression, data_page_version="1.0" if number else "2.0"
        )
        samples.append(sink.getvalue())
    path = new_folder() / "a.parquet"
    source = files.parquet(path)

    def read(data: bytes) -> None:
        path.write_bytes(data)
        for split in source.splits(1):
            reader = source.reader()
            try:
                reader.open(split, None)
                while (batch := reader.read(5)) is not None:
                    _use(batch)
            finally:
                reader.close()

    return Target("parquet", of_bytes(samples), read, READ_ERRORS, share=2)


def _use(batch: Any) -> None:
    assert all(isinstance(name, str) for name in batch.schema.names)
    for column in batch.columns:
        try:
            column.to_pylist()
        except Exception:  # noqa: BLE001  Python has no such value: only a crash counts
            pass


# ------------------------------------------------------------------ splits


def _splits() -> list[Target]:
    folder = new_folder()
    path = folder / "a.txt"
    path.write_bytes(b"one\ntwo\nthree\n" * 20)
    table = folder / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": list(range(50))}), table, row_group_size=20)
    for file in (path, table):
        os.utime(file, ns=(1, 1))
    lines, parquet, numbers = files.lines(path, block_bytes=50), files.parquet(table), values(range(40))
    sources: list[Any] = [lines, parquet, numbers]
    made = [of_msgpack([_placed(split, folder) for split in source.splits(2)]) for source in sources]

    def make(random: Random) -> bytes:
        number = random.randrange(len(sources))
        return bytes((number, random.choice((0, 0, 0, random.randrange(256))))) + made[number](random)

    def read(data: bytes) -> None:
        source, split, mark = sources[data[0] % 3], in_folder(data[2:], folder), data[1]
        check_split(source, split)
        reader = source.reader()
        try:
            reader.open(split, (mark * 0x0101010101010101).to_bytes(8, "big")[: mark % 10] if mark else None)
            for _ in range(5):
                if reader.read(4) is None:
                    break
                reader.mark()
        finally:
            reader.close()

    return [Target("splits", make, read, (SplitMalformed, InvalidConnector, UnexpectedInput, *READ_ERRORS), share=5)]


def _placed(split: bytes, folder: Path) -> bytes:
    """A split whose path has the placeholder."""
    return split.replace(str(folder).encode(), PLACEHOLDER)


# ------------------------------------------------------------------ outputs


def _outputs() -> list[Target]:
    folder = new_folder() / "out"
    folder.mkdir()
    state = Path(state_folder(str(folder)))
    for name in (PARTS, MANIFESTS):
        (state / name).mkdir(parents=True)
    part = Part(OUTPUT_FORMAT, f"part-{3:010}-count-0-1-1.jsonl", "count/0", 1, 1, 3, 1, 8, "0")
    csv = msgspec.structs.replace(part, name=f"part-{3:010}-count-1-1-1.csv", task="count/1")
    (folder / part.name).write_bytes(b'{"a": 1}')
    (folder / csv.name).write_bytes(b"a,b\n1,2\n")
    foreign = folder / "outside"
    foreign.write_bytes(b"not to be touched")
    encode = msgspec.json.encode
    manifests = [
        encode(Manifest(OUTPUT_FORMAT, "job-1", 3, None, (part, csv))),
        encode(Manifest(OUTPUT_FORMAT, "job-1", 3, None, ())),
    ]
    owners = [encode(Owner(OUTPUT_FORMAT, "job-1", False))]
    words = (*WORDS, b"../../outside", b"/etc/passwd", b"..", b"true", b"null", b"1e400", b"-1")

    def show(manifest: bytes, owner: bytes) -> None:
        (state / MANIFESTS / f"{3:020}.manifest").write_bytes(manifest)
        (state / MANIFESTS / "owner").write_bytes(owner)
        for each in files.committed(folder):
            assert Path(os.path.normpath(each.path)).parent in (folder, state / PARTS), each.path
        files.roll_back(folder, "job-1", 2)
        assert foreign.exists()
        for made in (part, csv):
            (folder / made.name).write_bytes(b'{"a": 1}')

    declared = (OutputCorrupt, NotOutputOwner)
    return [
        Target("manifests", of_json(manifests, words), partial(show, owner=owners[0]), declared, share=3),
        Target("owners of outputs", of_json(owners, words), partial(show, manifests[0]), declared, share=2),
        Target(
            "prepared parts",
            of_json([encode([part]), encode([part, csv])], words),
            lambda data: decode_parts(data, "out"),
            (InternalError,),
            share=5,
        ),
        *(_shown(suffix) for suffix in ("jsonl", "csv", "parquet")),
    ]


def _shown(suffix: str) -> Target:
    """The rows of a part whose manifest fits its bytes."""
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "straße"}]
    kinds: dict[str, Any] = {"jsonl": files.jsonl, "csv": files.csv, "parquet": files.parquet}
    sink = kinds[suffix](new_folder() / "out")
    sink.prepare_output("job-1", resume=False, overwrite=False)
    writer = sink.writer()
    writer.open(WriterContext("job-1", "count/0", 0, 1, 1))
    writer.write(rows)
    prepared = writer.prepare(1)
    writer.close()
    (made,) = decode_parts(prepared, "out")
    sink.commit("job-1", 1, [prepared])
    path = Path(sink.folder()) / made.name
    manifest = Path(state_folder(sink.folder())) / MANIFESTS / f"{1:020}.manifest"
    sample = path.read_bytes()

    def read(data: bytes) -> None:
        path.write_bytes(data)
        fitting = msgspec.structs.replace(made, size_bytes=len(data), xxh3=xxh3_64_hexdigest(data))
        manifest.write_bytes(msgspec.json.encode(Manifest(OUTPUT_FORMAT, "job-1", 1, None, (fitting,))))
        for row in files.read_committed(sink.folder()):
            assert row is not None or suffix == "jsonl"

    return Target(f"committed {suffix}", of_bytes([sample], WORDS), read, (OutputCorrupt,), share=2)
