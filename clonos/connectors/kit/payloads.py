"""Decoding of the payloads of messages: what cannot be decoded is set aside, with its message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from clonos.connectors.kit.external_system import PayloadMalformed
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed
from clonos.operators.row_errors import RecordError

REASON_CHARACTERS_MAX: Final = 300


def decoded(
    decode: Callable[[Any], Any], payloads: Sequence[Any], described: Callable[[int], tuple[Any, str]]
) -> list[Any]:
    """Returns the values of payloads. That of None, the payload of a tombstone, is None.

    ``described`` returns what is set aside in place of a payload, by its index, and where it is in words.
    """
    try:
        return [None if payload is None else decode(payload) for payload in payloads]
    except RecordError:  # each is tried alone
        return PartlyMalformed(
            _decoded_alone(decode, payload, described, index) for index, payload in enumerate(payloads)
        )


def _decoded_alone(
    decode: Callable[[Any], Any], payload: Any, described: Callable[[int], tuple[Any, str]], index: int
) -> Any:
    try:
        return None if payload is None else decode(payload)
    except RecordError as error:
        message, where = described(index)
        reason = error.set_aside_text().rstrip(".")[:REASON_CHARACTERS_MAX]
        return MalformedRecord(message, PayloadMalformed(where, reason))
