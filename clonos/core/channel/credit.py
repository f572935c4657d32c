"""Cost of elements and messages, as credit counts it (protocol 4)."""

from __future__ import annotations

MESSAGE_OVERHEAD_BYTES = 64
"""What a batch costs of its credit besides its elements."""


ELEMENT_OVERHEAD_BYTES = 16
"""What an element costs of the credit besides its bytes: in memory even the least of them is an object."""


def cost_bytes(count: int, payload_bytes: int) -> int:
    """Returns the bytes of credit that a batch takes."""
    return payload_bytes + count * ELEMENT_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES
