"""Options that ``files.lines`` and its siblings share, said once: they take them as ``**options: Unpack[...]``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypedDict

from clonos.connectors.filesystem.line_files import LINE_BYTES_MAX
from clonos.operators.event_time.durations import Duration, duration_ns

Path = str | os.PathLike[str]


class ArrowSchema(Protocol):
    """``pyarrow.Schema`` for type checkers, because pyarrow ships no types."""

    names: list[str]

    def get_field_index(self, name: str) -> int: ...


class WatchOptions(TypedDict, total=False):
    """Files that appear later, and the order of records; for sources. ``files.lines`` describes all these options."""

    watch: Duration | None
    ordered: bool | None


class BlockOptions(WatchOptions, total=False):
    """Blocks and lines of text files; for sources."""

    block_bytes: int | None
    line_bytes_max: Annotated[int, LINE_BYTES_MAX]


class PartOptions(TypedDict, total=False):
    """Files that a sink writes."""

    single: bool
    compression: str | None
    part_rows: int | None
    part_bytes: int | None


class FolderOptions(PartOptions, total=False):
    """Folders by the values of columns; ``partitioned`` is for sources."""

    partition_by: str | Sequence[str] | None
    partitioned: bool | ArrowSchema | None


class AvroOptions(WatchOptions, PartOptions, total=False):
    """Options of ``files.avro``."""

    block_bytes: int | None
    partitioned: bool | ArrowSchema | None


class LineOptions(BlockOptions, PartOptions, total=False):
    """Options of ``files.lines``."""


class RecordLineOptions(BlockOptions, FolderOptions, total=False):
    """Options of ``files.jsonl`` and ``files.csv``."""


class BatchOptions(WatchOptions, FolderOptions, total=False):
    """Options of ``files.parquet`` and ``files.arrow``."""


def given(options: WatchOptions) -> dict[str, Any]:
    """Returns options as the classes take them."""
    found: dict[str, Any] = {**options}
    watch: Duration | None = found.pop("watch", None)
    return {**found, "discovery_interval_ns": 0 if watch is None else duration_ns(watch)}
