"""Attacks by plain TCP: connections that never finish a handshake, to ports of this machine only."""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Final

LOOPBACK: Final = "127.0.0.1"
AT_ONCE_MAX: Final = 300
"""Simultaneous connections of attacks other than a crowd."""

LONG_AT_ONCE: Final = 8
CLAIMED_BYTES: Final = 256 << 20
PORTION: Final = bytes(1 << 20)
NOT_NOW: Final = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)
SLOW_EVERY_S: Final = 0.5


def greeting(mechanism: bytes) -> bytes:
    """Returns the greeting of a ZMTP 3.1 client."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


HALVES: Final = (
    b"",
    b"\xff",
    greeting(b"CURVE")[:11],
    greeting(b"CURVE"),
    greeting(b"NULL"),
    greeting(b"CURVE") + b"\x04\xc8\x05HELLO" + bytes(50),
    greeting(b"CURVE") + b"\x04\xc8\x05HELLO" + bytes(194),
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    bytes(range(256)) * 4,
)


def half_handshakes(ports: list[int], until_s: float, count: Callable[[], None]) -> None:
    """Connects, sends the beginning of a handshake or garbage, and counts dropped connections."""
    beginnings = cycle(HALVES)
    _keep_open(ports, until_s, AT_ONCE_MAX, lambda: next(beginnings), count)


def crowd(ports: list[int], until_s: float, in_all: int, at_once: int, count: Callable[[], None]) -> None:
    """Opens ``in_all`` connections: half of them stay idle, half of them send their greeting byte by byte."""
    slow = greeting(b"CURVE")
    beginnings = cycle((b"", slow[:1]))
    _keep_open(ports, until_s, at_once, lambda: next(beginnings), count, in_all, slow)


def long_frames(ports: list[int], until_s: float, count: Callable[[], None]) -> None:
    """Announces frames of 256 MiB before authentication, sends as much as is accepted, and counts refusals."""
    threads = [
        threading.Thread(
            target=_long_frames, name=f"long frames {number}", args=(ports[number:] + ports[:number], until_s, count)
        )
        for number in range(min(LONG_AT_ONCE, len(ports)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _long_frames(ports: list[int], until_s: float, count: Callable[[], None]) -> None:
    for port in cycle(ports):
        if time.monotonic() >= until_s:
            return
        try:
            with socket.create_connection((LOOPBACK, port), timeout=1.0) as stranger:
                stranger.sendall(greeting(b"CURVE") + b"\x06" + struct.pack(">Q", CLAIMED_BYTES))
                for _ in range(CLAIMED_BYTES // len(PORTION)):
                    stranger.sendall(PORTION)
        except OSError:
            count()


def _keep_open(
    ports: list[int],
    until_s: float,
    at_once: int,
    begin: Callable[[], bytes],
    count: Callable[[], None],
    in_all: int = 0,
    slow: bytes = b"",
) -> None:
    """Keeps ``at_once`` connections open, replacing dropped ones, until ``in_all`` were made.

    Counts the connections made by a crowd, and those dropped in half a handshake.
    """
    sent: dict[socket.socket, int] = {}
    places: Iterator[int] = cycle(ports)
    made, slow_s = 0, 0.0
    with selectors.DefaultSelector() as selector:
        while time.monotonic() < until_s:
            while len(sent) < at_once and not 0 < in_all <= made and time.monotonic() < until_s:
                opened = _open(next(places), begin())
                if opened is None:
                    break
                selector.register(opened, selectors.EVENT_READ)
                sent[opened], made = 1, made + 1
                if in_all:
                    count()
            for key, _ in selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket), key
                if not _drain(key.fileobj):
                    selector.unregister(key.fileobj)
                    del sent[key.fileobj]
                    key.fileobj.close()
                    if not in_all:
                        count()
            if slow and time.monotonic() >= slow_s:
                slow_s = time.monotonic() + SLOW_EVERY_S
                for number, (stranger, at) in enumerate(list(sent.items())):
                    if number % 2 and at < len(slow):
                        _try_to_send(stranger, slow[at : at + 1])
                        sent[stranger] = at + 1
        for stranger in sent:
            stranger.close()


def _open(port: int, beginning: bytes) -> socket.socket | None:
    """Opens a connection without waiting; returns None if this machine has no free port or file."""
    try:
        made = socket.socket()
    except OSError as error:
        if error.errno in NOT_NOW:
            return None
        raise
    made.setblocking(False)
    code = made.connect_ex((LOOPBACK, port))
    if code not in (0, errno.EINPROGRESS):
        made.close()
        return None
    if beginning:  # on this machine it is connected at once, or waits to be accepted and then sends nothing
        _try_to_send(made, beginning)
    return made


def _try_to_send(stranger: socket.socket, data: bytes) -> None:
    try:
        stranger.send(data)
    except OSError:  # it was dropped, or the peer does not read
        return


def _drain(stranger: socket.socket) -> bool:
    """Reads what has come; returns whether the connection is open."""
    try:
        return bool(stranger.recv(1 << 16))
    except BlockingIOError:
        return True
    except OSError:
        return False
