"""Client of HDFS by its RPC protocol, through hdfs-native: no JVM, no libhdfs. Errors are ``OSError``.

High availability and Kerberos come from the files in ``HADOOP_CONF_DIR``, the user from ``HADOOP_USER_NAME``. The
library waits for a silent namenode without a limit, so each call runs in its own thread, which is abandoned after a
timeout; the next call uses a new connection. (The library's asyncio client panics when a connection is refused.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from clonos.io.store.object_status import HadoopStatus

if TYPE_CHECKING:
    from hdfs_native import Client, FileStatus

ONE_NAMENODE: Final = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "1000",
}
"""Settings for a single namenode: short retries, because there is no failover and the caller retries. A name service,
which has no port, is configured by its files."""

CALL_S_MAX: Final = 60.0
BYTES_PER_S_MIN: Final = 1 << 20
"""Throughput in bytes per second that extends the deadline of a call by its content."""

Result = TypeVar("Result")


class HadoopRpc:
    """Client of the namenode at ``host:port``, or of a name service from the configuration."""

    def __init__(self, address: str, *, call_s_max: float = CALL_S_MAX) -> None:
        self._address, self._call_s_max = address, call_s_max
        self._client = self._connect()

    def _connect(self) -> Client:
        from hdfs_native import Client

        try:
            return Client(f"hdfs://{self._address}", ONE_NAMENODE if ":" in self._address else None)
        except RuntimeError as error:
            raise OSError(str(error)) from None

    def read(self, path: str) -> bytes:
        """Returns all bytes of a file."""
        length_bytes = self._run(lambda client: client.get_file_info(path)).length
        return self._run(lambda client: client.read(path).read(), length_bytes)

    def read_range(self, path: str, begin: int, end: int) -> bytes:
        """Returns the bytes of a file from ``begin`` to ``end``."""
        return self._run(lambda client: client.read(path).read_range(begin, end - begin), end - begin)

    def create(self, path: str, pieces: Iterator[bytes], size_bytes: int) -> None:
        """Creates a file and the folders above it."""
        from hdfs_native import WriteOptions

        def create(client: Client) -> None:
            with client.create(path, WriteOptions(create_parent=True, overwrite=False)) as file:
                for piece in pieces:
                    file.write(piece)

        self._run(create, size_bytes)

    def make_folder(self, path: str) -> None:
        """Creates a folder and those above it, unless they exist."""
        self._run(lambda client: client.mkdirs(path, create_parent=True))

    def rename(self, path: str, target: str, replaces: bool) -> None:
        """Renames a file by the namenode's ``rename2``."""
        self._run(lambda client: client.rename(path, target, replaces))

    def delete(self, path: str) -> None:
        """Removes a file or an empty folder, if it exists."""
        self._run(lambda client: client.delete(path))

    def status(self, path: str) -> HadoopStatus:
        """Returns the status of a file or a folder."""
        found = self._run(lambda client: client.get_file_info(path))
        return _status(found)

    def is_file(self, path: str) -> bool:
        """Returns True when the file exists."""
        try:
            return not self.status(path).is_folder
        except FileNotFoundError:
            return False

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """Returns the names in a folder, and whether each is a folder."""
        try:
            found = self._run(lambda client: list(client.list_status(folder)))
        except FileNotFoundError:
            return []
        return [(each.path.rpartition("/")[2], each.isdir) for each in found]

    def files_below(self, folder: str) -> dict[str, HadoopStatus]:
        """Returns the status of all files below a folder, by their paths."""
        try:
            found = self._run(lambda client: list(client.list_status(folder, True)))
        except FileNotFoundError:
            return {}
        return {each.path: _status(each) for each in found if not each.isdir}

    def _run(self, call: Callable[[Client], Result], content_bytes: int = 0) -> Result:
        outcome: Future[Result] = Future()
        client = self._client

        def run() -> None:
            try:
                outcome.set_result(call(client))
            except BaseException as error:  # noqa: BLE001 raised again in the caller's thread
                outcome.set_exception(error)

        Thread(target=run, name="hdfs call", daemon=True).start()
        try:
            return outcome.result(self._call_s_max + content_bytes / BYTES_PER_S_MIN)
        except TimeoutError:
            self._client = self._connect()
            raise TimeoutError("the namenode or a datanode does not answer") from None
        except RuntimeError as error:  # an error for which the library has no Python class
            raise OSError(str(error)) from None


def _status(found: FileStatus) -> HadoopStatus:
    return HadoopStatus(found.isdir, found.length, found.modification_time)
