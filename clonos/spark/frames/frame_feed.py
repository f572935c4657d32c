"""Feeding of a running job by a query of Structured Streaming, with each batch once.

The folder is laid out as the output of a job (``output_folder``): a batch is committed by one manifest, which is
created once. So a repeated batch finds its manifest and writes nothing, and a source that watches the folder sees whole
batches.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from clonos.connectors.connector_errors import InvalidConnector, NotOutputOwner
from clonos.connectors.filesystem.output_folder import OutputFolder
from clonos.connectors.filesystem.output_parts import (
    MANIFESTS,
    OUTPUT_FORMAT,
    PARTS,
    PREPARED,
    Part,
    manifest_name,
)
from clonos.io.system.entropy import random_bytes
from clonos.spark.frames.part_writer import checked_frame, write_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECTOR = "frames.feed"
QUERY_PROPERTY = "sql.streaming.queryId"


class FrameFeed:
    """Function for ``foreachBatch`` that commits each batch to a folder once. See ``frames.feed``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._output = OutputFolder(os.path.abspath(os.path.expanduser(os.fspath(folder))))
        self._owner = ""

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self._output.path!r})"

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Writes a batch and commits it; does nothing if the batch is committed already.

        Raises: InvalidConnector: another query feeds the folder, or no query calls this. FrameFailed: Spark fails.
        """
        checked_frame(CONNECTOR, frame)
        self._prepare_for(self._query_of(frame))
        if os.path.exists(f"{self._output.state}/{MANIFESTS}/{manifest_name(batch)}"):
            return
        run = int.from_bytes(random_bytes(4), "big")
        owner, self._owner = self._owner, ""  # what a failure leaves behind is removed before the next attempt
        suffix = f".parquet{PREPARED}"
        written = write_frame(CONNECTOR, frame, f"{self._output.state}/{PARTS}", f"part-{batch:010}-feed", run, suffix)
        parts = [
            Part(
                format=OUTPUT_FORMAT,
                name=part.name.removesuffix(PREPARED),
                task=f"feed/{part.partition}",
                generation=0,
                incarnation=run,
                checkpoint=batch,
                rows=part.rows,
                size_bytes=part.size_bytes,
                xxh3=part.xxh3,
            )
            for part in written
        ]
        self._output.commit(owner, batch, [msgspec.json.encode(parts)])
        self._owner = owner

    def _query_of(self, frame: DataFrame) -> str:
        query: Any = frame.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
        if not query:
            problem = "it is not called by a streaming query, so it cannot tell a repeated batch from a new one"
            raise InvalidConnector(
                CONNECTOR, problem, "Give it to writeStream.foreachBatch, without a function around."
            )
        return f"query-{query}"

    def _prepare_for(self, owner: str) -> None:
        """Prepares the folder for a query, and removes what a batch that was not committed has left behind."""
        if self._owner == owner:
            return
        try:
            self._output.prepare(owner, resume=True, overwrite=False)
        except NotOutputOwner as error:
            problem = f"{self._output.path} is fed by {error.actual}, and this is {owner}, whose batches begin at 0"
            advice = "Continue the earlier query by its checkpointLocation, or feed another folder."
            raise InvalidConnector(CONNECTOR, problem, advice) from None
        last = max((manifest.checkpoint for manifest in self._output.manifests()), default=-1)
        self._output.sweep(valid_until=last)
        self._owner = owner
