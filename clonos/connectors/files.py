"""Files: ``files.lines``, ``tail``, ``jsonl``, ``csv``, ``parquet``, ``arrow``, ``avro``, ``whole``, and readers of
committed output.

Sources take a path, a folder, a pattern (``*``, ``?``, ``[...]``, ``**``) or a list of these. They read the files that
exist when the job first starts; with ``watch`` they also read files that appear later, so move files in when they are
complete. Text with the suffix ``.gz``, ``.bz2``, ``.xz``, ``.zst`` or ``.lz4`` is decompressed. A file must not change
as long as the job may replay it. Every path may be a URL of an object store, ``s3://bucket/key`` or
``gs://bucket/key``, and that of a source also ``https://server/file`` or ``sftp://user@server/folder/*.txt``.

Sinks take a folder, which serves one sink of one job. Each checkpoint moves its part files into the folder, so that a
reader of the folder sees committed rows only. ``files.committed`` and ``files.read_committed`` see whole checkpoints.

``partition_by`` names columns by whose values a sink puts rows into folders, ``day=2026-11-22/shop=a``, and not into
files. ``partitioned`` lets a source add them: True as text, a ``pyarrow.Schema`` by its types. False leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from clonos.connectors.filesystem.committed_output import CommittedPart, committed, read_committed, roll_back
from clonos.connectors.filesystem.csv_files import CsvFiles
from clonos.connectors.filesystem.file_options import (
    ArrowSchema,
    BatchOptions,
    BlockOptions,
    LineOptions,
    Path,
    RecordLineOptions,
    given,
)
from clonos.connectors.filesystem.file_sinks import paths_of
from clonos.connectors.filesystem.json_files import JsonFiles
from clonos.connectors.filesystem.line_files import LINE_BYTES_MAX, LineFiles
from clonos.connectors.filesystem.tail_files import TailFiles
from clonos.connectors.formats.avro_files import avro
from clonos.connectors.formats.whole_files import whole
from clonos.core.model.missing_names import explains_names
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns

if TYPE_CHECKING:
    from clonos.connectors.columns.arrow_files import ArrowFiles
    from clonos.connectors.columns.parquet_files import ParquetFiles

__all__ = [
    "lines",
    "tail",
    "jsonl",
    "csv",
    "parquet",
    "arrow",
    "avro",
    "whole",
    "committed",
    "read_committed",
    "roll_back",
    "CommittedPart",
]

AnyRow = TypeVar("AnyRow")


@overload
def lines(
    path: Path | Sequence[Path],
    *,
    encoding: str = ...,
    errors: str = ...,
    with_position: Literal[False] = ...,
    **options: Unpack[LineOptions],
) -> LineFiles[str]: ...


@overload
def lines(
    path: Path | Sequence[Path],
    *,
    encoding: str = ...,
    errors: str = ...,
    with_position: Literal[True],
    **options: Unpack[BlockOptions],
) -> LineFiles[tuple[str, int, str]]: ...


@explains_calls
def lines(
    path: Path | Sequence[Path],
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    with_position: bool = False,
    **options: Unpack[LineOptions],
) -> LineFiles[Any]:
    """Lines of text: a source of str without the ends ``\\n`` and ``\\r\\n``, or a sink that writes each str as a line.

    Args:
        path: for a source a file, folder or pattern, or a list of these; for a sink a folder.
        encoding: encoding of the text, also of a sink, in which the byte 10 must be a line end; ``"utf-8-sig"`` drops a
            byte order mark.
        errors: treatment of undecodable bytes, as for ``bytes.decode``; of a sink, as for ``str.encode``.
        with_position: True for records (path, offset_bytes, text), which identify the line; the offset is that of the
            first byte of the line, after decompression.
        block_bytes: size of the blocks into which plain files are split, at least 1; by default 64 KiB to 8 MiB. A
            size asks for blocks, as ``ordered=False`` does.
        line_bytes_max: longest line in bytes, 64 MiB by default.
        watch: how often to look for new files, such as "1s", a timedelta or seconds; the job then runs until it is
            stopped.
        ordered: True reads each file as one split, in its order; False reads it in blocks, in parallel. By default a
            file is one split if a step that follows depends on the order of records.
        single: for a sink, True writes one file of this path when all sources have ended.
        compression: for a sink, "gzip", "bz2", "xz", "zstd" or "lz4". A single file has that of its suffix.
        part_rows: for a sink, the rows after which a part file ends and the next one begins.
        part_bytes: for a sink, the same in bytes. By default a task writes one part file per checkpoint.

    Raises:
        InvalidConnector: an option cannot work.
        InvalidDuration: ``watch`` is not a length of time.
        InputMissing: when the job starts, a path or pattern matches no file (without ``watch``).

    Example::

        job.source(files.lines("logs/*.txt.gz", watch="10s"))
    """
    return LineFiles(paths_of(path), encoding=encoding, errors=errors, with_position=with_position, **given(options))


@explains_calls
def tail(
    path: Path | Sequence[Path],
    *,
    encoding: str = "utf-8",
    errors: str = "strict",
    with_position: bool = False,
    line_bytes_max: int = LINE_BYTES_MAX,
    watch: Duration = "1s",
    linger: Duration = "30s",
    rotated_to: str | None = None,
) -> TailFiles[Any]:
    """Lines of files that grow and are rotated, such as logs: a source of str that reads each line once.

    A line is read when it has its end. A file may be renamed, copied and then emptied (``copytruncate``), and
    compressed afterwards: its content is found again by device and inode, or by its first lines, in the same folder or
    in ``rotated_to``, under a name that begins alike. The job runs until it is stopped.

    Args:
        path: a file, folder or pattern, or a list of these, on the machine of the tasks. Rotated names need not match.
        encoding: see ``files.lines``, as for ``errors``, ``with_position`` and ``line_bytes_max``. The path of a
            position is that at which the file was found.
        watch: how often to look for new files.
        linger: how long a rotated file is read on after its last line, for writers that still have it open.
        rotated_to: the folder of rotated files, relative to that of each file, as ``olddir`` of logrotate. None: they
            stay in the same folder.

    Raises:
        InvalidConnector: an option cannot work, or the path is a URL.
        InvalidDuration: ``watch`` or ``linger`` is not a length of time.

    Example::

        job.source(files.tail("logs/*.log"), timestamps=Timestamps(time_of, idle_after="10s"))
    """
    return TailFiles(
        paths_of(path),
        encoding=encoding,
        errors=errors,
        with_position=with_position,
        line_bytes_max=line_bytes_max,
        discovery_interval_ns=duration_ns(watch),
        linger_ns=duration_ns(linger),
        rotated_to=rotated_to,
    )


@overload
def jsonl(
    path: Path | Sequence[Path],
    *,
    schema: None = ...,
    columns: bool | Sequence[str] | None = ...,
    **options: Unpack[RecordLineOptions],
) -> JsonFiles[Any]: ...


@overload
def jsonl(
    path: Path | Sequence[Path], *, schema: type[AnyRow], **options: Unpack[BlockOptions]
) -> JsonFiles[AnyRow]: ...


@overload
def jsonl(
    path: Path | Sequence[Path],
    *,
    schema: ArrowSchema,
    columns: bool | Sequence[str] | None = ...,
    partitioned: bool | ArrowSchema | None = ...,
    **options: Unpack[BlockOptions],
) -> JsonFiles[Any]: ...


@explains_calls
def jsonl(
    path: Path | Sequence[Path],
    *,
    schema: Any = None,
    columns: bool | Sequence[str] | None = None,
    **options: Unpack[RecordLineOptions],
) -> JsonFiles[Any]:
    """JSON lines: a source of the value of each line, or a sink that writes each row as a line into a folder.

    ``clonos.connectors.json_text`` lists how values without a JSON type are written. ``block_bytes``,
    ``line_bytes_max``, ``watch`` and ``ordered`` are for sources, ``single``, ``compression``, ``part_rows`` and
    ``part_bytes`` for sinks: see ``files.lines``.

    ``schema`` and ``columns`` are for sources. A dataclass, NamedTuple, msgspec.Struct or TypedDict as ``schema`` makes
    each line an object of it, so that a type checker finds a wrong field. A ``pyarrow.Schema``, or ``columns``, makes
    the lines a source of ``pyarrow.RecordBatch``: with True of all fields, with a list of these. Without a schema the
    types are those of the first lines. A line that does not fit is malformed.

    Raises:
        InvalidConnector: an option cannot work.
        RegistrationRefused: the class keeps state outside its fields.

    Example::

        job.source(files.jsonl("bids/", schema=Bid)).key_by(lambda bid: bid.auction)
    """
    return JsonFiles(paths_of(path), schema=schema, columns=columns, **given(options))


@explains_calls
def csv(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: Any = None,
    delimiter: str = ",",
    header: bool = True,
    newlines_in_values: bool = False,
    null_values: Sequence[str] = ("",),
    encoding: str = "utf-8",
    **options: Unpack[RecordLineOptions],
) -> CsvFiles:
    """Comma-separated values: a source of ``pyarrow.RecordBatch``, or a sink that writes rows with a header.

    A source has the columns of the header, or those named in ``columns`` or in ``schema``, a ``pyarrow.Schema``.
    Without ``schema`` the types are those of the first lines. Without a header (``header=False``) the cells of a line
    are the columns of ``schema`` or ``columns`` in their order. A quoted cell may hold line ends with
    ``newlines_in_values``, which reads each file in one piece. ``null_values`` are the cells that are null, for example
    ``["", "NA"]``; by default an empty cell is null, but not in a column of text. ``encoding`` is that of the files.
    ``block_bytes``, ``line_bytes_max``, ``watch`` and ``ordered`` are for sources: see ``files.lines``.

    As a sink, rows are dicts or have named fields; tuples need ``columns``. Without ``columns`` the first row of each
    part file defines the columns. A field without a column is an error; a column without a field is left empty. Without
    a header (``header=False``) a sink needs ``columns``. ``single``, ``compression``, ``part_rows`` and ``part_bytes``
    are those of ``files.lines``.

    Raises:
        InvalidConnector: an option cannot work.
    """
    return CsvFiles(
        paths_of(path),
        columns=columns,
        schema=schema,
        delimiter=delimiter,
        header=header,
        newlines_in_values=newlines_in_values,
        null_values=null_values,
        encoding=encoding,
        **given(options),
    )


@explains_calls
def parquet(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: Any = None,
    **options: Unpack[BatchOptions],
) -> ParquetFiles:
    """Parquet: a source of ``pyarrow.RecordBatch``, or a sink into a folder.

    Args:
        path: for a source a file, folder or pattern, or a list of these; for a sink a folder.
        columns: for a source, the columns to read; None for all.
        schema: for a sink, a ``pyarrow.Schema`` for all part files; None for that of the first rows of each part file.
        watch: for a source, how often to look for new files: see ``files.lines``.
        single: for a sink, True writes one file when all sources have ended.
        ordered: for a source, True reads a file as one split, False each row group: see ``files.lines``.
        compression: for a sink, "snappy" (default), "zstd", "gzip", "lz4", "brotli" or "none", within the file.
        part_rows: for a sink, as for ``files.lines``.
        part_bytes: for a sink, the same. It counts complete row groups.

    Raises:
        InvalidConnector: an option cannot work.
    """
    from clonos.connectors.columns.parquet_files import ParquetFiles  # Arrow takes long to load

    return ParquetFiles(paths_of(path), columns=columns, schema=schema, **given(options))


@explains_calls
def arrow(
    path: Path | Sequence[Path],
    *,
    columns: Sequence[str] | None = None,
    schema: Any = None,
    **options: Unpack[BatchOptions],
) -> ArrowFiles:
    """Arrow IPC files, which are Feather files too: a source of ``pyarrow.RecordBatch``, or a sink into a folder.

    The arguments are those of ``files.parquet``; with ``ordered`` False a source reads each record batch as one split.
    ``compression`` is "zstd", "lz4" or by default none.

    Raises:
        InvalidConnector: an option cannot work.
    """
    from clonos.connectors.columns.arrow_files import ArrowFiles  # Arrow takes long to load

    return ArrowFiles(paths_of(path), columns=columns, schema=schema, **given(options))


explains_names(
    __name__,
    {
        "json": "Use jsonl: one object in each line.",
        "text": "Use lines.",
        "txt": "Use lines.",
        "read_csv": "Use csv.",
        "read_json": "Use jsonl.",
        "read_parquet": "Use parquet.",
        "read_text": "Use lines.",
        "tsv": 'Use csv(path, delimiter="\\t").',
        "binary": "Use whole.",
    },
)
