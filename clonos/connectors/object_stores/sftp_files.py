"""Files at ``sftp://``: listed, and read from any byte on, in the version that was opened.

paramiko and not fsspec: fsspec's own SFTP is a thin layer over it that trusts every host key and hides the errors.
Hosts are known by ``known_hosts``; ``~/.ssh/config`` gives names, ports, users and keys, and netrc gives passwords.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.object_stores.netrc_logins import login_of
from clonos.connectors.object_stores.urls import WILDCARDS, ObjectUrl, split_url
from clonos.io.store.object_status import ObjectReplaced, ObjectStatus
from clonos.io.system import wall_clock

TIMEOUT_S: Final = 20.0
PAUSE_S: Final = 0.2
RETRIES_MAX: Final = 5
NANOSECONDS: Final = 1_000_000_000

Result = TypeVar("Result")


class SftpFile:
    """File of an SFTP server. Each open file has a connection of its own, which it renews when it breaks."""

    has_ranges = True

    def __init__(self, url: str) -> None:
        """Opens the file. Raises: OSError: there is none, or the server fails."""
        self._url = split_url(url)
        self._client: Any = None
        self._file: Any = None
        try:
            self.status: ObjectStatus = self._repeated(lambda: _status(self._opened().stat()))
        except BaseException:
            self.close()
            raise

    def read(self, begin: int, end: int) -> bytes:
        """Returns the bytes from ``begin`` to ``end`` of the version that was opened.

        Raises: ObjectReplaced: it has another version now. OSError: the server fails.
        """
        return self._repeated(lambda: self._read(begin, end))

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()
        self._client, self._file = None, None

    def _read(self, begin: int, end: int) -> bytes:
        file = self._opened()
        file.seek(begin)
        data: bytes = file.read(end - begin)
        if _status(file.stat()) != self.status:  # it was written in place
            raise ObjectReplaced(errno.ESTALE, "it has been replaced")
        return data

    def _opened(self) -> Any:
        if self._file is None:
            self._client = connected(self._url)
            self._file = self._client.open_sftp().open(f"/{self._url.key}", "rb")
        return self._file

    def _repeated(self, action: Callable[[], Result]) -> Result:
        for failures in range(1, RETRIES_MAX + 1):
            try:
                with readable_errors(self._url):
                    return action()
            except _Broken:
                self.close()
                wall_clock.sleep_s(PAUSE_S * 2**failures)
        with readable_errors(self._url):
            return action()


class _Broken(OSError):
    """The connection broke, or there was none."""


def find_sftp_files(connector: str, url: ObjectUrl, matches: Callable[[list[str], list[str]], bool]) -> list[str]:
    """Returns the URLs that match a URL: a file, the files of a folder that are not hidden, or those of a pattern.

    Raises: InvalidConnector: the server cannot be listed for a reason that a retry does not remove. OSError.
    """
    return _repeated(lambda: _find(connector, url, matches))


def sftp_statuses(url: ObjectUrl, folders: Sequence[str]) -> dict[str, ObjectStatus]:
    """Returns the status of each regular file in some folders of a server, by its key; links are left out.

    Raises: OSError: the server fails.
    """
    return _repeated(lambda: _statuses(url, folders))


def _statuses(url: ObjectUrl, folders: Sequence[str]) -> dict[str, ObjectStatus]:
    found: dict[str, ObjectStatus] = {}
    with readable_errors(url), _closed(connected(url)) as client:
        server = client.open_sftp()
        for folder in folders:
            with suppress(FileNotFoundError):
                files = [each for each in server.listdir_attr(f"/{folder}") if stat.S_ISREG(each.st_mode or 0)]
                found.update((f"{folder}/{each.filename}".strip("/"), _status(each)) for each in files)
    return found


def _repeated(action: Callable[[], Result]) -> Result:
    for failures in range(1, RETRIES_MAX + 1):
        try:
            return action()
        except _Broken:
            wall_clock.sleep_s(PAUSE_S * 2**failures)
    return action()


def _find(connector: str, url: ObjectUrl, matches: Callable[[list[str], list[str]], bool]) -> list[str]:
    try:
        with readable_errors(url), _closed(connected(url)) as client:
            server = client.open_sftp()
            names = url.key.split("/")
            if WILDCARDS.search(url.key):
                fixed = next(index for index, name in enumerate(names) if WILDCARDS.search(name))
                depth = None if "**" in names else len(names) - fixed
                below = _files_below(server, "/".join(names[:fixed]), depth)
                return sorted(url.of(key) for key in below if matches(key.split("/"), names))
            if not stat.S_ISDIR(server.stat(f"/{url.key}").st_mode or 0):
                return [url.of(url.key)]
            found = _files_below(server, url.key, 1)
            return sorted(url.of(key) for key in found if not key.rpartition("/")[2].startswith((".", "_")))
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise InvalidConnector(
            connector, f"{url.without_options}: {error.strerror}", "Then start the job again."
        ) from error


def _files_below(server: Any, folder: str, depth: int | None) -> Iterator[str]:
    folders = [(folder, 1)]
    while folders:
        folder, level = folders.pop()
        for each in server.listdir_attr(f"/{folder}"):
            key = f"{folder}/{each.filename}".strip("/")
            mode = each.st_mode or 0
            if stat.S_ISLNK(mode):
                mode = server.stat(f"/{key}").st_mode or 0
                if stat.S_ISDIR(mode):  # as it may lead back
                    continue
            if stat.S_ISREG(mode):
                yield key
            elif stat.S_ISDIR(mode) and (depth is None or level < depth):
                folders.append((key, level + 1))


def connected(url: ObjectUrl) -> Any:
    """Connects to the server of a URL.

    Raises: PermissionError: it is not the known server, or refuses the login. OSError: the library is missing. The
    errors of the library, which ``readable_errors`` makes clear.
    """
    paramiko = library()
    user, _, server = url.bucket.rpartition("@")
    host, _, port = server.partition(":")
    options = paramiko.SSHConfig()
    if os.path.exists(path := os.path.expanduser("~/.ssh/config")):
        options = paramiko.SSHConfig.from_path(path)
    known = options.lookup(host)
    login = login_of(host)
    client = paramiko.SSHClient()
    try:
        client.load_system_host_keys()
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        client.connect(
            known.get("hostname", host),
            int(port or known.get("port", 22)),
            username=user or (login.user if login else "") or known.get("user") or None,
            password=(login.password or None) if login else None,
            key_filename=known.get("identityfile"),
            timeout=TIMEOUT_S,
            banner_timeout=TIMEOUT_S,
            auth_timeout=TIMEOUT_S,
            channel_timeout=TIMEOUT_S,
        )
    except BaseException:
        client.close()
        raise
    return client


@contextmanager
def _closed(client: Any) -> Iterator[Any]:
    try:
        yield client
    finally:
        client.close()


@contextmanager
def readable_errors(url: ObjectUrl) -> Iterator[None]:
    """Makes errors of the library those of the operating system, with a reason.

    Raises: PermissionError: the server is not known, or refuses the login. OSError: the connection breaks, or another
    error of the server.
    """
    paramiko = library()
    server = url.bucket.rpartition("@")[2]
    try:
        yield
    except paramiko.BadHostKeyException:
        reason = f"the host key of {server} is not the one in known_hosts"
        raise PermissionError(errno.EACCES, reason) from None
    except paramiko.AuthenticationException:
        reason = f"{server} refuses the login: give a key in ~/.ssh, an SSH agent or a password in a netrc file"
        raise PermissionError(errno.EACCES, reason) from None
    except paramiko.SSHException as error:
        if "known_hosts" in str(error):
            reason = f"{server} is not in known_hosts: check its key, and add it with ssh-keyscan"
            raise PermissionError(errno.EACCES, reason) from None
        raise _Broken(errno.EIO, f"the connection to {server} failed: {error}") from None
    except EOFError:
        raise _Broken(errno.EIO, f"{server} has ended the connection") from None
    except (FileNotFoundError, PermissionError, ObjectReplaced):
        raise
    except OSError as error:
        raise _Broken(errno.EIO, f"{server}: {error.strerror or error}") from None


def library() -> Any:
    """Returns paramiko. Raises: OSError: it is not installed."""
    try:
        import paramiko
    except ImportError:
        raise OSError(errno.ENOTSUP, "the package paramiko is missing: pip install 'clonos[sftp]'") from None
    return paramiko


def _status(found: Any) -> ObjectStatus:
    if not stat.S_ISREG(found.st_mode or 0):
        raise PermissionError(errno.EACCES, "it is not a regular file")
    return ObjectStatus(found.st_size, (found.st_mtime or 0) * NANOSECONDS, "")
