"""Aggregates over all records of a key in columns, at the end of a fuzz job of columns, and what they must give.

Which records of a key come first differs between two runs, and how many changes leave too. So of a key's results the
counts are compared, and those results that have all of its records.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any, Final

from clonos.agg import count, count_distinct, max_, min_, sum_
from clonos.api.emission import at_end, changes, each, every
from clonos.api.graph import JobGraph
from clonos.expressions.building import col
from clonos.operators.emission_times import Emission
from clonos_chaos.jobs.eager_parts import draws_split, with_eager_parts

EMISSIONS: Final = (each(1), changes(), at_end(), each(3), every("1s"))


class TotalsOfColumns:
    """Aggregates by one or two columns or without a key, with or without a step on columns after them."""

    def __init__(self, rng: Random, graph: JobGraph) -> None:
        self._graph = graph
        self._keys, self._has_two_keys = rng.choice((1, 3, 10)), rng.random() < 0.4
        self._emit = rng.choice(EMISSIONS)
        self._is_selected = rng.random() < 0.5
        self._parallelism = rng.choice((1, 2))
        self._has_key = rng.random() < 0.7
        self._is_selected = self._is_selected and (self._has_key or not self._emit.is_final)  # else it is a row
        self._is_split = self._has_key and not self._emit.count and draws_split(rng)
        self._has_texts = not self._is_split or not self._is_selected  # with texts a step that is split gives rows

    def is_of(self, emit: Emission, keys: int) -> bool:
        """Returns whether it has this emission, this number of keys, and results that are texts."""
        return (
            self._has_texts and self._emit == emit and self._keys == keys and self._has_key and not self._has_two_keys
        )

    def add(self, stream: Any) -> Any:
        """Adds the aggregates to a stream."""
        records: Any = stream.with_columns(key=col("n") % self._keys, odd=col("n") % 2 == 1, digits=col("n").cast(str))
        if self._has_key:
            records = records.key_by(*(("key", "odd") if self._has_two_keys else ("key",)))
        split: dict[str, Any] = {"split_hot_keys": True} if self._is_split else {}
        texts: dict[str, Any] = {"text": max_("digits")} if self._has_texts else {}
        results: Any = records.aggregate(
            found=count(),
            total=sum_("n"),
            low=min_("n"),
            high=max_("n"),
            different=count() if self._emit.count or not self._has_texts else count_distinct("n"),
            emit=self._emit,
            parallelism=self._parallelism if self._has_key else 1,
            **texts,
            **split,
        )
        if self._is_split:
            with_eager_parts(self._graph)
        return results.with_columns(total=col("total") * 2) if self._is_selected else results

    def output(self, result: Any) -> tuple[int, tuple[Any, ...], Any]:
        """Returns the row of a result, which is a dict after a step on columns."""
        key, values = result if self._has_key and not self._is_selected else (None, result)
        if self._is_selected:
            values = {**result, "total": result["total"] // 2}
            if self._has_key:
                key = (result["key"], result["odd"]) if self._has_two_keys else result["key"]
        assert values["different"] == values["found"], "all numbers differ"
        return 0, (), (key, *(values[name] for name in ("found", "total", "low", "high")), values.get("text"))

    def complaints(self, records: Iterable[dict[str, Any]], rows: Iterable[tuple[Any, ...]]) -> list[str]:
        """Returns what is wrong with the rows of these records."""
        numbers: dict[Any, list[int]] = {}
        for record in records:
            numbers.setdefault(self._key(record["n"]), []).append(record["n"])
        rows = list(rows)
        found: dict[Any, dict[int, tuple[Any, ...]]] = {}
        wrong: list[str] = []
        for key, counted, *values in rows:
            if counted in found.setdefault(key, {}):
                wrong.append(f"{key!r} has two results of {counted} records")
            found[key][counted] = tuple(values)
        if not self._has_key and self._emit.is_final and not numbers:
            return [] if rows == [(None, 0, 0, None, None, None)] else [f"there are results of no records: {rows}"]
        if found.keys() != numbers.keys():
            wrong.append(f"there are results of {list(found)}, and records of {list(numbers)}")
        for key in found.keys() & numbers.keys():
            mine = numbers[key]
            text = max(map(str, mine)) if self._has_texts else None
            if found[key].get(len(mine)) != (sum(mine), min(mine), max(mine), text):
                wrong.append(f"{key!r} has {found[key]}, and the records {mine}")
            if not self._are_counts(sorted(found[key]), len(mine)):
                wrong.append(f"{key!r} has results of {sorted(found[key])} records with {self._emit}")
        return wrong

    def _are_counts(self, counts: list[int], records: int) -> bool:
        if self._emit.count:
            paced = range(self._emit.count, records + 1, self._emit.count)
            return counts == sorted({*paced, records})
        return counts[-1] == records and (len(counts) == 1 or not self._emit.is_final)

    def _key(self, number: int) -> Any:
        if not self._has_key:
            return None
        key = number % self._keys
        return (key, number % 2 == 1) if self._has_two_keys else key
