"""CURVE keys, one pair per slot process, and the authenticator that admits the allowed keys.

The authenticator answers the ZAP requests of the sockets of one context, in the thread that polls it.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq
from zmq.utils import z85

ZAP_ADDRESS = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"clonos"


class KeyPair(NamedTuple):
    """CURVE key pair in Z85, 40 bytes each."""

    public: bytes
    secret: bytes


NO_KEYS = KeyPair(b"", b"")
"""Keys of unencrypted sockets: ipc in a folder that only the user may enter, or a network that an option declares
trusted."""


def new_keys() -> KeyPair:
    """Returns a new key pair, for one process."""
    return KeyPair(*zmq.curve_keypair())


class Authenticator:
    """Authenticator of the keys that may connect; the ``User-Id`` of a connection is its key."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(ZAP_ADDRESS)
        self.admits_unknown = False  # the coordinator admits them, but accepts only a registration from them
        self._allowed: dict[bytes, int] = {}

    def allow(self, public_key: bytes) -> None:
        """Admits a key. Calls are counted."""
        self._allowed[public_key] = self._allowed.get(public_key, 0) + 1

    def forbid(self, public_key: bytes) -> None:
        """Reverses one ``allow``. Open connections stay open: their messages are dropped by sender."""
        if (uses := self._allowed.pop(public_key, 0)) > 1:
            self._allowed[public_key] = uses - 1

    def answer(self) -> None:
        """Answers all pending ZAP requests."""
        while True:
            try:
                question = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            version, request_id, *_, mechanism, credential = question
            public_key = z85.encode(credential) if mechanism == b"CURVE" and len(credential) == 32 else b""
            if public_key and (self.admits_unknown or public_key in self._allowed):
                status, text = b"200", b"OK"
            else:
                status, text = b"400", b"this key is not in the current view"
            self.socket.send_multipart([version, request_id, status, text, public_key, b""])

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close(0)
