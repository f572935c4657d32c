"""Who may connect: CURVE keys, one pair per life of a slot, and the gatekeeper that knows the list of allowed keys.

The gatekeeper answers the ZAP questions of the sockets of one context. It is asked in the thread that polls it.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq
from zmq.utils import z85

ZAP_ADDRESS = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"clonos"


class KeyPair(NamedTuple):
    """A CURVE key pair in Z85, 40 bytes each."""

    public: bytes
    secret: bytes


NO_KEYS = KeyPair(b"", b"")
"""Sockets in a folder that only the user may enter, or on a network that is trusted by option."""


def new_keys() -> KeyPair:
    """A pair for the life that begins."""
    return KeyPair(*zmq.curve_keypair())


class Gatekeeper:
    """Answers which keys may connect; the socket's ``User-Id`` is the key that did."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(ZAP_ADDRESS)
        self.admits_strangers = False  # the coordinator lets them in to register; it believes nothing else from them
        self._allowed: dict[bytes, int] = {}

    def allow(self, public_key: bytes) -> None:
        """This key may connect from now on."""
        self._allowed[public_key] = self._allowed.get(public_key, 0) + 1

    def forbid(self, public_key: bytes) -> None:
        """Takes one ``allow`` back. What is connected stays so: its messages are dropped by sender."""
        if (uses := self._allowed.pop(public_key, 0)) > 1:
            self._allowed[public_key] = uses - 1

    def answer(self) -> None:
        """Answers all questions that wait."""
        while True:
            try:
                question = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            version, request_id, *_, mechanism, credential = question
            public_key = z85.encode(credential) if mechanism == b"CURVE" and len(credential) == 32 else b""
            if public_key and (self.admits_strangers or public_key in self._allowed):
                status, text = b"200", b"OK"
            else:
                status, text = b"400", b"this key is not in the present view"
            self.socket.send_multipart([version, request_id, status, text, public_key, b""])

    def close(self) -> None:
        """Ends the service."""
        self.socket.close(0)
