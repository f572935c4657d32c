"""Ends of fuzz jobs of columns that choose among the records of each key: top k, distinct, deduplicate.

Which records a step passes on in between depends on how batches are cut and on the order of channels. A check
therefore asks for what holds in every run, above all that nothing leaves twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any, Final, cast

from clonos.api.stream import Stream
from clonos.expressions.building import col

Record = dict[str, Any]
Columns = Stream[Record]

KINDS: Final = ("top", "list", "first", "last", "span", "span end")
TIMED: Final = frozenset({"last", "span", "span end"})
"""Kinds that need timestamps for a result that does not depend on the order of channels."""

WITHIN_S: Final = 4


class ChosenColumns:
    """Step of a random kind, by the key ``n % keys``."""

    def __init__(self, rng: Random, *, has_times: bool) -> None:
        self.kind = rng.choice([kind for kind in KINDS if has_times or kind not in TIMED])
        self._keys = rng.choice((1, 3, 10))
        self._k = rng.choice((1, 2, 5))
        self._parallelism = rng.choice((1, 2))

    def has(self, keys: int, k: int) -> bool:
        """Returns whether the step has this number of keys, and of records of a key for ``top_k``."""
        return (self._keys, self._k) == (keys, k)

    def add(self, stream: Columns) -> Columns:
        """Adds the step to a stream."""
        keyed: Any = stream.with_columns(key=col("n") % self._keys).key_by("key")
        if self.kind == "top":
            return cast(Columns, keyed.top_k(self._k, "n", rank="rank", parallelism=self._parallelism))
        if self.kind == "list":
            return cast(Columns, keyed.top_k(self._k, "n", parallelism=self._parallelism))
        if self.kind == "first":
            return cast(Columns, keyed.distinct("key", parallelism=self._parallelism))
        rules: dict[str, Any] = {} if self.kind == "span" else {"keep": "last"}
        within = None if self.kind == "last" else WITHIN_S
        return cast(Columns, keyed.deduplicate(within=within, parallelism=self._parallelism, **rules))

    def output(self, result: Any) -> tuple[int, tuple[Any, ...], Any]:
        """Returns the row of a result."""
        if self.kind == "list":
            key, records = result
            numbers = tuple(record["n"] for record in records)
            return numbers[0], (), (key, None, numbers[0], numbers)
        return result["n"], (), (result["key"], result.get("rank"), result["n"], result["at"])

    def complaints(self, records: Iterable[Record], rows: Iterable[tuple[Any, ...]]) -> list[str]:
        """Returns what is wrong with the rows of these records."""
        found = Counter(rows)
        by_key: dict[int, list[Record]] = {}
        for record in records:
            by_key.setdefault(record["n"] % self._keys, []).append(record)
        twice = [row for row, times in found.items() if times > 1]
        strange = [row for row in found if row[2] not in {each["n"] for each in by_key.get(row[0], ())}]
        missing = [key for key, given in by_key.items() if not self._fits(given, [r for r in found if r[0] == key])]
        problems = {"twice": twice, "strange": strange, "keys with wrong results": missing}
        return [f"{self.kind}: {what}: {which}" for what, which in problems.items() if which]

    def _fits(self, given: list[Record], rows: list[Any]) -> bool:
        if self.kind == "top":
            highest = sorted((record["n"] for record in given), reverse=True)[: self._k]
            last = {rank: max(n for _, other, n, _ in rows if other == rank) for _, rank, _, _ in rows}
            return last == dict(enumerate(highest, 1))
        if self.kind == "list":
            return self._follow([numbers for _, _, _, numbers in rows], sorted(each["n"] for each in given)[::-1])
        if self.kind == "first":
            return len(rows) == 1
        times = sorted(at for _, _, _, at in rows)
        if self.kind == "last":
            return bool(times) and times[-1] == max(record["at"] for record in given)
        if self.kind == "span end":  # a record, and the last one of its span, are near the record that has opened it
            has_last = bool(times) and times[-1] == max(record["at"] for record in given)
            return has_last and all(
                any(record["at"] <= at < record["at"] + 2 * WITHIN_S for at in times) for record in given
            )
        are_apart = all(later - earlier >= WITHIN_S for earlier, later in pairwise(times))
        return are_apart and all(any(abs(record["at"] - at) < WITHIN_S for at in times) for record in given)

    def _follow(self, lists: list[Any], highest: list[int]) -> bool:
        """Returns whether each list has one record more than the one before, or a higher one, up to the last list."""
        so_far: tuple[int, ...] = ()
        for numbers in sorted(lists, key=lambda each: (len(each), sum(each))):
            entered = set(numbers) - set(so_far)
            if len(entered) != 1 or numbers != tuple(sorted((*so_far, *entered), reverse=True)[: self._k]):
                return False
            so_far = numbers
        return so_far == tuple(highest[: self._k])
