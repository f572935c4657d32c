"""SFTP server of a folder on loopback: asyncssh's, in a thread, with a login by password and connections that break."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import asyncssh

USER, PASSWORD = "ann", "s3cret-of-sftp-7104"


class SftpServer:
    """Server of a folder, which is its root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.logins = 0
        self.breaks_left = 0
        """How many reads end the connection instead."""
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sftp", daemon=True)
        self._thread.start()
        self._listener: Any = self._call(self._listen())
        self.port: int = self._listener.get_port()
        self.address = f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        """The URL of a path below the folder."""
        return f"sftp://{USER}@{self.address}/{path}"

    @property
    def known_host(self) -> str:
        """The line of known_hosts that names the server."""
        return f"[127.0.0.1]:{self.port} {self._key.export_public_key().decode()}"

    def close_listener(self) -> None:
        """Takes no more connections."""
        self._loop.call_soon_threadsafe(self._listener.close)

    def close(self) -> None:
        """Ends the server and its connections."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _listen(self) -> Any:
        return await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[self._key], server_factory=lambda: _Login(self), sftp_factory=self._files
        )

    async def _close(self) -> None:
        self._listener.close()
        for connection in self.connections:
            connection.abort()
        await self._listener.wait_closed()
        for connection in self.connections:
            await connection.wait_closed()

    def _files(self, channel: Any) -> asyncssh.SFTPServer:
        return _Files(self, channel)


class _Login(asyncssh.SSHServer):
    def __init__(self, server: SftpServer) -> None:
        self._server = server

    def connection_made(self, *connections: asyncssh.SSHServerConnection) -> None:
        self._server.connections += connections

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        self._server.logins += 1
        return (username, password) == (USER, PASSWORD)


class _Files(asyncssh.SFTPServer):
    def __init__(self, server: SftpServer, channel: Any) -> None:
        super().__init__(channel, chroot=str(server.folder).encode())
        self._server, self._connection = server, channel.get_connection()

    def read(self, *arguments: Any) -> Any:
        if self._server.breaks_left:
            self._server.breaks_left -= 1
            self._connection.abort()
        return super().read(*arguments)
