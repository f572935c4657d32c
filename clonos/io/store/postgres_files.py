"""Metadata of a checkpoint store in PostgreSQL, and its data objects in a folder or a bucket.

``postgresql://user@host/database/name?objects=URL``: the rows of the store ``name`` are in the table ``clonos_store``.
Create-if-absent is ``INSERT ... ON CONFLICT DO NOTHING``. Each call has a connection of its own, because there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from clonos.core.model.errors import ExtraMissing
from clonos.io.store.object_files import ObjectFiles, ObjectMissing, StoreFailed, StoreUnsupported

SCHEMES: Final = ("postgresql", "postgres")
OBJECTS_FOLDER: Final = "objects"
CONNECT_TIMEOUT_S: Final = "10"
CALL_TIMEOUT: Final = "30s"

_CREATE: Final = "CREATE TABLE IF NOT EXISTS clonos_store (name text PRIMARY KEY, data bytea NOT NULL)"
_CREATION_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('clonos_store'))"
_READ: Final = "SELECT data FROM clonos_store WHERE name = %s"
_EXISTS: Final = "SELECT 1 FROM clonos_store WHERE name = %s"
_WRITE: Final = "INSERT INTO clonos_store VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET data = EXCLUDED.data"
_INSERT: Final = "INSERT INTO clonos_store VALUES (%s, %s) ON CONFLICT DO NOTHING"
_DELETE: Final = "DELETE FROM clonos_store WHERE name = %s"
_LIST: Final = 'SELECT name FROM clonos_store WHERE starts_with(name, %s) ORDER BY name COLLATE "C"'
# An acknowledged row must outlast a crash of the server.
_DURABLE: Final = """
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""


class PostgresFiles:
    """Objects by name: those below ``objects/`` are in other files, all others are rows."""

    def __init__(self, url: str, open_files: Callable[[str], ObjectFiles]) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        if parts.password is not None or "password" in options:
            shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
            raise StoreUnsupported(shown, "a password in its URL would be shown: put it into PGPASSWORD or ~/.pgpass")
        objects = options.pop(OBJECTS_FOLDER, "")
        database, _, self._root = parts.path.strip("/").partition("/")
        if not database or not self._root:
            raise StoreUnsupported(url, "it needs a database and a name: postgresql://user@host/database/name")
        if not objects or urlsplit(objects).scheme in SCHEMES:
            reason = "it keeps metadata only: name a folder or a bucket for the data with ?objects=/path or s3://..."
            raise StoreUnsupported(url, reason)
        self.url = url
        self.objects = open_files(objects)
        self.objects_url = objects
        options.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
        self._dsn = urlunsplit(parts._replace(path=f"/{database}", query=urlencode(options)))
        self._has_table = False

    def read(self, name: str) -> bytes:
        """Returns all bytes of an object. Raises: ObjectMissing when it does not exist."""
        if _is_data(name):
            return self.objects.read(name)
        found = self._run(f"read {name}", _READ, name)
        if not found:
            raise ObjectMissing(self.url, name)
        return bytes(found[0][0])

    def write(self, name: str, data: bytes) -> None:
        """Creates or replaces an object."""
        if _is_data(name):
            self.objects.write(name, data)
        else:
            self._run(f"write {name}", _WRITE, name, data)

    def write_parts(self, name: str, parts: Iterable[bytes]) -> None:
        """Creates or replaces an object from parts."""
        if _is_data(name):
            self.objects.write_parts(name, parts)
        else:
            self.write(name, b"".join(parts))

    def create_if_absent(self, name: str, data: bytes) -> bool:
        """Inserts an object unless it exists. Raises: StoreFailed when the outcome is unknown."""
        if _is_data(name):
            return self.objects.create_if_absent(name, data)
        return bool(self._run(f"create {name}", f"{_INSERT} RETURNING name", name, data))

    def exists(self, name: str) -> bool:
        """Returns True when the object exists."""
        return self.objects.exists(name) if _is_data(name) else bool(self._run(f"look for {name}", _EXISTS, name))

    def delete(self, name: str) -> None:
        """Removes an object, if it exists."""
        if _is_data(name):
            self.objects.delete(name)
        else:
            self._run(f"delete {name}", _DELETE, name)

    def list(self, folder: str) -> list[str]:
        """Returns the names of all objects below a folder, sorted."""
        if _is_data(folder):
            return self.objects.list(folder)
        skipped = len(self._root) + 1
        return [name[skipped:] for (name,) in self._run(f"list {folder}", _LIST, f"{folder}/")]

    def unfinished(self, folder: str) -> Sequence[str]:
        """Returns the names of the temporary files of data objects; a row is there or not."""
        return self.objects.unfinished(folder) if _is_data(folder) else []

    def remove_empty_folders(self) -> None:
        """Removes empty folders of the data objects, where there are folders."""
        remove = getattr(self.objects, "remove_empty_folders", None)
        if remove is not None:
            remove()

    def _run(self, action: str, sql: str, name: str, *values: bytes) -> Sequence[Any]:
        """Runs a statement in a transaction of its own, and returns its rows.

        Raises: StoreFailed: the database fails, or the outcome is unknown. ExtraMissing: psycopg is not installed.
        """
        try:
            psycopg = import_module("psycopg")
        except ImportError:
            raise ExtraMissing("a checkpoint store in PostgreSQL", "psycopg", "postgres") from None
        try:
            with psycopg.connect(self._dsn, autocommit=True, application_name="clonos store") as connection:
                connection.execute(f"SET statement_timeout = '{CALL_TIMEOUT}'")
                connection.execute(_DURABLE)
                if not self._has_table:
                    self._create_table(connection)
                cursor = connection.execute(sql, [f"{self._root}/{name}", *values])
                found: Sequence[Any] = cursor.fetchall() if cursor.description else []
                return found
        except psycopg.Error as error:
            raise StoreFailed(self.url, action, " ".join(str(error).split())) from None

    def _create_table(self, connection: Any) -> None:
        with connection.transaction():  # one after the other: PostgreSQL fails some that create a table at one moment
            connection.execute(_CREATION_LOCK)
            connection.execute(_CREATE)
        self._has_table = True


def _is_data(name: str) -> bool:
    return name.partition("/")[0] == OBJECTS_FOLDER
