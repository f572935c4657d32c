"""Tables of an Iceberg catalog: columns, and the snapshots of one job, each of which adds the files of a checkpoint.

The commit of a checkpoint adds a snapshot, and sets a property of the table, whose name has the id of the job, to the
number of the checkpoint. So the catalog itself says whether a checkpoint is in the table, also after a crash, and when
the snapshot has expired. A commit is refused if another one was ahead, and then looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from clonos.connectors.connector_errors import InvalidConnector, OutputCorrupt, OutputFailed
from clonos.connectors.iceberg.iceberg_errors import TableReplaced, reading_table
from clonos.connectors.iceberg.prepared_files import PreparedFile, data_file_of
from clonos.connectors.secrets import Secret, masked
from clonos.core.model.errors import ClonosError, ExtraMissing
from clonos.operators.lineage import Dataset, dataset_at

CONNECTOR: Final = "iceberg.table"
READ: Final = "iceberg.read"
CHANGES: Final = "iceberg.changes"
ATTEMPTS_MAX: Final = 20
"""Attempts of a commit that others get ahead of."""

JOB: Final = "clonos.job"
CHECKPOINT: Final = "clonos.checkpoint"
PREVIOUS: Final = "clonos.previous"
"""What the summary of a snapshot says: its job and checkpoint, and the checkpoint of the job before it."""

NOTHING: Final = -1
"""Number of a job that has committed nothing."""

NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
"""Setting of the library, which otherwise repeats a commit without a look whether another driver has made it."""

Catalog = str | Mapping[str, str | Secret]


class IcebergTable:
    """Table of a catalog, which each call loads as it is now."""

    def __init__(self, connector: str, catalog: Catalog, name: str) -> None:
        self._connector, self._given, self.name = connector, catalog, name
        self._catalog: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the connection."""
        return {**vars(self), "_catalog": None}

    @property
    def place(self) -> str:
        """Returns the name of the table and that of its catalog, without passwords."""
        if isinstance(self._given, str):
            return f"{self._given}.{self.name}"
        where = self._given.get("uri", self._given.get("warehouse", ""))
        return f"{masked(str(where))} {self.name}".strip()

    @property
    def dataset(self) -> Dataset:
        """Name of the table in records of lineage: in the namespace of the catalog, by its URL or its name."""
        if isinstance(self._given, str):
            return Dataset(f"iceberg://{self._given}", self.name)
        where = self._given.get("uri", self._given.get("warehouse", ""))
        if isinstance(where, Secret) or "://" not in where:
            return Dataset(f"iceberg://{masked(str(where))}", self.name)
        return Dataset("/".join(dataset_at(where)).rstrip("/"), self.name)

    def catalog(self) -> Any:
        """Returns the catalog.

        Raises: InvalidConnector: it is not known. ExtraMissing: pyiceberg is not installed.
        """
        if self._catalog is None:
            load = library(self._connector).load_catalog
            try:
                if isinstance(self._given, str):
                    self._catalog = load(self._given)
                else:
                    shown = {key: _revealed(value) for key, value in self._given.items()}
                    self._catalog = load(shown.pop("name", None), **shown)
            except ClonosError:
                raise
            except Exception as error:  # noqa: BLE001  those of the catalog's client have no common class
                problem = f"the catalog of {self.place} cannot be used: {_line(error)}"
                raise InvalidConnector(self._connector, problem, "Correct catalog=.") from None
        return self._catalog

    def exists(self) -> bool:
        """Returns whether the catalog has the table."""
        with self._errors("read"):
            return bool(self.catalog().table_exists(self.name))

    def load(self) -> Any:
        """Returns the table as it is now.

        Raises: OutputFailed: the catalog fails.
        """
        with self._errors("read"):
            return self.catalog().load_table(self.name)

    def found(self, identity: str | None = None) -> Any:
        """Returns the table as it is now, for a source.

        Raises: InvalidConnector: there is none. TableReplaced: it is not that of ``identity``. InputUnreadable.
        """
        with reading_table(self._connector, self.place):
            if identity is None and not self.catalog().table_exists(self.name):
                problem = f"there is no table {self.name}"
                raise InvalidConnector(self._connector, problem, "Correct its name or catalog=.")
            table = self.catalog().load_table(self.name)
        if identity is not None and str(table.metadata.table_uuid) != identity:
            raise TableReplaced(self.place, identity, str(table.metadata.table_uuid))
        return table

    def create(self, schema: Any, partition_by: Sequence[str]) -> None:
        """Creates the table and its namespace, unless another driver does so at this moment.

        Raises: InvalidConnector: Iceberg has no such types. OutputFailed: the catalog fails.
        """
        exceptions = library(self._connector).exceptions
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

        catalog = self.catalog()
        try:
            catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            with catalog.create_table_transaction(self.name, schema) as begun, begun.update_spec() as spec:
                for column in partition_by:
                    spec.add_identity(column)
        except exceptions.TableAlreadyExistsError:
            return
        except (TypeError, ValueError, exceptions.ValidationError, UnsupportedPyArrowTypeException) as error:
            problem = f"schema= is not one of an Iceberg table: {_line(error)}"
            raise InvalidConnector(self._connector, problem, "Correct it.") from None
        except Exception as error:
            raise OutputFailed(self.place, "created", _line(error)) from error

    def last_checkpoint(self, job_id: str) -> int | None:
        """Returns the checkpoint of the last commit of a job; None if the job has not claimed the table."""
        found = self.load().properties.get(_key(job_id))
        return None if found is None else int(found)

    def note(self, job_id: str) -> None:
        """Notes that a job writes to the table.

        Raises: OutputFailed: the catalog fails.
        """
        self._commit(lambda found: _key(job_id) not in found.properties, _setting(job_id, NOTHING))

    def release(self, job_id: str) -> None:
        """Removes the note of a job that has committed nothing."""
        self._commit(
            lambda found: found.properties.get(_key(job_id)) == str(NOTHING),
            lambda _, transaction: transaction.remove_properties(_key(job_id)),
        )

    def add(self, job_id: str, checkpoint: int, files: Sequence[PreparedFile]) -> bool:
        """Adds files; returns False if the checkpoint is in the table already.

        Raises: OutputFailed: the catalog or the store fails, a file is missing, or others are always ahead.
        """

        def append(found: Any, transaction: Any) -> None:
            if {file.table for file in files} != {str(found.metadata.table_uuid)}:  # its fields have other numbers
                raise OutputFailed(self.place, "committed", "it was dropped and made again since it was written")
            specs = {file.spec for file in files}
            if specs != {found.metadata.default_spec_id}:
                raise OutputFailed(self.place, "committed", "it is partitioned in another way than when it was written")
            for file in files:
                actual = len(found.io.new_input(file.path))
                if actual != file.size_bytes:
                    raise OutputFailed(file.path, "committed", f"it has {actual} bytes, and not {file.size_bytes}")
            previous = found.properties.get(_key(job_id), str(NOTHING))
            notes = {JOB: job_id, CHECKPOINT: str(checkpoint), PREVIOUS: previous}
            with transaction.update_snapshot(snapshot_properties=notes).fast_append() as snapshot:
                for file in files:
                    snapshot.append_data_file(data_file_of(file))
            transaction.set_properties({_key(job_id): str(checkpoint)})

        return self._commit(lambda found: int(found.properties.get(_key(job_id), NOTHING)) < checkpoint, append)

    def withdraw(self, job_id: str, checkpoint: int) -> list[int]:
        """Removes the files of later checkpoints of a job, in one commit; returns these, latest first.

        Raises: OutputCorrupt: a snapshot has expired, or another writer has replaced one of the files.
        """
        withdrawn: list[int] = []

        def remove(found: Any, transaction: Any) -> None:
            withdrawn[:], files, left = self._later(found, job_id, checkpoint)
            now = {task.file.file_path: task.file for task in found.scan().plan_files()}
            if missing := sorted(files - now.keys()):
                actual = "it is not in the table any more: another writer has replaced or deleted it"
                raise OutputCorrupt(missing[0], f"a file of a checkpoint after {checkpoint}", actual)
            notes = {JOB: job_id, CHECKPOINT: str(left)}
            with transaction.update_snapshot(snapshot_properties=notes).overwrite() as snapshot:
                for path in sorted(files):
                    snapshot.delete_data_file(now[path])
            transaction.set_properties({_key(job_id): str(left)})

        self._commit(lambda found: int(found.properties.get(_key(job_id), NOTHING)) > checkpoint, remove)
        return withdrawn

    def _later(self, found: Any, job_id: str, checkpoint: int) -> tuple[list[int], set[str], int]:
        """Returns the checkpoints of a job after ``checkpoint``, their files, and the checkpoint before them."""
        at, numbers, files = int(found.properties[_key(job_id)]), list[int](), set[str]()
        for snapshot in _lineage(found):
            notes = {} if snapshot.summary is None else snapshot.summary.additional_properties
            if at <= checkpoint:
                break
            if notes.get(JOB) != job_id or notes.get(CHECKPOINT) != str(at) or PREVIOUS not in notes:
                continue
            for manifest in snapshot.manifests(found.io):
                if manifest.added_snapshot_id == snapshot.snapshot_id:
                    entries = manifest.fetch_manifest_entry(found.io)
                    files.update(entry.data_file.file_path for entry in entries)
            numbers.append(at)
            at = int(notes[PREVIOUS])
        if at > checkpoint:
            actual = "it has expired, so its files are not known"
            raise OutputCorrupt(self.place, f"the snapshot of checkpoint {at}", actual)
        return numbers, files, at

    def _commit(self, is_due: Callable[[Any], bool], stage: Callable[[Any, Any], Any]) -> bool:
        """Commits what ``stage`` adds to a transaction, unless it is not due any more."""
        exceptions = library(self._connector).exceptions
        failed: Exception | None = None
        with self._errors("committed"):
            for _ in range(ATTEMPTS_MAX):
                found = self.catalog().load_table(self.name)
                if not is_due(found):
                    return False
                found.metadata.properties.update(NO_RETRIES)  # of this copy alone
                transaction = found.transaction()
                stage(found, transaction)
                try:
                    transaction.commit_transaction()
                except (exceptions.CommitFailedException, exceptions.CommitStateUnknownException) as error:
                    failed = error
                    continue  # another writer was ahead, perhaps a second driver of this job
                return True
        raise OutputFailed(self.place, "committed", f"other writers were ahead {ATTEMPTS_MAX} times: {failed}")

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except ClonosError:
            raise
        except Exception as error:
            raise OutputFailed(self.place, doing, _line(error)) from error


def checked_name(connector: str, name: str) -> str:
    """Returns the name of a table.

    Raises: InvalidConnector: it has no namespace.
    """
    if not all(name.split(".")) or "." not in name:
        raise InvalidConnector(connector, f"the table is {name!r:.80}", 'Give "namespace.table".')
    return name


def library(connector: str) -> Any:
    """Returns the modules of pyiceberg that the connectors use.

    Raises: ExtraMissing: it is not installed.
    """
    try:
        import pyiceberg.catalog
        import pyiceberg.exceptions
    except ImportError:
        raise ExtraMissing(connector, "pyiceberg", "iceberg") from None
    return _Library(pyiceberg.catalog.load_catalog, pyiceberg.exceptions)


class _Library:
    def __init__(self, load_catalog: Any, exceptions: Any) -> None:
        self.load_catalog, self.exceptions = load_catalog, exceptions


def _lineage(found: Any) -> Iterator[Any]:
    """Yields the snapshots that led to the present one, latest first."""
    snapshot = found.metadata.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else found.metadata.snapshot_by_id(parent)


def _key(job_id: str) -> str:
    return f"clonos.checkpoint.{job_id}"


def _setting(job_id: str, number: int) -> Callable[[Any, Any], Any]:
    return lambda _, transaction: transaction.set_properties({_key(job_id): str(number)})


def _revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
