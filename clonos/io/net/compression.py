"""Compression of payloads to other hosts: one LZ4 block each, preceded by the length of its content."""

from __future__ import annotations

import struct

import lz4.block

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.options import Compression

IS_COMPRESSED = 1 << 7
"""Flag of a frame with a compressed payload."""

CONTENT_BYTES_MAX = 8 << 20
"""Longest payload that is compressed, in bytes: compressing 8 MiB takes about 10 ms of the I/O thread. A receiver
refuses a longer claimed length before it decompresses."""

COMPRESSED_BYTES_MIN = 512
"""Shortest payload that is compressed, in bytes."""

INCOMPRESSIBLE_SKIPPED = 15
"""Payloads that skip compression after a payload that shrank by less than 1/16."""

_LENGTH = struct.Struct("<I")


def applies_between(compress: Compression, own_address: str, peer_address: str) -> bool:
    """Returns True when payloads between two data addresses (``tcp://host:port`` or ipc) are to be compressed."""
    if compress is not Compression.REMOTE:
        return compress is Compression.ALWAYS
    own_host, peer_host = _host_of(own_address), _host_of(peer_address)
    return bool(own_host and peer_host) and own_host != peer_host


def _host_of(address: str) -> str:
    return address.removeprefix("tcp://").rpartition(":")[0] if address.startswith("tcp://") else ""


class Compressor:
    """Compressor of the payloads to one peer."""

    __slots__ = ("_skipped",)

    def __init__(self) -> None:
        self._skipped = 0  # payloads that still skip compression

    def compress(self, payload: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        """Returns the payload to send, and the flag ``IS_COMPRESSED`` if it is compressed."""
        if not COMPRESSED_BYTES_MIN <= len(payload) <= CONTENT_BYTES_MAX:
            return payload, 0
        if self._skipped:
            self._skipped -= 1
            return payload, 0
        compressed: bytes = lz4.block.compress(payload)
        if len(compressed) > len(payload) // 16 * 15:
            self._skipped = INCOMPRESSIBLE_SKIPPED
            return payload, 0
        return compressed, IS_COMPRESSED


def decompress(payload: bytes | memoryview, peer: str) -> bytes:
    """Returns the content of a compressed payload of ``peer``.

    Raises: MessageMalformed when it is damaged, or claims more than ``CONTENT_BYTES_MAX`` bytes.
    """
    if len(payload) < _LENGTH.size:
        raise MessageMalformed(peer, f"a compressed payload of {len(payload)} bytes has no length")
    (content_bytes,) = _LENGTH.unpack_from(payload)
    if content_bytes > CONTENT_BYTES_MAX:
        limit = f"the limit is {CONTENT_BYTES_MAX}"
        raise MessageMalformed(peer, f"a compressed payload claims {content_bytes} bytes of content, {limit}")
    try:
        content: bytes = lz4.block.decompress(payload)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise MessageMalformed(peer, f"a compressed payload cannot be decompressed: {error}") from None
    return content
