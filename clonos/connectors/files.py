"""Files: ``files.lines``, ``files.jsonl``, ``files.csv``, ``files.parquet``, and reading what a job has committed.

Sources take a path, a folder, a pattern (``*``, ``?``, ``[...]``, ``**``) or a list of these, and read the files that
are there when the job first starts. ``.gz``, ``.bz2``, ``.xz`` and ``.zst`` are decompressed. Files must not change
while a job has use for them. A folder that is the output of a job is read as far as it is committed. With ``watch``
files that come later are read too: move them in when they are complete.

Sinks take a folder. Each checkpoint makes the output before it visible at once, in the sense of ``files.committed``:
the part files themselves are hidden. A folder serves one sink of one job.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, overload

from clonos.api.windows import duration_ns
from clonos.connectors.filesystem.committed_output import CommittedPart, committed, read_committed, withdraw
from clonos.connectors.filesystem.csv_files import CsvFiles
from clonos.connectors.filesystem.file_sinks import paths_of
from clonos.connectors.filesystem.json_files import JsonFiles
from clonos.connectors.filesystem.line_files import LINE_BYTES_MAX, LineFiles

if TYPE_CHECKING:
    from clonos.connectors.filesystem.parquet_files import ParquetFiles

__all__ = ["lines", "jsonl", "csv", "parquet", "committed", "read_committed", "withdraw", "CommittedPart"]

Path = str | os.PathLike[str]
Duration = str | float | timedelta


@overload
def lines(
    path: Path | Sequence[Path],
    *,
    encoding: str = ...,
    errors: str = ...,
    with_position: Literal[False] = ...,
    block_bytes: int | None = ...,
    line_bytes_max: int = ...,
    watch: Duration | None = ...,
) -> LineFiles[str]: ...


@overload
def lines(
    path: Path | Sequence[Path],
    *,
    encoding: str = ...,
    errors: str = ...,
    with_position: Literal[True],
    block_bytes: int | None = ...,
    line_bytes_max: int = ...,
    watch: Duration | None = ...,
) -> LineFiles[tuple[str, int, str]]: ...


def lines(
    path: Path | Sequence[Path],
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    with_position: bool = False,
    block_bytes: int | None = None,
    line_bytes_max: int = LINE_BYTES_MAX,
    watch: Duration | None = None,
) -> LineFiles[Any]:
    """A source of the lines of text files, as str without their ends (\\\\n or \\\\r\\\\n, nothing else).

    ``with_position``: tuples (path, offset_bytes, text) instead, where the offset is that of the line's first byte
    (behind the decompressor): with the path it is the line's identity. ``block_bytes``: plain files are read in
    parallel by blocks of so many bytes; by default at most 8 MiB. ``errors``: as for ``bytes.decode``. ``watch``: how
    often ("1s", a timedelta, seconds) to look for further files; the job then ends only when it is stopped.
    """
    return LineFiles(
        paths_of(path),
        encoding=encoding,
        errors=errors,
        with_position=with_position,
        block_bytes=block_bytes,
        line_bytes_max=line_bytes_max,
        look_every_ns=_look_every_ns(watch),
    )


def jsonl(
    path: Path | Sequence[Path],
    *,
    block_bytes: int | None = None,
    line_bytes_max: int = LINE_BYTES_MAX,
    watch: Duration | None = None,
) -> JsonFiles:
    """JSON lines: a source of the value of each line, or a sink of a line for each row, into a folder.

    ``clonos.connectors.json_text`` says what becomes of values that JSON has no word for.
    """
    return JsonFiles(
        paths_of(path),
        block_bytes=block_bytes,
        line_bytes_max=line_bytes_max,
        look_every_ns=_look_every_ns(watch),
    )


def csv(path: Path, *, columns: Sequence[str] | None = None) -> CsvFiles:
    """A sink of comma-separated values with a header in each part, into a folder.

    Rows are dicts or have fields with names; tuples need ``columns``. Without ``columns`` the first row of a part says
    what they are. A field without a column is an error, a column without a field is empty.
    """
    return CsvFiles(paths_of(path), columns=columns)


def parquet(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: Any = None,
    watch: Duration | None = None,
) -> ParquetFiles:
    """Parquet: a source of ``pyarrow.RecordBatch`` by row groups (``columns`` of them), or a sink into a folder.

    The sink takes rows and record batches; ``schema`` (a ``pyarrow.Schema``) makes all parts alike.
    """
    from clonos.connectors.filesystem.parquet_files import ParquetFiles  # Arrow is loaded only where it is needed

    return ParquetFiles(paths_of(path), columns=columns, schema=schema, look_every_ns=_look_every_ns(watch))


def _look_every_ns(watch: Duration | None) -> int:
    return 0 if watch is None else duration_ns(watch)
