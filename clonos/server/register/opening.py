"""Opening of a register by its address: a path of SQLite, or the URL of a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from clonos.server.register.postgres_database import PostgresDatabase
from clonos.server.register.register import JobRegister, RegisterFailed
from clonos.server.register.sqlite_database import SqliteDatabase

SCHEMES: Final = ("postgresql", "postgres")
DEFAULT_FILE: Final = "register.sqlite"


def open_register(address: str | None, folder: Path) -> JobRegister:
    """Opens a register. ``address``: None for a file in the server's ``folder``.

    Raises: RegisterFailed. RegisterInUse. FormatUnknown. ExtraMissing.
    """
    scheme = urlsplit(address or "").scheme
    if address is None or not scheme:
        file = folder / DEFAULT_FILE if address is None else Path(address)
        return JobRegister(SqliteDatabase(file), str(file))
    if scheme not in SCHEMES:
        raise RegisterFailed(address, "it is neither a path nor a URL of PostgreSQL, postgresql://user@host/database")
    database = PostgresDatabase(address)
    try:
        return JobRegister(
            database, urlsplit(address)._replace(netloc=urlsplit(address).netloc.rpartition("@")[2]).geturl()
        )
    except BaseException:
        database.close()
        raise
