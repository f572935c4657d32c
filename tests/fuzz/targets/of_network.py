"""Targets: replies of HTTP services and of a namenode, and lines of a socket. Loopback only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import urllib3.util.connection

from clonos.connectors import sockets
from clonos.connectors.postgres.pgoutput import ReplicationMalformed, decode, decode_frame
from clonos.connectors.sockets import SocketFailed, SocketLineMalformed
from clonos.io.http.http_client import HttpClient, HttpLimits, HttpRequest
from clonos.io.http.http_errors import HttpError
from clonos.io.store.web_hdfs import WebHdfs
from tests.fuzz.target import Target, of_bytes, of_json

LOOPBACK: Final = "127.0.0.1"
WAIT_S: Final = 5.0
LIMITS: Final = HttpLimits(
    timeout_s=WAIT_S,
    connect_timeout_s=WAIT_S,
    retries_max=0,
    redirects_max=3,
    body_bytes_max=5_000,
    is_repeatable=False,
)
REPLIES: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\n yo\r\n0\r\nTrailer: a\r\n\r\n",
    b"HTTP/1.0 404 Not Found\r\n\r\nnothing here",
    b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/x\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 25\r\n\r\n"
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcbH\xcd\xc9\xc9\x07\x00\x86\xa6\x106\x05\x00\x00\x00",
)
WORDS: Final = (
    *(
        b"\r\n",
        b"\n",
        b": ",
        b"HTTP/1.1 200 OK\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
    ),
    *(
        b"Location: ftp://x/\r\n",
        b"Location: http://[::1\r\n",
        b"Location: http://127.0.0.1:99999/\r\n",
        b"Location: //\r\n",
    ),
    *(
        b"Location: http://a..b/\r\n",
        b"Location: http://%zz/\r\n",
        b"charset=punycode",
        b"Transfer-Encoding: chunked\r\n",
    ),
    *(
        b"Content-Encoding: deflate\r\n",
        b"ffffffffffffffff\r\n",
        b"Retry-After: \xb2\r\n",
        b"\x00",
        b"\xff",
        b"A" * 70_000,
    ),
)
NAMENODE: Final = (
    b'{"FileStatuses": {"FileStatus": [{"pathSuffix": "a", "type": "FILE", "length": 3}]}}',
    b'{"FileStatus": {"type": "FILE", "length": 3, "owner": "me"}}',
    b'{"RemoteException": {"exception": "FileNotFoundException", "javaClassName": "x", "message": "gone"}}',
)


CHANGES: Final = (
    b"B" + bytes(20),
    b"C" + bytes(25),
    b"R\0\0@\6public\0orders\0d\0\2\1id\0\0\0\0\x17\xff\xff\xff\xff\0item\0\0\0\0\x19\xff\xff\xff\xff",
    b"I\0\0@\6N\0\3t\0\0\0\5sevennu",
    b"U\0\0@\6K\0\1t\0\0\0\0017N\0\1t\0\0\0\0018",
    b"D\0\0@\6O\0\1n",
    b"T\0\0\0\1\0\0\0@\6",
    b"k" + bytes(17),
)


def targets() -> list[Target]:
    """Targets of this file."""
    lines = [b"one\ntwo\r\n", "straße\n".encode() * 9, b"x" * 300]
    return [
        Target("http replies", of_bytes(REPLIES, WORDS), _ask, (HttpError,)),
        Target("namenodes", of_json(NAMENODE, (*WORDS, b"..", b'"DIRECTORY"', b"[" * 5_000)), _list, (OSError,)),
        Target("changes of PostgreSQL", of_bytes(CHANGES), _decode_changes, (ReplicationMalformed,)),
        Target("lines of a socket", of_bytes(lines, WORDS), _feed, (SocketFailed, SocketLineMalformed)),
    ]


def _decode_changes(data: bytes) -> object:
    return decode_frame(data) if data[:1] in b"kw" else decode(data)


@contextmanager
def _served(answer: bytes, speaks_first: bool = False) -> Iterator[int]:
    """A port where each connection gets the same bytes and is closed. Meanwhile urllib3 connects nowhere else: a reply
    may send a client anywhere."""
    listening = socket.create_server((LOOPBACK, 0), backlog=64)
    port: int = listening.getsockname()[1]
    thread = threading.Thread(target=_serve, args=(listening, answer, speaks_first), name="fuzz server", daemon=True)
    usual = urllib3.util.connection.create_connection

    def connect(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:
        if address != (LOOPBACK, port):
            raise ConnectionRefusedError(f"{address} is not the server of the fuzzer")
        return usual(address, *arguments, **options)

    urllib3.util.connection.create_connection = connect
    thread.start()
    try:
        yield port
    finally:
        urllib3.util.connection.create_connection = usual
        listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        thread.join()
        listening.close()


def _serve(listening: socket.socket, answer: bytes, speaks_first: bool) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            try:
                connection.settimeout(WAIT_S)
                if not speaks_first:
                    connection.recv(65_536)  # what is left unread would reset the connection
                connection.sendall(answer)
            except OSError:
                continue


def _ask(data: bytes) -> None:
    client = HttpClient()
    with _served(data) as port:
        try:
            client.send(HttpRequest("GET", f"http://{LOOPBACK}:{port}/"), LIMITS)
        finally:
            client.close()


def _list(data: bytes) -> None:
    head = b"HTTP/1.1 200 OK" if data[:1] != b'"' else b"HTTP/1.1 404 Not Found"
    answer = head + b"\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(data) + data
    with _served(answer) as port:
        for path in WebHdfs(f"{LOOPBACK}:{port}").files_below("/store/chain"):
            assert path.startswith("/store/chain/"), path
            assert "/../" not in path, path


def _feed(data: bytes) -> None:
    with _served(data, speaks_first=True) as port:
        description = sockets.lines(LOOPBACK, port, line_bytes_max=1_000)
        feed = description.connect(0)
        try:
            while (lines := feed.receive(1_000)) is not None:
                description.decode(description.cut(lines))
        finally:
            feed.close()
