"""Which vectors a column of pgvector holds as they are: ``vector`` has numbers of 32 bits, ``halfvec`` of 16.

The extension rounds the digits of other numbers without a word.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Final

from clonos.connectors.json_text import parse_json
from clonos.connectors.tables.exact_columns import NotStored
from clonos.kernels.record_batch import RecordBatch

_TYPE: Final = re.compile(r"(?:.+\.)?(vector|halfvec)(?:\((\d+)\))?")
_FORMATS: Final = {"vector": "f", "halfvec": "e"}
_BITS: Final = {"f": 32, "e": 16}
_NUMBERS: Final = frozenset({float, int})

DIMENSIONS_MAX: Final = 16_000
NUMBERS_MAX: Final = 1 << 26
"""Numbers of a column that are written at once as text, whose bytes Arrow counts with 31 bits."""


@dataclass(frozen=True, slots=True)
class VectorType:
    """Type of a column. ``dimensions`` is None if it takes vectors of any."""

    type_name: str
    code: str
    dimensions: int | None

    def check(self, rounds: bool, value: Any) -> None:
        """Checks a list, a tuple, or a text such as ``[1, 2.5]``.

        ``rounds``: numbers may become the nearest ones of the column.

        Raises: NotStored.
        """
        numbers = self._numbers(value)
        found = len(numbers)
        if found != self.dimensions and not (self.dimensions is None and 1 <= found <= DIMENSIONS_MAX):
            raise self._refuse(value, f": it has {found} numbers")
        if _NUMBERS.issuperset(map(type, numbers)) and self._are_held(numbers, rounds):
            return
        place, problem = next((at, why) for at, number in enumerate(numbers) if (why := self._problem(number, rounds)))
        raise self._refuse(value, f": its number at index {place} {problem}")

    def are_held(self, column: Any) -> bool:
        """Returns whether a column holds all lists of a ``pyarrow.Array``; False if each has to be looked at."""
        from pyarrow import compute, types

        kind = column.type
        is_fixed = types.is_fixed_size_list(kind)
        if self.code != "f" or not (is_fixed or types.is_list(kind)) or not types.is_float32(kind.value_type):
            return False
        ends = compute.min_max(compute.list_value_length(column)).as_py()
        least, most = self.dimensions or 1, self.dimensions or DIMENSIONS_MAX
        if ends["min"] is not None and not least <= ends["min"] <= ends["max"] <= most:
            return False
        numbers = column.flatten()
        is_small = numbers.null_count == 0 and len(numbers) <= NUMBERS_MAX
        return is_small and compute.all(compute.is_finite(numbers)).as_py() is not False

    def _numbers(self, value: Any) -> Sequence[Any]:
        if type(value) is str:
            try:
                value = parse_json(value)
            except ValueError as error:
                raise self._refuse(value, f": {error}") from None
        if type(value) not in (list, tuple):
            raise self._refuse(value, ": give a list of numbers")
        found: Sequence[Any] = value
        return found

    def _are_held(self, numbers: Sequence[Any], rounds: bool) -> bool:
        packed = f"={len(numbers)}{self.code}"
        try:
            held = struct.unpack(packed, struct.pack(packed, *numbers))
        except (OverflowError, struct.error):  # an int beyond the range of a float
            return False
        is_alike = held.count(0) == numbers.count(0) if rounds else held == tuple(numbers)
        return is_alike and isfinite(sum(held))

    def _problem(self, number: Any, rounds: bool) -> str:
        """Says why a number is not stored; "" if it is."""
        if type(number) not in _NUMBERS:
            return f"is {number!r:.40}, which is neither a float nor an int"
        held = self._held(number)
        if not isfinite(held):
            return f"is {number!r:.40}, which is not finite, or beyond the range of {_BITS[self.code]} bits"
        if number and not held:
            return f"is {number!r:.40}, which becomes 0"
        if held != number and not rounds:
            advice = "round_vectors=True rounds it"
            return f"is {number!r:.40}, which a number of {_BITS[self.code]} bits does not hold exactly: {advice}"
        return ""

    def _held(self, number: Any) -> float:
        try:
            found: float = struct.unpack(self.code, struct.pack(self.code, number))[0]
        except (OverflowError, struct.error):  # an int beyond the range of a float
            return inf
        return found

    def _refuse(self, value: Any, what: str) -> NotStored:
        return NotStored(f"is {value!r:.80}, which a column of the type {self.type_name} does not hold{what}")


def vector_type(type_name: str) -> VectorType | None:
    """Returns the type of a column as ``format_type`` writes it; None if it is no type of vectors."""
    found = _TYPE.fullmatch(type_name)
    if found is None:
        return None
    return VectorType(type_name, _FORMATS[found[1]], None if found[2] is None else int(found[2]))


def numbers_of(text: str) -> list[float]:
    """Returns the numbers of a vector from the text of the server, which has as many digits as 32 bits need.

    Those of 16 bits are numbers of 32 bits too.
    """
    numbers = list(map(float, text[1:-1].split(",")))
    packed = f"={len(numbers)}f"
    return list(struct.unpack(packed, struct.pack(packed, *numbers)))


def with_texts(batch: RecordBatch) -> RecordBatch:
    """Returns a batch whose lists of numbers are texts of vectors, with all their digits."""
    import pyarrow
    from pyarrow import compute, types

    texts = pyarrow.list_(pyarrow.string())
    for place, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        if types.is_nested(column.type):
            joined = compute.binary_join(column.cast(texts), ",")
            batch = batch.set_column(place, name, compute.binary_join_element_wise("[", joined, "]", ""))
    return batch
