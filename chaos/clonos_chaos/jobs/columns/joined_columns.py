"""Joins at the end of fuzz jobs of columns: of the records with some of themselves, by key and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, cast

from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.expressions.building import col
from clonos_chaos.jobs.columns.null_keys import NumberKeys, pair_of

Record = dict[str, Any]
Columns = Stream[Record]
Numbers = tuple[int | None, int | None]
"""Numbers of the left and the right record of a result."""

HOWS = ("inner", "left", "right", "full", "semi", "anti")
ALWAYS = "100d"


class JoinedColumns:
    """Join of columns by time, with or without a step on columns after it.

    The right side has some of the records. A join without timestamps matches all of them, whenever they come.
    """

    def __init__(self, rng: Random, is_timed: bool) -> None:
        self._keys, self._divisor = NumberKeys(rng), rng.choice((2, 3))
        self._how: Any = rng.choice(HOWS)
        self._window_s = rng.choice((2, 5, 9)) if is_timed and rng.random() < 0.4 else None
        lower_s = rng.choice((-4, -1, 0, 2))
        self._bounds_s = (lower_s, lower_s + rng.choice((0, 3, 8)))
        self._ttl_s = rng.choice((1, 3)) if is_timed and rng.random() < 0.2 else None
        if self._ttl_s is not None:
            self._window_s, self._bounds_s = None, (-self._ttl_s, self._ttl_s)
        self._is_timed = is_timed
        self._is_selected = self._how in ("inner", "semi", "anti") and rng.random() < 0.5
        self._parallelism = rng.choice((1, 2))
        has_pairs = self._how not in ("semi", "anti") and not self._is_selected
        self._function = pair_of if has_pairs and rng.random() < 0.4 else None

    def add(self, stream: Columns) -> Columns:
        """Adds the join to a stream."""
        left: Any = stream.with_columns(key=self._keys.expression())
        right: Any = left.filter(col("n") % self._divisor == 0).select("n", "at", "key")
        rule: dict[str, Any] = {"ttl": ALWAYS}
        if self._is_timed:
            rule = {"between": self._bounds_s} if self._window_s is None else {"window": Tumbling(self._window_s)}
        if self._ttl_s is not None:
            rule = {"ttl": self._ttl_s}
        options = {"how": self._how, "parallelism": self._parallelism, "select": self._function}
        results = left.join(right, on="key", **options, **rule)
        if self._is_selected:
            names = (
                ["n", "n_right", *(["join_time"] if self._is_timed else [])] if self._how == "inner" else ["n", "at"]
            )
            results = results.select(*names)
        return cast(Columns, results)

    def output(self, result: Any) -> tuple[int, tuple[Any, ...], Any]:
        """Returns the row of a result, which is a pair, or a dict after a step on columns."""
        if self._is_selected:
            left, right = result["n"], result.get("n_right")
        elif self._how in ("semi", "anti"):
            left, right = result["n"], None
        else:
            left, right = (None if each is None else each["n"] for each in result)
        return max(each for each in (left, right) if each is not None), (), (left, right)

    def twin(self, records: Iterable[Record]) -> Counter[Any]:
        """Returns the rows of all results."""
        lefts = list(records)
        rights = [record for record in lefts if record["n"] % self._divisor == 0]
        pairs = [(left["n"], right["n"]) for left in lefts for right in rights if self._matches(left, right)]
        with_match = ({left for left, _ in pairs}, {right for _, right in pairs})
        found: list[Numbers] = []
        if self._how in ("semi", "anti"):
            return Counter((each["n"], None) for each in lefts if (each["n"] in with_match[0]) == (self._how == "semi"))
        found += pairs
        if self._how in ("left", "full"):
            found += [(each["n"], None) for each in lefts if each["n"] not in with_match[0]]
        if self._how in ("right", "full"):
            found += [(None, each["n"]) for each in rights if each["n"] not in with_match[1]]
        return Counter(found)

    def _matches(self, left: Record, right: Record) -> bool:
        if not self._keys.match(left["n"], right["n"]):
            return False
        if not self._is_timed:
            return True
        if self._window_s is not None:
            return bool(left["at"] // self._window_s == right["at"] // self._window_s)
        return bool(self._bounds_s[0] <= right["at"] - left["at"] <= self._bounds_s[1])
