"""Python data source of Spark for what a job puts out: ``spark.read`` and ``spark.readStream`` of ``format("clonos")``.

A stream's offset is the number of the last checkpoint that it has read, with the number of part files up to there. A
rollback of the job that withdraws what the stream has read changes that number, so the stream notices it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from clonos.connectors.connector_errors import InvalidConnector
from clonos.spark.frames.committed_parts import batches_of, kind_of, parts_of, spark_schema_of
from clonos.spark.frames.frame_errors import OutputWithdrawn

NAME = "clonos"


class CommittedPartition(InputPartition):
    """One committed part file."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(path)
        self.path, self.kind = path, kind


class CommittedOutput(DataSource):
    """Data source ``clonos``, with one option: the path of the output of a job."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Returns the columns of the output.

        Raises: InvalidConnector: there is no path, or no committed row. InputMissing: there is no such output.
        """
        return spark_schema_of(NAME, self._path())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Creates a reader of what is committed now."""
        return _BatchReader(self._path(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Creates a reader of what is committed and will be."""
        return _StreamReader(self._path(), schema)

    def _path(self) -> str:
        path = self.options.get("path", "")
        if not path:
            raise InvalidConnector(NAME, "no path is given", 'Name the output: .format("clonos").load("/data/out").')
        return os.path.abspath(path.removeprefix("file://"))


class _BatchReader(DataSourceReader):
    def __init__(self, path: str, schema: StructType) -> None:
        self._path, self._schema = path, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [CommittedPartition(part.path, kind_of(part)) for part in parts_of(NAME, self._path)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, CommittedPartition), "Spark returns what partitions() has given it"
        return batches_of(partition.path, partition.kind, self._schema)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, path: str, schema: StructType) -> None:
        self._path, self._schema = path, schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  Spark's name
        return {"checkpoint": -1, "parts": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802  Spark's name
        numbers = [part.checkpoint for part in parts_of(NAME, self._path)]
        self._check(start, numbers)
        return {"checkpoint": max(numbers, default=-1), "parts": len(numbers)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        parts = parts_of(NAME, self._path)
        for offset in (start, end):
            self._check(offset, [part.checkpoint for part in parts])
        return [
            CommittedPartition(part.path, kind_of(part))
            for part in parts
            if start["checkpoint"] < part.checkpoint <= end["checkpoint"]
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, CommittedPartition), "Spark returns what partitions() has given it"
        return batches_of(partition.path, partition.kind, self._schema)

    def _check(self, offset: dict[str, int], numbers: Sequence[int]) -> None:
        """Raises OutputWithdrawn unless the output still has what lies before an offset."""
        if sum(number <= offset["checkpoint"] for number in numbers) != offset["parts"]:
            raise OutputWithdrawn(self._path, offset["checkpoint"])
