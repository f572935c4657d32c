"""HTTP server of a folder on loopback, with ranges or without, whose replies break, wait or are refused on demand."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from xxhash import xxh3_64_hexdigest


class FileServer:
    """Server of the files of a folder. What a test sets here holds for the requests that follow."""

    def __init__(self, folder: Path, certificate: tuple[Path, Path] | None = None) -> None:
        self.folder = folder
        self.has_ranges = True
        self.has_versions = True
        """Whether replies have ETag and Last-Modified."""
        self.has_lengths = True
        self.login = ""
        """The header that requests need."""
        self.moved_to = ""
        """The address to which requests are redirected."""
        self.bytes_until_break = 0
        """Bytes after which a reply ends, 0 for never."""
        self.breaks_left = 0
        self.is_silent = False
        """Whether replies end after their head."""
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """What the next requests get: a status and headers."""
        self.refuses_always = 0
        self.seen: Counter[tuple[str, str]] = Counter()
        """Requests by path and range."""
        self.logins: list[str | None] = []
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.files = self
        self._scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="files", daemon=True)
        self._thread.start()
        self.address = f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def url(self, name: str) -> str:
        """The URL of a file."""
        return f"{self.address}/{name}"

    def requests_for(self, name: str) -> int:
        """How many requests a file had."""
        return sum(count for (path, _), count in self.seen.items() if path == f"/{name}")

    def close(self) -> None:
        """Ends the server and its connections."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    files: FileServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that end a connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: _Server

    def log_message(self, format: str, *arguments: Any) -> None:
        """Writes nothing."""

    def do_GET(self) -> None:
        """Sends a file, or a part of it."""
        files, path = self.server.files, urlsplit(self.path).path
        with files.lock:
            files.seen[path, self.headers.get("Range", "")] += 1
            files.logins.append(self.headers.get("Authorization"))
            refusal = files.refusals.pop(0) if files.refusals else (files.refuses_always, {})
        file = files.folder / unquote(path)[1:]
        if files.moved_to:
            refusal = 302, {"Location": files.moved_to + path}
        elif files.login and self.headers.get("Authorization") != files.login:
            refusal = 401, {"WWW-Authenticate": "Basic"}
        elif not file.is_file():
            refusal = 404, {}
        if refusal[0]:
            self._send(refusal[0], {**refusal[1], "Content-Length": "0"})
            return
        self._send_file(files, file.read_bytes(), file.stat().st_mtime)

    def _send_file(self, files: FileServer, data: bytes, modified: float) -> None:
        status, headers, whole = 200, {}, len(data)
        if files.has_versions:
            headers = {"ETag": f'"{xxh3_64_hexdigest(data)}"', "Last-Modified": formatdate(modified, usegmt=True)}
        if files.has_ranges and (wanted := self.headers.get("Range")):
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            if first >= whole:
                self._send(416, headers | {"Content-Range": f"bytes */{whole}", "Content-Length": "0"})
                return
            data = data[first : last + 1]
            status, headers["Content-Range"] = 206, f"bytes {first}-{first + len(data) - 1}/{whole}"
        headers |= {"Content-Length": str(len(data))} if files.has_lengths else {"Connection": "close"}
        self._send(status, headers)
        with files.lock:
            breaks = 0 < files.bytes_until_break < len(data) and files.breaks_left > 0
            files.breaks_left -= breaks
        if not files.is_silent:
            self.wfile.write(data[: files.bytes_until_break] if breaks else data)
        self.close_connection = self.close_connection or breaks or files.is_silent or not files.has_lengths

    def _send(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
