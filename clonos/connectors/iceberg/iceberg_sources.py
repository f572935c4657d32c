"""Functions that make sources of Iceberg tables: ``iceberg.read`` and ``iceberg.changes``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.iceberg.iceberg_catalog import CHANGES, READ, IcebergTable, checked_name
from clonos.connectors.kit.source_options import is_bounded
from clonos.connectors.secrets import Secret
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns

if TYPE_CHECKING:
    from clonos.connectors.iceberg.iceberg_changes import IcebergChanges
    from clonos.connectors.iceberg.iceberg_read import IcebergRead


@explains_calls
def read(name: str, *, catalog: str | Mapping[str, str | Secret], snapshot: int | None = None) -> IcebergRead:
    """Source of the rows of one snapshot of an Iceberg table, as columns. The job ends when it has read them.

    Args:
        name: name of the table with its namespace, such as "shop.orders".
        catalog: name of a catalog in the configuration of pyiceberg, or its properties, as for ``iceberg.table``.
        snapshot: number of the snapshot; by default the newest one when the job first starts.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(iceberg.read("shop.orders", catalog="prod"))
    """
    from clonos.connectors.iceberg.iceberg_read import IcebergRead  # Arrow takes long to load

    if snapshot is not None and type(snapshot) is not int:
        raise InvalidConnector(READ, f"snapshot is {snapshot!r:.80}", "Give its number.")
    return IcebergRead(IcebergTable(READ, catalog, checked_name(READ, name)), snapshot)


@explains_calls
def changes(
    name: str,
    *,
    catalog: str | Mapping[str, str | Secret],
    after_snapshot: int | None = None,
    until: Literal["latest"] | None = None,
    watch: Duration = "1s",
    ordered: bool | None = None,
) -> IcebergChanges:
    """Source of the rows that are appended to an Iceberg table, snapshot by snapshot, as columns.

    A snapshot that compacts files has no rows. One that deletes or overwrites rows ends the job with an error.

    Args:
        name: name of the table with its namespace, such as "shop.orders".
        catalog: name of a catalog in the configuration of pyiceberg, or its properties, as for ``iceberg.table``.
        after_snapshot: number of the snapshot after which appends are read, 0 for all since the table was made; by
            default the newest one when the job first starts.
        until: "latest": the job ends after the snapshot that was the newest one when it first started.
        watch: how often to look for another snapshot.
        ordered: True reads all files in the order of snapshots by one task; False deals them to all tasks. By default
            one task reads them if a step that follows depends on the order of records.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(iceberg.changes("shop.orders", catalog="prod"))
    """
    from clonos.connectors.iceberg.iceberg_changes import IcebergChanges  # Arrow takes long to load

    if after_snapshot is not None and (type(after_snapshot) is not int or after_snapshot < 0):
        problem = f"after_snapshot is {after_snapshot!r:.80}"
        raise InvalidConnector(CHANGES, problem, "Give the number of a snapshot, or 0 for all.")
    table = IcebergTable(CHANGES, catalog, checked_name(CHANGES, name))
    ends = is_bounded(CHANGES, until, "latest")
    return IcebergChanges(table, after_snapshot, ends, duration_ns(watch), ordered)
