"""Functions that make sources of Delta tables: ``delta.read`` and ``delta.changes``."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.delta.table_versions import CHANGES, READ
from clonos.connectors.kit.source_options import is_bounded
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns

if TYPE_CHECKING:
    from clonos.connectors.delta.delta_changes import DeltaChanges
    from clonos.connectors.delta.delta_read import DeltaRead


@explains_calls
def read(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    ordered: bool | None = None,
) -> DeltaRead:
    """Source of the rows of one version of a Delta table, as columns. The job ends when it has read them.

    Args:
        path: folder of the table, or its URL in an object store: ``s3://``, ``gs://`` or ``az://``.
        version: number of the version; by default the newest one when the job first starts.
        timestamp: aware datetime, for the newest version that was there at that time.
        ordered: True reads each file as one split, in its order; False reads row groups of few files in parallel. By
            default a file is one split if a step that follows depends on the order of records.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(delta.read("lake/orders", version=7))
    """
    if version is not None and (type(version) is not int or version < 0):
        raise InvalidConnector(READ, f"version is {version!r:.80}", "Give a number from 0 on.")
    if version is not None and timestamp is not None:
        raise InvalidConnector(READ, "it has a version= and a timestamp=", "Leave out one of them.")
    if timestamp is not None and getattr(timestamp, "tzinfo", None) is None:
        raise InvalidConnector(READ, f"timestamp is {timestamp!r:.80}", "Give a datetime with a time zone.")
    from clonos.connectors.delta.delta_read import DeltaRead  # Arrow takes long to load

    return DeltaRead(os.fspath(path), version, timestamp, ordered)


@explains_calls
def changes(
    path: str | os.PathLike[str],
    *,
    from_version: int | None = None,
    until: Literal["latest"] | None = None,
    watch: Duration = "1s",
    ordered: bool | None = None,
) -> DeltaChanges:
    """Source of the changes of a Delta table, version by version, as columns: those of the table, and three more.

    ``_change_type`` is "insert", "delete", "update_preimage" or "update_postimage". ``_commit_version`` is a number,
    and ``_commit_timestamp`` an instant. A version that removes rows needs the change data feed of the table.

    Args:
        path: folder of the table, or its URL in an object store: ``s3://``, ``gs://`` or ``az://``.
        from_version: version whose changes are the first ones; by default the next one after the first start.
        until: "latest": the job ends after the version that was the newest one when it first started.
        watch: how often to look for another version.
        ordered: True reads all files in the order of versions by one task; False deals them to all tasks. By default
            one task reads them if a step that follows depends on the order of records.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(delta.changes("lake/orders", from_version=8))
    """
    if from_version is not None and (type(from_version) is not int or from_version < 0):
        raise InvalidConnector(CHANGES, f"from_version is {from_version!r:.80}", "Give a number from 0 on.")
    from clonos.connectors.delta.delta_changes import DeltaChanges  # Arrow takes long to load

    ends = is_bounded(CHANGES, until, "latest")
    return DeltaChanges(os.fspath(path), from_version, ends, duration_ns(watch), ordered)
