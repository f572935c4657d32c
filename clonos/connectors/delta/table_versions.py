"""Versions of a Delta table, as sources see them: columns, and data files with the values of their partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Any, Final, NamedTuple

from clonos.connectors.connector_errors import InputUnreadable, InvalidConnector
from clonos.connectors.delta.table_log import check_url, library, storage_options
from clonos.connectors.object_stores.urls import is_url

READ: Final = "delta.read"
CHANGES: Final = "delta.changes"
CHANGE_FEED: Final = "delta.enableChangeDataFeed"
FEATURES: Final = frozenset(
    {"timestampNtz", "deletionVectors", "vacuumProtocolCheck", "v2Checkpoint", "appendOnly", "invariants"}
)
"""Features of tables that change nothing for a reader of their data files, or that are checked by file."""
COLUMN_MAPPING: Final = "delta.columnMapping.mode"
COPY_ADVICE: Final = "Copy it to a table without it, with Spark for example."


class DataFile(NamedTuple):
    """Data file of a version. ``path`` is that of the log, and ``partition`` has texts as the log has them."""

    path: str
    size_bytes: int
    partition: dict[str, str | None]


class TableVersion:
    """One version of a table, open."""

    def __init__(self, connector: str, path: str, table: Any) -> None:
        self._connector, self._path, self._table = connector, path, table
        with reading_table(path):
            self.version: int = table.version()
            self.settings: Mapping[str, str] = table.metadata().configuration
            self.partition_columns: tuple[str, ...] = tuple(table.metadata().partition_columns)
            features = set(table.protocol().reader_features or ())
        check_readable(connector, path, features, self.settings)
        self._may_have_vectors = "deletionVectors" in features
        self.schema = _schema_of(connector, path, table)
        check_partitions(connector, path, self.schema, self.partition_columns)

    def files(self) -> list[DataFile]:
        """Returns the data files, in one order.

        Raises: InvalidConnector: rows of one are marked as deleted. InputUnreadable: the log cannot be read.
        """
        import pyarrow

        with reading_table(self._path):
            if self._may_have_vectors and pyarrow.table(self._table.deletion_vectors()).num_rows:
                refuse_vectors(self._connector, self._path)
            added = pyarrow.table(self._table.get_add_actions()).to_pylist()
        found = [
            DataFile(
                action["path"],
                action["size_bytes"],
                {name: _text(action["partition"][name]) for name in self.partition_columns},
            )
            for action in added
        ]
        return sorted(found, key=lambda file: file.path)


def open_version(connector: str, path: str, version: int | None = None) -> TableVersion:
    """Opens a version of a table, the newest one by default.

    Raises: InvalidConnector: there is no table or no such version, or it cannot be read. InputUnreadable.
    """
    if is_url(path):
        check_url(path, connector)
    deltalake = library(connector)
    options = storage_options(path) if is_url(path) else None
    try:
        with reading_table(path):
            table = deltalake.DeltaTable(path.partition("?")[0], storage_options=options)
            if version is not None:
                _check_version(connector, path, version, table.version())
                table.load_as_version(version)
    except deltalake.exceptions.TableNotFoundError:
        raise InvalidConnector(connector, f"there is no Delta table at {path}", "Correct the path.") from None
    return TableVersion(connector, path, table)


def check_readable(connector: str, path: str, features: set[str], settings: Mapping[str, str]) -> None:
    """Raises InvalidConnector if a reader of the data files has to do more than to read them."""
    mapping = settings.get(COLUMN_MAPPING, "none") not in ("", "none")
    if unknown := ["columnMapping"] if mapping else sorted(features - FEATURES - {"columnMapping"}):
        problem = f"the table {path} uses {unknown[0]}, which is not supported"
        raise InvalidConnector(connector, problem, COPY_ADVICE)


def refuse_vectors(connector: str, path: str) -> None:
    """Raises InvalidConnector: a data file has rows that a deletion vector marks as deleted."""
    problem = f"rows of the table {path} are marked as deleted by a deletion vector, which is not supported"
    raise InvalidConnector(connector, problem, "Remove them from its files first: REORG TABLE ... APPLY (PURGE).")


def check_partitions(connector: str, path: str, schema: Any, columns: tuple[str, ...]) -> None:
    """Raises InvalidConnector if values by which the table is partitioned are not told by their texts."""
    from pyarrow import types

    for name in columns:
        kind = schema.field(name).type
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_nested(kind):
            problem = f"the table {path} is partitioned by {name}, which is {kind}"
            raise InvalidConnector(connector, problem, COPY_ADVICE)


@contextmanager
def reading_table(path: str) -> Iterator[None]:
    """Wraps code that reads the log of a table.

    Raises: InputUnreadable: it cannot be read. TableNotFoundError is passed on.
    """
    exceptions = library(READ).exceptions
    try:
        yield
    except exceptions.TableNotFoundError:
        raise
    except (exceptions.DeltaError, OSError) as error:
        raise InputUnreadable(path, " ".join(str(error).split())) from error


def _check_version(connector: str, path: str, version: int, newest: int) -> None:
    if version > newest:
        problem = f"the table {path} has no version {version}"
        raise InvalidConnector(connector, problem, f"Its newest version is {newest}.")


def _schema_of(connector: str, path: str, table: Any) -> Any:
    import pyarrow

    try:
        found = pyarrow.schema(table.schema().to_arrow())
    except Exception as error:  # noqa: BLE001  the library has no class for a type that Arrow does not have
        problem = f"the columns of the table {path} are not known to Arrow: {error}"
        raise InvalidConnector(connector, problem, COPY_ADVICE) from None
    return pyarrow.schema([pyarrow.field(field.name, field.type) for field in found])


def _text(value: Any) -> str | None:
    """Returns a value as the log of a table has it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)
