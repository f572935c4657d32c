"""Joins with a version of each key at the end of fuzz jobs of columns: as of a time, or the last by arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, Final, cast

from clonos.api.stream import Stream
from clonos.expressions.building import col
from clonos_chaos.jobs.columns.null_keys import NumberKeys, pair_of

Record = dict[str, Any]
Columns = Stream[Record]

VERSIONS: Final = 3
"""Every third record is a version. The records of a second are three, so no two versions have one timestamp."""


class LookedUpColumns:
    """As-of join or lookup of columns, with or without a step on columns after it."""

    def __init__(self, rng: Random, is_timed: bool) -> None:
        self._keys = NumberKeys(rng)
        self.is_as_of = is_timed and rng.random() < 0.7
        self._is_forward = rng.random() < 0.4
        self._tolerance_s = rng.choice((2, 6)) if self._is_forward else rng.choice((None, 4))
        self._how: Any = rng.choice(("left", "inner"))
        self._is_selected = self._how == "inner" and rng.random() < 0.5
        self._parallelism = rng.choice((1, 2))
        self._function = pair_of if not self._is_selected and rng.random() < 0.4 else None

    def is_of(self, keys: int, how: str) -> bool:
        """Returns whether it has this number of keys, and this kind."""
        return self._keys.count == keys and self._keys.null_every is None and self._how == how

    def add(self, stream: Columns) -> Columns:
        """Adds the join to a stream."""
        left: Any = stream.with_columns(key=self._keys.expression())
        right: Any = left.filter(col("n") % VERSIONS == 0).select("n", "at", "key")
        options: dict[str, Any] = {"on": "key", "how": self._how, "parallelism": self._parallelism}
        options["select"] = self._function
        if self.is_as_of:
            direction: Any = "forward" if self._is_forward else "backward"
            results = left.join_as_of(right, direction=direction, tolerance=self._tolerance_s, **options)
        else:
            results = left.lookup(right, **options)
        return cast(Columns, results.select("n", "at", "n_right") if self._is_selected else results)

    def output(self, result: Any) -> tuple[int, tuple[Any, ...], Any]:
        """Returns the row of a result, which is a pair, or a dict after a step on columns."""
        if self._is_selected:
            return result["n"], (), (result["n"], result["n_right"])
        left, right = result
        return left["n"], (), (left["n"], None if right is None else right["n"])

    def twin(self, records: Iterable[Record]) -> Counter[Any]:
        """Returns the rows of an as-of join."""
        given = list(records)
        versions = [record for record in given if record["n"] % VERSIONS == 0]
        rows = [(record["n"], self._version(record, versions)) for record in given]
        return Counter(row for row in rows if row[1] is not None or self._how == "left")

    def _version(self, record: Record, versions: list[Record]) -> int | None:
        sign = 1 if self._is_forward else -1
        found = [
            (ahead_s, version["n"])
            for version in versions
            if self._keys.match(record["n"], version["n"])
            and (ahead_s := sign * (version["at"] - record["at"])) >= 0
            and (self._tolerance_s is None or ahead_s <= self._tolerance_s)
        ]
        return min(found)[1] if found else None

    def complaints(self, records: Iterable[Record], rows: Iterable[tuple[Any, ...]]) -> list[str]:
        """Returns what is wrong with the rows of a lookup, in which each record has any version of its key or none."""
        numbers, rows = {record["n"] for record in records}, list(rows)
        found = Counter(left for left, _ in rows)
        wrong: list[str] = []
        for left, right in rows:
            if right is None:
                if self._how == "inner":
                    wrong.append(f"{left} has no version")
            elif right not in numbers or right % VERSIONS or not self._keys.match(left, right):
                wrong.append(f"{left} has {right}, which is no version of its key")
        missing = numbers - found.keys() if self._how == "left" else set[int]()
        twice = [left for left, count in found.items() if count > 1]
        if missing or twice or not found.keys() <= numbers:
            wrong.append(f"missing {sorted(missing)}, twice {sorted(twice)}, strange {sorted(found.keys() - numbers)}")
        return wrong
