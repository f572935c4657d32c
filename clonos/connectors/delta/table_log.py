"""Log of a Delta table: its schema, and the transactions of one job, each of which adds the files of a checkpoint.

A transaction carries the number of its checkpoint under the id of the job (an *application transaction* of the Delta
protocol). So the log itself says whether a checkpoint is in it, also after a crash, and refuses a second one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt, OutputFailed
from clonos.connectors.filesystem.output_files import files_of
from clonos.connectors.object_stores.urls import checked_url, is_url
from clonos.core.model.errors import ExtraMissing
from clonos.io.store.cloud_files import BACKOFF_MAX, CONNECTOR_RETRIES_MAX, RETRY_TIME_MAX, S3_REGION, CloudLocation

CONNECTOR: Final = "delta.table"
ATTEMPTS_MAX: Final = 20
"""Attempts of a transaction that others get ahead of."""

LOG: Final = "_delta_log"
STORES: Final = ("s3", "gs", "az")
UNSUPPORTED: Final = ("delta.constraints.", "delta.columnMapping.mode", "delta.enableChangeDataFeed")
"""Configuration of tables whose writers have to do more than to add files."""


class DeltaFile(NamedTuple):
    """Data file of a table. ``path`` is relative to the table."""

    path: str
    size_bytes: int
    rows: int
    partition: Mapping[str, str | None]


class TableLog:
    """Log of the table in a folder, or at the URL of one."""

    def __init__(self, path: str) -> None:
        self._files, self.path = files_of(path)
        self._options = storage_options(path) if is_url(path) else None

    def exists(self) -> bool:
        """Returns whether the folder has a Delta table."""
        return bool(self._files.names(f"{self.path}/{LOG}"))

    def create(self, schema: Any, partition_by: Sequence[str]) -> None:
        """Creates the table, unless another driver does so at this moment.

        Raises: InvalidConnector: Delta has no such types. OutputFailed: the disk fails.
        """
        deltalake = library()
        try:
            delta_schema = deltalake.Schema.from_arrow(schema)
        except Exception as error:  # noqa: BLE001  the library has no class for it
            problem = f"schema= has a type that Delta tables do not have: {error}"
            raise InvalidConnector(CONNECTOR, problem, "Correct it.") from None
        with self._errors("created"):
            deltalake.DeltaTable.create(
                self.path,
                delta_schema,
                mode="ignore",
                partition_by=list(partition_by),
                storage_options=self._options,
            )

    def schema(self) -> Any:
        """Returns the columns of the table as a ``pyarrow.Schema``."""
        import pyarrow  # Arrow takes long to load

        with self._errors("read"):
            found = pyarrow.schema(self._open().schema().to_arrow())
        return pyarrow.schema([field.remove_metadata() for field in found])

    def partition_columns(self) -> tuple[str, ...]:
        """Returns the columns by which the table is partitioned."""
        with self._errors("read"):
            return tuple(self._open().metadata().partition_columns)

    def check_writable(self) -> None:
        """Raises InvalidConnector if a writer of the table has to do more than to add files."""
        with self._errors("read"):
            found = self._open()
            settings = found.metadata().configuration
            rules = [field.name for field in found.schema().fields if _has_rule(field.metadata)]
        asked = [
            name
            for name, value in settings.items()
            if name.startswith(UNSUPPORTED) and value not in ("", "none", "false")
        ]
        if asked or rules:
            what = asked[0] if asked else f"a rule for the values of {rules[0]}"
            problem = f"the table {self.path} has {what}, which this sink would not keep"
            raise InvalidConnector(CONNECTOR, problem, "Write to a table without it, and copy from there with Spark.")

    def last_checkpoint(self, application: str) -> int | None:
        """Returns the checkpoint of the last transaction of a job; None without one."""
        with self._errors("read"):
            last: int | None = self._open().transaction_version(application)
            return last

    def paths(self) -> set[str]:
        """Returns the data files of the table as it is now, relative to it."""
        with self._errors("read"):
            return {os.path.relpath(uri, self.path) for uri in self._open().file_uris()}

    def add(self, application: str, checkpoint: int, files: Sequence[DeltaFile]) -> bool:
        """Adds files that are in the folder of the table; returns False if the checkpoint is in the log already.

        Raises: OutputFailed: the disk fails, or others are always ahead.
        """
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000  # noqa: TID251  the log of the table shows when a file was added
        actions = [
            AddAction(file.path, file.size_bytes, file.partition, now_ms, True, json.dumps({"numRecords": file.rows}))
            for file in files
        ]
        return self._commit(actions, application, checkpoint, lambda last: last is None or last < checkpoint)

    def withdraw(self, application: str, checkpoint: int, paths: Sequence[str]) -> None:
        """Removes files from the table, and sets the job back to a checkpoint, in one transaction.

        Raises: OutputCorrupt: another writer has replaced one of the files, for example by compacting the table.
        """
        from deltalake.transaction import RemoveAction

        if missing := sorted(set(paths) - self.paths()):
            actual = "it is not in the table any more: another writer has replaced or deleted it"
            raise OutputCorrupt(
                os.path.join(self.path, missing[0]), f"a file of a checkpoint after {checkpoint}", actual
            )
        now_ms = time.time_ns() // 1_000_000  # noqa: TID251  as above
        actions = [RemoveAction(path, True, now_ms) for path in paths]
        self._commit(actions, application, checkpoint, lambda last: last is not None and last > checkpoint)

    def _commit(self, actions: Sequence[Any], application: str, checkpoint: int, is_due: Any) -> bool:
        deltalake = library()
        transaction = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(application, checkpoint)])
        failed: Exception | None = None
        with self._errors("committed"):
            for _ in range(ATTEMPTS_MAX):
                found = self._open()
                if not is_due(found.transaction_version(application)):
                    return False
                columns = list(found.metadata().partition_columns)
                try:
                    found.create_write_transaction(
                        list(actions), "append", found.schema(), columns, commit_properties=transaction
                    )
                except deltalake.exceptions.CommitFailedError as error:
                    failed = error
                    continue  # another writer was ahead, perhaps a second driver of this job
                return True
        raise OutputFailed(self.path, "committed", f"other writers were ahead {ATTEMPTS_MAX} times: {failed}")

    def _open(self) -> Any:
        return library().DeltaTable(self.path, storage_options=self._options)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        error_class = library().exceptions.DeltaError
        try:
            yield
        except (error_class, OSError) as error:
            raise OutputFailed(self.path, doing, " ".join(str(error).split())) from error


def check_url(url: str, connector: str = CONNECTOR) -> None:
    """Raises InvalidConnector if tables cannot be at a URL."""
    scheme = checked_url(connector, url).scheme
    if scheme not in STORES:
        problem = f"tables at {scheme}:// are not supported"
        raise InvalidConnector(connector, problem, f"Use {', '.join(f'{each}://' for each in STORES)} or a path.")


def storage_options(url: str) -> dict[str, str]:
    """Returns the options of the library for a URL; credentials come from the environment, as for other files."""
    place = CloudLocation.parse(url)
    options = {
        "max_retries": str(CONNECTOR_RETRIES_MAX),
        "retry_timeout": f"{RETRY_TIME_MAX.seconds}s",
        "backoff_config.max_backoff": f"{BACKOFF_MAX.seconds}s",
    }
    if place.is_plain:
        options["allow_http"] = "true"
    if place.scheme == "s3":
        options["aws_region"] = place.region or S3_REGION
        return options | ({"aws_endpoint": place.endpoint} if place.endpoint else {})
    if place.scheme == "az":
        options["azure_storage_account_name"] = place.account
        return options | ({"azure_storage_endpoint": place.endpoint} if place.endpoint else {})
    return options | ({"google_base_url": place.endpoint} if place.endpoint else {})


def library(connector: str = CONNECTOR) -> Any:
    """Returns the package deltalake.

    Raises: ExtraMissing: it is not installed.
    """
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError:
        raise ExtraMissing(connector, "deltalake", "delta") from None
    return deltalake


def _has_rule(metadata: Mapping[str, Any]) -> bool:
    return any(name in metadata for name in ("delta.invariants", "delta.generationExpression", "delta.identity.start"))
