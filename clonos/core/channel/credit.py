"""Cost of elements and messages, as credit counts it (protocol 4)."""

from __future__ import annotations

MESSAGE_OVERHEAD_BYTES = 64
"""Bytes of credit that a batch takes besides its elements."""


ELEMENT_OVERHEAD_BYTES = 16
"""Bytes of credit that an element takes besides its payload, because in memory each is an object."""


def cost_bytes(count: int, payload_bytes: int) -> int:
    """Returns the bytes of credit that a batch takes."""
    return payload_bytes + count * ELEMENT_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES
