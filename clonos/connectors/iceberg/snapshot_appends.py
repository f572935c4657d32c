"""Appends of an Iceberg table: the snapshots after another one, and the data files that each adds."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clonos.connectors.iceberg.data_rows import SnapshotFile
from clonos.connectors.iceberg.iceberg_catalog import CHANGES
from clonos.connectors.iceberg.iceberg_errors import AppendsUnknown, SnapshotGone, reading_table

NONE: Final = 0
"""Number in place of a snapshot before the first one."""

UNKNOWN: Final = -1
"""Sequence number of a snapshot that has none, or has expired."""

AFRESH: Final = "Start afresh with --overwrite"


class Done(msgspec.Struct, frozen=True, array_like=True):
    """Snapshot whose appends are read. ``sequence``: its number among all of the table."""

    number: int
    sequence: int


def done_with(table: Any, number: int) -> Done:
    """Returns a snapshot as the one whose appends are read."""
    snapshot = table.metadata.snapshot_by_id(number)
    return Done(number, NONE if number == NONE else UNKNOWN if snapshot is None else _sequence_of(snapshot))


def snapshots_after(place: str, table: Any, done: Done, last: int | None = None) -> list[Any]:
    """Returns the snapshots from the one after ``done`` to the present one, or to ``last``, in their order.

    Raises: SnapshotGone: one of them has expired. AppendsUnknown: they do not follow ``done`` any more.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    current = table.metadata.current_snapshot_id
    number = (NONE if current is None else current) if last is None else last
    found = list[Any]()
    while number not in (done.number, NONE):
        if number not in known:
            raise SnapshotGone(place, number, "it has expired")
        found.append(known[number])
        number = found[-1].parent_snapshot_id or NONE
    if number != done.number and done.number in known:
        reason = "is not among those that led to the present one any more: the table was set back"
        raise AppendsUnknown(place, done.number, reason, f"{AFRESH}, and with the rows that the table has now.")
    if found and number == NONE and not _follows(found[-1], done):
        raise SnapshotGone(place, found[-1].snapshot_id, "a snapshot before it, which was not read, has expired")
    return found[::-1]


def _follows(first: Any, done: Done) -> bool:
    """Returns whether nothing was between a snapshot and ``done``, of which it does not say that it follows it.

    When a snapshot expires, pyiceberg removes its number from the next one.
    """
    if done.sequence != UNKNOWN and _sequence_of(first) == done.sequence + 1:
        return True
    total, added = (first.summary and first.summary[name] for name in ("total-records", "added-records"))
    return done.number == NONE and total is not None and total == added


def _sequence_of(snapshot: Any) -> int:
    return snapshot.sequence_number or UNKNOWN


def appended_files(place: str, table: Any, snapshot: Any, fields: Any) -> list[SnapshotFile]:
    """Returns the data files that a snapshot adds, in one order. ``fields``: the columns that a job knows.

    Raises: AppendsUnknown: it removes rows too, or has a column of another type. SnapshotGone. InputUnreadable.
    """
    from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
    from pyiceberg.table.snapshots import Operation

    number, found = snapshot.snapshot_id, list[Any]()
    operation = None if snapshot.summary is None else snapshot.summary.operation
    if operation == Operation.REPLACE:  # the same rows in other files
        return []
    is_removing = operation == Operation.DELETE
    with reading_table(CHANGES, place):
        try:
            for manifest in snapshot.manifests(table.io):
                if manifest.added_snapshot_id != number:
                    continue
                is_removing |= manifest.content == ManifestContent.DELETES
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                    if entry.snapshot_id == number:
                        is_removing |= entry.status == ManifestEntryStatus.DELETED
                        found.append(entry.data_file)
        except FileNotFoundError as error:
            raise SnapshotGone(place, number, f"its manifests were removed: {error}") from None
    if is_removing:
        reason = f"removes rows (its operation is {'unknown' if operation is None else operation.value!r})"
        advice = f"{AFRESH}, and after_snapshot={number} after an iceberg.read of it."
        raise AppendsUnknown(place, number, f"{reason}, and Iceberg does not say which", advice)
    _check_fields(place, table, snapshot, fields)
    return [SnapshotFile(place, table, number, file) for file in sorted(found, key=lambda file: str(file.file_path))]


def _check_fields(place: str, table: Any, snapshot: Any, fields: Any) -> None:
    from pyiceberg.exceptions import ResolveError
    from pyiceberg.schema import promote

    theirs = table.schemas().get(snapshot.schema_id, table.schema())
    for number in sorted(fields.field_ids & theirs.field_ids):
        ours, found = fields.find_field(number), theirs.find_field(number)
        if not ours.field_type.is_primitive or ours.field_type == found.field_type:
            continue
        try:
            promote(found.field_type, ours.field_type)
        except ResolveError:
            types = f"{found.field_type}, which was {ours.field_type} when the job first started"
            reason = f"has the column {ours.name} as {types}"
            raise AppendsUnknown(place, snapshot.snapshot_id, reason, f"{AFRESH}.") from None
