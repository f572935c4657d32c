"""Encoded values in entries of state, which the function that redacts a record cannot be given."""

from __future__ import annotations

from typing import Any, Final

from clonos.core.model.errors import ClonosError
from clonos.core.values import decode_value
from clonos.operators.aggregates.distinct import PLAIN
from clonos.operators.state.state_spec import Encoding, StateSpec

Entry = tuple[Any, Any]

_IN_PLACE: Final[dict[Encoding, Any]] = {Encoding.OUTCOME: None, Encoding.RESUMED: {}}
"""What an entry has in the place of what is taken out."""


def taken_out(spec: StateSpec, entries: list[Entry]) -> tuple[list[bytes], list[Entry]]:
    """Returns the encoded outcomes of calls in entries, and the entries without what is encoded."""
    if spec.encoding not in _IN_PLACE:
        return [], entries
    found = [_with(entry, spec.encoded_place, _IN_PLACE[spec.encoding]) for entry in entries]
    is_outcome = spec.encoding is Encoding.OUTCOME
    return [_at(entry, spec.encoded_place) for entry in entries] if is_outcome else [], found


def put_back(spec: StateSpec, entries: list[Entry], outcomes: list[bytes]) -> list[Entry]:
    """Returns entries with their outcomes."""
    return [_with(entry, spec.encoded_place, each) for entry, each in zip(entries, outcomes, strict=True)]


def has_identities(value: Any) -> bool:
    """Returns whether something in a value is a key of a dict that is an encoded value, as of aggregates of distinct
    values."""
    if isinstance(value, dict):
        return any(map(_is_identity, value)) or any(map(has_identities, value.values()))
    return isinstance(value, list | tuple) and any(map(has_identities, value))


def _is_identity(key: Any) -> bool:
    if type(key) is not bytes:
        return False
    try:
        return type(decode_value(key)) not in PLAIN
    except ClonosError:
        return False


def _at(value: Any, place: tuple[int, ...]) -> Any:
    for index in place:
        value = value[index]
    return value


def _with(value: Any, place: tuple[int, ...], new: Any) -> Any:
    """Returns a tuple with another item in a place."""
    if not place:
        return new
    first, *rest = place
    return (*value[:first], _with(value[first], tuple(rest), new), *value[first + 1 :])
