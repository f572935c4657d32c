"""``postgres.changes``: the changes of tables by logical replication, with a replication slot as their keeper.

The server keeps the changes after the slot's position. A restart reads them again from the mark of its checkpoint, and
the job lets go of what no restart reads again. With ``snapshot=True`` the rows that the tables had when the slot was
created come first (``table_copies``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, TypedDict, Unpack, overload

import msgspec

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.attempts import Attempts
from clonos.connectors.kit.external_system import InputLost, SystemRefused, SystemUnreachable
from clonos.connectors.kit.history import LATER_ADVICE, HistoryThenLive, LateCut, parts_of
from clonos.connectors.kit.splits import decoded_split
from clonos.connectors.postgres.change_stream import Change, ChangePosition, ChangeStream, LogEnd
from clonos.connectors.postgres.pgoutput import ReplicationMalformed
from clonos.connectors.postgres.postgres_address import POSTGRESQL, PostgresAddress, identifier
from clonos.connectors.postgres.table_copies import SYSTEM, TableCopies
from clonos.connectors.secrets import Secret
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.connector_contract import PendingInput
from clonos.operators.lineage import Dataset

CONNECTOR: Final = "postgres.changes"
INVALIDATED: Final = "was invalidated, because it kept more than max_slot_wal_keep_size"
NAME: Final = re.compile(r"[a-z0-9_]{1,63}")


class ChangesLost(InputLost):
    """The replication slot does not have the changes after the job's checkpoint."""

    slot: str
    reason: str

    def loss(self) -> str:
        """See ``InputLost``."""
        return f"changes after the checkpoint are lost: the replication slot {self.slot} {self.reason}"

    def __str__(self) -> str:
        return f"{self.loss()}. Start the job afresh with --overwrite, and let no other reader use its slot."


class _Stream(msgspec.Struct, frozen=True, array_like=True):
    """Split: the slot, its publication, where the job began, and the identifier of the server's data."""

    format: int
    slot: str
    publication: str
    lsn: int
    system: int


_decoder: Final = msgspec.msgpack.Decoder(_Stream)
_mark_decoder: Final = msgspec.msgpack.Decoder(ChangePosition)


class PostgresChanges:
    """Source of the changes of a publication, read by one task. It does not end: the job runs until it is stopped."""

    routes_malformed = True
    is_bounded = False

    def __init__(
        self, server: PostgresAddress, tables: tuple[str, ...], publication: str, slot: str, as_text: frozenset[str]
    ) -> None:
        if not NAME.fullmatch(slot):
            raise InvalidConnector(CONNECTOR, f"slot is {slot!r}", "Use lower-case letters, digits and _, at most 63.")
        if bool(tables) == bool(publication):
            advice = "Give table=, from which a publication is created, or the publication= that you have created."
            raise InvalidConnector(CONNECTOR, "one of table and publication is needed", advice)
        self.tables = tuple(identifier(CONNECTOR, table) for table in tables)
        self._table_names = tables
        self.as_text = as_text
        self.server, self.slot, self.publication = server, slot, publication or slot
        if "'" in self.publication or '"' in self.publication or "," in self.publication:
            raise InvalidConnector(CONNECTOR, f"publication is {publication!r}", "Give the name of one publication.")
        self.copies: TableCopies | None = None  # which are dropped when no restart reads them
        self.acknowledged: dict[bytes, int] = {}  # by split, filled in the process that reads it

    def __repr__(self) -> str:
        return f"postgres.changes({self.server!r}, slot={self.slot!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.server.datasets(self._table_names)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "acknowledged": {}}

    def splits(self, parallelism: int) -> list[bytes]:
        """Creates the publication and the slot unless they exist; returns the slot as one split.

        Raises: SystemRefused: the server does not do so. SystemUnreachable.
        """
        self.create_publication()
        connection = self.server.connect(autocommit=True)
        try:
            lsn = self._create_slot(connection)
            (system,) = connection.execute(f"SELECT {SYSTEM}").fetchone()
        except self.server.library().Error as error:
            raise self.refusal(error) from None
        finally:
            connection.close()
        return [msgspec.msgpack.encode(_Stream(1, self.slot, self.publication, lsn, system))]

    def create_publication(self) -> None:
        """Creates the publication unless it exists.

        Raises: SystemRefused: there is none and no tables are named, or it has other tables. SystemUnreachable.
        """
        connection = self.server.connect(autocommit=True)
        try:
            self._publish(connection)
        except self.server.library().Error as error:
            raise self.refusal(error) from None
        finally:
            connection.close()

    def check_cut(self) -> None:
        """See ``kit.history.CutSource``: a slot that the start creates would begin after the history has ended.

        Raises: LateCut, SystemRefused, SystemUnreachable.
        """
        connection = self.server.connect(autocommit=True)
        try:
            find = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s"
            found = connection.execute(find, [self.slot]).fetchone()
        finally:
            connection.close()
        if found is None:
            reason = f"there is no replication slot {self.slot} yet, which has to be older than the end of the history"
            raise LateCut(repr(self), reason, "Create it before you take the history")
        if found[0] == "lost":
            raise LateCut(repr(self), ChangesLost(self.slot, INVALIDATED).loss(), LATER_ADVICE)

    def check_split(self, split: bytes) -> None:
        """Checks that a split from the store names this slot.

        Raises: SplitMalformed: it does not. InvalidConnector: it names another slot.
        """
        self.stream_of(split)

    def stream_of(self, split: bytes) -> _Stream:
        """Decodes a split.

        Raises: SplitMalformed: it is none. InvalidConnector: it names another slot.
        """
        found = decoded_split(_decoder, "replication slot", split)
        if (found.slot, found.publication) != (self.slot, self.publication):
            advice = "Resume with these, or start afresh with --overwrite."
            began = f"slot={found.slot!r} and the publication {found.publication!r}"
            raise InvalidConnector(CONNECTOR, f"the job was first started with {began}", advice)
        return found

    def reader(self) -> ChangesReader:
        """Creates a reader, in the slot."""
        return ChangesReader(self)

    def acknowledge(self, split: bytes, mark: bytes) -> None:
        """Notes up to where the server may drop changes; the reader tells it with its next read."""
        self.acknowledged[split] = _mark_decoder.decode(mark).lsn

    def refusal(self, error: Exception) -> Exception:
        """Returns the error of the library for one of psycopg."""
        text = self.server.clean(" ".join(str(error).split()))
        if isinstance(error, (self.server.library().OperationalError, self.server.library().InterfaceError)):
            return SystemUnreachable(POSTGRESQL, self.server.place, "reading changes", text)
        advice = "Changes need wal_level=logical, a user with REPLICATION who owns or may read the tables, and a slot."
        return SystemRefused(POSTGRESQL, self.server.place, "the job", text, advice)

    def _publish(self, connection: Any) -> None:
        find = "SELECT oid FROM pg_publication WHERE pubname = %s"
        if found := connection.execute(find, [self.publication]).fetchone():
            if self.tables:
                self._check_publication(connection, found[0])
            return
        if not self.tables:
            advice = f"Run CREATE PUBLICATION {self.publication} FOR TABLE ..., or give table=."
            raise SystemRefused(
                POSTGRESQL, self.server.place, "the job", f"there is no publication {self.publication}", advice
            )
        name = identifier(CONNECTOR, self.publication)
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLE {', '.join(self.tables)}")

    def _check_publication(self, connection: Any, publication: int) -> None:
        """Raises: SystemRefused: a publication that exists already has other tables."""
        compare = (
            "SELECT array(SELECT prrelid FROM pg_publication_rel WHERE prpubid = %s ORDER BY 1)"
            " = array(SELECT DISTINCT CAST(CAST(name AS regclass) AS oid) FROM unnest(%s::text[]) AS name ORDER BY 1)"
        )
        if connection.execute(compare, [publication, list(self.tables)]).fetchone() != (True,):
            name, tables = identifier(CONNECTOR, self.publication), ", ".join(self.tables)
            advice = f"Run ALTER PUBLICATION {name} SET TABLE {tables}, or choose another slot=."
            reason = f"the publication {self.publication} exists, but not for {tables} alone"
            raise SystemRefused(POSTGRESQL, self.server.place, "the job", reason, advice)

    def _create_slot(self, connection: Any) -> int:
        """Returns the position of the slot."""
        find = "SELECT confirmed_flush_lsn - '0/0', plugin, database = current_database() FROM pg_replication_slots"
        found = connection.execute(f"{find} WHERE slot_name = %s", [self.slot]).fetchone()
        if found is None:
            create = "SELECT lsn - '0/0' FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
            return int(connection.execute(create, [self.slot]).fetchone()[0])
        lsn, plugin, is_here = found
        if plugin != "pgoutput" or not is_here:
            reason = f"the slot {self.slot} exists, for another {'plugin' if is_here else 'database'}"
            raise SystemRefused(POSTGRESQL, self.server.place, "the job", reason, "Choose another slot=.")
        return int(lsn)


class SnapshotThenChanges(HistoryThenLive):
    """Source of the rows that the tables of a publication had, and then of its changes."""

    def __init__(self, changes: PostgresChanges) -> None:
        self._changes = changes
        self._changes.copies = TableCopies(changes.server, changes.slot, changes.publication, changes.as_text)
        super().__init__(changes.copies, changes)

    def __repr__(self) -> str:
        return f"postgres.changes({self._changes.server!r}, slot={self._changes.slot!r}, snapshot=True)"

    def splits(self, parallelism: int) -> list[bytes]:
        """Creates the publication, the slot and the copies; returns the copies, and the slot as the last split.

        Raises: SystemRefused: the server does not do so, or the slot is not the job's. SystemUnreachable.
        """
        copies, changes = self.sources
        changes.create_publication()
        copied = copies.splits(parallelism)  # and the slot, which is there from now on
        return parts_of(0, copied) + parts_of(1, changes.splits(parallelism))


class ChangesReader:
    """Reader of a slot. A mark is a ``ChangePosition``."""

    def __init__(self, source: PostgresChanges) -> None:
        self._source = source
        self._split = b""
        self._position = ChangePosition(0, 0)
        self._stream: ChangeStream | None = None
        self._acknowledged_lsn = 0
        self._has_copies = source.copies is not None
        self._first_lsn = 0
        self._log_end = LogEnd(source.server)

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens the slot at a mark.

        Raises: SplitMalformed: the store's split or mark cannot be used.
        """
        self._split = split
        self._first_lsn = self._source.stream_of(split).lsn
        self._position = ChangePosition(self._first_lsn, 0)
        if mark is not None:
            self._position = decoded_split(_mark_decoder, "position in a replication slot", mark)

    def read(self, records_max: int, wait_s: float = 0.0) -> Sequence[Change]:
        """Returns changes, [] if there are none at the moment. A lost connection is opened again for about 15 s.

        Raises: ChangesLost: the slot is ahead of the mark. SystemRefused, SystemUnreachable.
        """
        driver = self._source.server.library()
        for attempt in Attempts():
            try:
                if self._stream is None:
                    self._stream = self._opened()
                self._report_position(self._stream)
                changes = self._stream.take(records_max, wait_s)
                self._position = self._stream.position
                self._log_end.look()
            except (driver.Error, SystemUnreachable, ReplicationMalformed) as error:
                self.close()
                problem = self._source.refusal(error) if isinstance(error, driver.Error) else error
                if attempt.is_last or (isinstance(problem, SystemRefused) and not _is_in_use(error)):
                    raise problem from None
                self._end_other_reader(_is_in_use(error))
            else:
                return changes
        raise AssertionError("the last attempt returns or raises")

    def mark(self) -> bytes:
        """Returns the position after the last change that was read."""
        return msgspec.msgpack.encode(self._position)

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``: the bytes of the server's log after the last transaction that was
        read, with those of other tables; None before the first read."""
        end_lsn, lsn = self._log_end.lsn, self._position.lsn
        return None if end_lsn is None else PendingInput(None, max(0, end_lsn - lsn), max(0, lsn - self._first_lsn))

    def close(self) -> None:
        """Closes the connections."""
        self._log_end.close()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _opened(self) -> ChangeStream:
        source, slot = self._source, self._source.slot
        connection = source.server.connect(autocommit=True)
        try:
            find = (
                f"SELECT confirmed_flush_lsn - '0/0', wal_status, pg_current_wal_flush_lsn() - '0/0', {SYSTEM}"
                " FROM pg_replication_slots WHERE slot_name = %s"
            )
            found = connection.execute(find, [slot]).fetchone()
        finally:
            connection.close()
        if found is None:
            raise ChangesLost(slot, "does not exist any more")
        lsn, status, end_lsn, system = found
        if system != source.stream_of(self._split).system:
            raise ChangesLost(slot, "is that of another server of this name, whose positions differ")
        if status == "lost":
            raise ChangesLost(slot, INVALIDATED)
        if lsn > self._position.lsn:
            raise ChangesLost(slot, "is ahead of it")
        return ChangeStream(source.server, slot, source.publication, self._position, int(end_lsn), source.as_text)

    def _report_position(self, stream: ChangeStream) -> None:
        """Tells the server what it may drop, if that is more than it was told."""
        lsn = self._source.acknowledged.get(self._split, 0)
        if lsn > self._acknowledged_lsn:
            stream.acknowledge(lsn)
            self._acknowledged_lsn = lsn
            if self._has_copies and self._source.copies is not None:
                self._has_copies = not self._source.copies.drop(self._source.stream_of(self._split).lsn)

    def _end_other_reader(self, is_in_use: bool) -> None:
        """Ends the connection of an earlier incarnation, which may be a process that was believed dead."""
        if not is_in_use:
            return
        try:
            connection = self._source.server.connect(autocommit=True)
        except (SystemUnreachable, SystemRefused):
            return
        end = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active"
        try:
            connection.execute(end, [self._source.slot])
        except self._source.server.library().Error:
            return  # the next attempt shows whether it is still in use
        finally:
            connection.close()


def _is_in_use(error: Exception) -> bool:
    return getattr(error, "sqlstate", None) == "55006"


class ChangesOptions(TypedDict, total=False):
    """Options of ``changes`` that its overloads share."""

    publication: str | None
    as_text: Sequence[str]
    password: str | Secret | None


@overload
def changes(
    dsn: str | Secret,
    table: str | Sequence[str] | None = None,
    *,
    slot: str,
    snapshot: Literal[False] = False,
    **options: Unpack[ChangesOptions],
) -> PostgresChanges: ...


@overload
def changes(
    dsn: str | Secret,
    table: str | Sequence[str] | None = None,
    *,
    slot: str,
    snapshot: Literal[True],
    **options: Unpack[ChangesOptions],
) -> SnapshotThenChanges: ...


@explains_calls
def changes(
    dsn: str | Secret,
    table: str | Sequence[str] | None = None,
    *,
    slot: str,
    publication: str | None = None,
    snapshot: bool = False,
    as_text: Sequence[str] = (),
    password: str | Secret | None = None,
) -> PostgresChanges | SnapshotThenChanges:
    """Source of the changes of tables, as ``postgres.Change``, from the moment on at which the slot was created.

    With ``snapshot=True`` the rows that the tables had at this moment come first, as changes of the kind "read".

    One task reads them, in the order of commits. The server keeps its log back to the slot's position until the job has
    two checkpoints after it: drop the slot when the job is gone for good.

    Args:
        dsn: the database, as ``postgresql://user@host/database`` or ``host=... dbname=...``; or a secret with that.
        table: a table or several, with their schemas before a dot, for which a publication is created.
        slot: name of the replication slot, created at the first start. It belongs to this job alone.
        publication: an existing publication, in place of ``table``.
        snapshot: True for the rows of the tables and then their changes. The first start copies the tables in the
            database, into a schema of the slot's name.
        as_text: names of columns that come as the text of the server, such as dates that may be ``infinity``.
        password: the password, better a secret than a text.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(postgres.changes("postgresql://ann@db/shop", "orders", slot="shop_orders"))
    """
    tables = () if table is None else (table,) if isinstance(table, str) else tuple(table)
    if isinstance(as_text, str):
        raise InvalidConnector(CONNECTOR, f"as_text is {as_text!r}", "Give a list of names of columns.")
    server = PostgresAddress(CONNECTOR, dsn, password)
    source = PostgresChanges(server, tables, publication or "", slot, frozenset(as_text))
    return SnapshotThenChanges(source) if snapshot else source
