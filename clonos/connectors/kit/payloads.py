"""Decoding of the payloads of messages: what cannot be decoded is set aside, with its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from clonos.connectors.kit.external_system import PayloadMalformed
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed
from clonos.operators.row_errors import RecordError

REASON_CHARACTERS_MAX: Final = 300

Described = Callable[[int], tuple[Any, str]]
"""Returns what is set aside in place of a payload, by its index, and where it is in words."""


def decoded(decode: Callable[[Any], Any], payloads: Sequence[Any], described: Described) -> list[Any]:
    """Returns the values of payloads. That of None, the payload of a tombstone, is None."""
    try:
        return [None if payload is None else decode(payload) for payload in payloads]
    except RecordError:  # each is tried alone
        return PartlyMalformed(
            _decoded_alone(decode, payload, described, index) for index, payload in enumerate(payloads)
        )


def _decoded_alone(decode: Callable[[Any], Any], payload: Any, described: Described, index: int) -> Any:
    try:
        return None if payload is None else decode(payload)
    except RecordError as error:
        return malformed(described(index), error.set_aside_text())


def malformed(described: tuple[Any, str], reason: str) -> MalformedRecord:
    """Returns what is set aside in place of a payload."""
    message, where = described
    return MalformedRecord(message, PayloadMalformed(where, reason.rstrip(".")[:REASON_CHARACTERS_MAX]))
