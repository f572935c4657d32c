"""Keys of the joins of fuzz jobs of columns: some of them are null, and match nothing."""

from __future__ import annotations

from random import Random
from typing import Any

from clonos.expressions.building import col, when


class NumberKeys:
    """Keys of records by their number ``n``."""

    def __init__(self, rng: Random) -> None:
        self.count = rng.choice((2, 7, 30))
        self.null_every = rng.choice((None, None, 5))
        """Records whose number is a multiple of it have the key null; None: no record has."""

    def expression(self) -> Any:
        """Returns the expression of the key."""
        key = col("n") % self.count
        return key if self.null_every is None else when(col("n") % self.null_every != 0).then(key)

    def of(self, number: int) -> int | None:
        """Returns the key of a record, None for null."""
        is_null = self.null_every is not None and number % self.null_every == 0
        return None if is_null else number % self.count

    def match(self, left: int, right: int) -> bool:
        """Returns whether the keys of two records match."""
        return self.of(left) is not None and self.of(left) == self.of(right)


def pair_of(left: Any, right: Any) -> Any:
    """Returns the result of ``select=``: what a join gives without it."""
    return left, right
