"""A TCP proxy within a slot's process that cuts all its connections when the process gets SIGUSR1.

It stands between the slot and every peer that it sends to, the coordinator too. Nothing dies by a cut.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
from typing import Any

_proxies: dict[str, Proxy] = {}


class Proxy:
    """Forwards what comes to ``address`` on to its target, in a thread that lives as long as its process."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._partner: dict[socket.socket, socket.socket] = {}
        self._reported, self._report = os.pipe()
        threading.Thread(target=self._run, name=f"proxy to {target}", daemon=True).start()

    def cut(self) -> None:
        """Breaks all connections; new ones are let through."""
        os.write(self._report, b"x")

    def passes(self, data_bytes: int) -> None:
        """Called with the number of bytes that were forwarded, in one direction or the other."""

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._reported, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self._listener:
                    self._accept(selector)
                elif key.fileobj == self._reported:
                    os.read(self._reported, 1)
                    for end in list(self._partner):
                        self._close(selector, end)
                elif key.fileobj in self._partner:
                    self._forward(selector, key.fileobj)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near = self._listener.accept()[0]
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._partner[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _forward(self, selector: selectors.BaseSelector, end: Any) -> None:
        try:
            data = end.recv(1 << 16)
            self.passes(len(data))
            self._partner[end].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._close(selector, end)

    def _close(self, selector: selectors.BaseSelector, end: socket.socket) -> None:
        other = self._partner.pop(end, None)
        if other is None:
            return
        self._partner.pop(other, None)
        for closed in (end, other):
            selector.unregister(closed)
            closed.close()


def _cut_all(*_: object) -> None:
    for proxy in _proxies.values():
        proxy.cut()


def through_proxy(_peer: int, address: str) -> str:
    """The address rewriter; called in the slot's main thread."""
    if not _proxies:
        signal.signal(signal.SIGUSR1, _cut_all)
    if address not in _proxies:
        _proxies[address] = Proxy(address)
    return _proxies[address].address
