"""What elements and messages cost, as credit counts."""

from __future__ import annotations

MESSAGE_OVERHEAD_BYTES = 64
"""What a batch costs of its credit besides its elements."""


ELEMENT_OVERHEAD_BYTES = 16
"""What an element costs of the credit besides its bytes: in memory even the least of them is an object."""


def cost_bytes(count: int, payload_bytes: int) -> int:
    """What a batch costs of the credit of its channel."""
    return payload_bytes + count * ELEMENT_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES
