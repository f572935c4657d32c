"""Committed output: its part files, its rows, and the removal of what follows a checkpoint."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import xxhash

from clonos.connectors.connector_errors import InputMissing, OutputCorrupt
from clonos.connectors.filesystem.durable_files import output_errors
from clonos.connectors.filesystem.file_sinks import absolute, paths_of
from clonos.connectors.filesystem.file_splits import format_suffix
from clonos.connectors.filesystem.input_files import open_buffered
from clonos.connectors.filesystem.output_folder import OutputFolder
from clonos.connectors.filesystem.output_parts import Layout
from clonos.connectors.formats.part_content import open_part
from clonos.connectors.json_text import parse_json
from clonos.connectors.object_stores.urls import checked_url, is_url
from clonos.connectors.partitions.folder_names import partition_values
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values.column_rows import rows_of_columns

Path = str | os.PathLike[str]
CHECKSUM_BYTES = 1 << 20


class CommittedPart(NamedTuple):
    """Committed part file of an output.

    ``checkpoint`` committed it. ``xxh3`` is the checksum of the file in hexadecimal. ``partition`` has the columns that
    its folders name, ``layout`` what a reader of text must know. ``name``: of a record of ``files.whole``, or "".
    """

    path: str
    checkpoint: int
    task: str
    rows: int
    size_bytes: int
    xxh3: str
    partition: dict[str, str | None] = {}  # noqa: RUF012  nobody changes it
    layout: Layout = Layout()
    name: str = ""


@explains_calls
def committed(path: Path) -> list[CommittedPart]:
    """Lists the committed part files of an output, by checkpoint, then by task.

    Each call shows complete checkpoints only, also while the job runs.

    Raises:
        InputMissing: there is no such output.
        OutputCorrupt: a manifest cannot be read.
    """
    return [
        CommittedPart(
            found,
            manifest.checkpoint,
            part.task,
            part.rows,
            part.size_bytes,
            part.xxh3,
            {} if part.shown_as else partition_values(part.place),
            part.layout,
            part.shown_as,
        )
        for manifest, part, found in OutputFolder(_existing(path)).committed_files()
    ]


@explains_calls
def read_committed(path: Path) -> Iterator[Any]:
    """Yields the committed rows of an output: values of JSON, dicts (of str from CSV), lines of text, or of
    ``files.whole`` (name, bytes).

    Rows of a partitioned output have the columns of their folders as str, or None.

    Raises:
        InputMissing: there is no such output.
        OutputCorrupt: a part file differs from its manifest.
    """
    for part in committed(path):
        _check(part)
        if part.name:
            with output_errors(part.path, "read"), open_buffered(part.path) as file:
                content = file.read()
            yield part.name, content
            continue
        rows = 0
        found = _rows_of(part.path, part.layout)
        while True:
            try:
                row = next(found)
            except StopIteration:
                break
            except (csv.Error, ValueError) as error:
                raise OutputCorrupt(part.path, f"{part.rows} rows", f"after {rows} rows: {error}") from None
            rows += 1
            yield row | part.partition if part.partition else row
        if rows != part.rows:
            raise OutputCorrupt(part.path, f"{part.rows} rows", f"{rows} rows")


@explains_calls
def roll_back(path: Path, job_id: str, checkpoint: int) -> list[int]:
    """Removes the output that the job committed after ``checkpoint``; returns those checkpoints, latest first.

    Raises:
        InputMissing: there is no such output.
        NotOutputOwner: the output belongs to another job.
    """
    return OutputFolder(_existing(path)).roll_back(job_id, checkpoint)


def _existing(path: Path) -> str:
    (name,) = paths_of(path)
    if is_url(name):
        checked_url("files", name)
    folder = absolute(name)
    output = OutputFolder(folder)
    if not output.has_manifests():
        advice = f"Name the output of a job. Its manifests would be in {output.state}."
        raise InputMissing(os.fspath(path), os.getcwd(), advice)
    return folder


def _check(part: CommittedPart) -> None:
    checksum = xxhash.xxh3_64()
    try:
        with open_buffered(part.path) as file:
            while piece := file.read(CHECKSUM_BYTES):
                checksum.update(piece)
    except OSError as error:
        raise OutputCorrupt(part.path, f"{part.size_bytes} bytes", error.strerror or str(error)) from error
    if checksum.hexdigest() != part.xxh3:
        raise OutputCorrupt(part.path, f"xxh3 {part.xxh3}", f"xxh3 {checksum.hexdigest()}")


def _rows_of(path: str, layout: Layout) -> Iterator[Any]:
    kind = format_suffix(path)
    if kind == ".parquet":
        from clonos.connectors.columns.parquet_batches import (  # Arrow takes long to load
            FormatUnreadable,
            read_batches,
        )

        try:
            for batch in read_batches(path):
                yield from rows_of_columns(batch)
        except FormatUnreadable as error:
            raise ValueError(str(error)) from None
    elif kind == ".arrow":
        from clonos.connectors.columns.arrow_files import read_rows  # Arrow takes long to load

        yield from read_rows(path)
    elif kind == ".avro":
        from clonos.connectors.formats.avro_files import read_rows as read_avro

        yield from read_avro(path)
    elif kind == ".csv":
        with io.TextIOWrapper(open_part(path), "utf-8", newline="") as text:
            yield from csv.DictReader(text, layout.columns or None, delimiter=layout.delimiter)
    elif kind == ".txt":
        with io.TextIOWrapper(open_part(path), layout.encoding, newline="\n") as text:
            yield from (line.removesuffix("\n") for line in text)
    else:
        with open_part(path) as lines_of_json:
            yield from map(parse_json, lines_of_json)
