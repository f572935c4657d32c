"""Payloads to other hosts, compressed where it pays: one LZ4 block each, the length of its content before it."""

from __future__ import annotations

import struct

import lz4.block

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.options import Compression

IS_COMPRESSED = 1 << 7
"""Flag of a frame whose payload is compressed."""

CONTENT_BYTES_MAX = 8 << 20
"""Longer payloads are sent as they are: compressing 8 MiB takes some 10 ms of the I/O thread. A receiver refuses a
payload that claims to be longer before it decompresses anything."""

COMPRESSED_BYTES_MIN = 512
"""Shorter payloads are sent as they are."""

INCOMPRESSIBLE_SKIPPED = 15
"""Payloads sent as they are after one that became hardly smaller."""

_LENGTH = struct.Struct("<I")


def applies_between(compress: Compression, own_address: str, peer_address: str) -> bool:
    """Whether payloads from one data address to another are compressed; addresses are ``tcp://host:port`` or ipc."""
    if compress is not Compression.REMOTE:
        return compress is Compression.ALWAYS
    own_host, peer_host = _host_of(own_address), _host_of(peer_address)
    return bool(own_host and peer_host) and own_host != peer_host


def _host_of(address: str) -> str:
    return address.removeprefix("tcp://").rpartition(":")[0] if address.startswith("tcp://") else ""


class Compressor:
    """Compresses payloads to one peer."""

    __slots__ = ("_skipped",)

    def __init__(self) -> None:
        self._skipped = 0  # payloads that are still to be sent as they are

    def compress(self, payload: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        """What to send, and the flags that say so."""
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
    """The content of a compressed payload; memory is taken for as much as it claims to be.

    Raises: MessageMalformed, naming ``peer``.
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
