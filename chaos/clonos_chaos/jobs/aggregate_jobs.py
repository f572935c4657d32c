"""Fuzz jobs of named aggregates: running, now and then, at the end and of windows, with a dumb twin of each result.

An aggregate collects the rows of a key besides its other results. Half of the steps that may be split are: the rows of
a key are then aggregated in parts. Each row then leaves once, with these results and the
offsets that they are of, so the twin computes them again from the offsets alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from statistics import stdev
from typing import Any, Final

from clonos.agg import (
    aggregate,
    approx_distinct,
    bottom_k,
    collect,
    count,
    count_if,
    distinct,
    first,
    last,
    max_,
    mean,
    min_,
    quantile,
    stddev,
    sum_,
    top_k,
)
from clonos.api.emission import at_end, changes, each, every
from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.operators.aggregates.quantiles import EXACT_MAX
from clonos.operators.emission_times import Emission
from clonos_chaos.jobs.api_jobs import KEY_FUNCTIONS, ApiJob, Immediate, Offsets, Parts, Row, drawn
from clonos_chaos.jobs.eager_parts import with_eager_parts
from clonos_chaos.jobs.fuzz_jobs import next_of

STAGE: Final = 2

FIRST_S: Final = 1_700_000_000

TOLERANCE: Final = 1e-12
"""Relative difference of floats that the twin rounds at other places."""

QUANTILE_ERROR: Final = 0.01
"""Relative error of a quantile of more than ``EXACT_MAX`` numbers."""


def offset_of(row: Row) -> int:
    """Returns the offset of a row."""
    return row[0]


def time_of(row: Row) -> float:
    """Returns the timestamp of a row in seconds: one millisecond after that of the offset before."""
    return FIRST_S + row[0] / 1000


def term_of(row: Row) -> float:
    """Returns a number of a row whose sums are rounded."""
    return row[0] / 3


def is_even(row: Row) -> bool:
    """Returns whether the offset of a row is even."""
    return row[0] % 2 == 0


def remainder(row: Row) -> int | None:
    """Returns a value that many rows share; None for some."""
    return row[0] % 4 or None


AGGREGATES: Final[dict[str, Any]] = {
    "rows": collect(),
    "n": count(),
    "even": count_if(is_even),
    "total": sum_(term_of),
    "mean": mean(term_of),
    "spread": stddev(term_of),
    "least": min_(offset_of),
    "most": max_(offset_of),
    "first": first(offset_of),
    "last": last(offset_of),
    "kinds": distinct(remainder),
    "about": approx_distinct(offset_of),
    "middle": quantile(offset_of, 0.5, error=QUANTILE_ERROR),
    "top": top_k(2, by=offset_of),
    "bottom": bottom_k(2, by=offset_of),
}


def twin(offsets: Sequence[int]) -> tuple[Any, ...]:
    """Returns the results of all aggregates but ``rows`` for these offsets, by arrival."""
    terms = [offset / 3 for offset in offsets]
    ordered = sorted(offsets)
    kinds = dict.fromkeys(offset % 4 for offset in offsets if offset % 4)
    return (
        len(offsets),
        sum(offset % 2 == 0 for offset in offsets),
        math.fsum(terms),
        math.fsum(terms) / len(terms),
        stdev(terms) if len(terms) > 1 else None,
        ordered[0],
        ordered[-1],
        offsets[0],
        offsets[-1],
        tuple(kinds),
        len(set(offsets)),
        _middle(ordered),
        tuple(ordered[::-1][:2]),
        tuple(ordered[:2]),
    )


class Estimate(float):
    """Number that a sketch finds within an error."""


def _middle(ordered: Sequence[int]) -> float:
    middle = float(ordered[(len(ordered) - 1) // 2])
    return middle if len(ordered) <= EXACT_MAX else Estimate(middle)


def agrees(found: Any, expected: Any) -> bool:
    """Returns whether results are equal, floats within the tolerance."""
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(agrees, found, expected))
    if isinstance(expected, Estimate):
        return isinstance(found, float) and math.isclose(found, expected, rel_tol=QUANTILE_ERROR)
    if isinstance(expected, float):
        return isinstance(found, float) and math.isclose(found, expected, rel_tol=TOLERANCE)
    return type(found) is type(expected) and found == expected


class AggregateJob(ApiJob):
    """Job with one keyed step of all aggregates."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        aside = Random(next_of(rng))
        place = aside.choice(("none", "source", "step"))
        stamps = _timestamps(aside) if place == "source" else None
        rows: Stream[Row] = graph.source(Offsets(self.records), parallelism=rng.choice((1, 2)), timestamps=stamps)
        if rng.random() < 0.5:
            rows = rows.rebalance()
        if place == "step":
            rows = rows.with_timestamps(_timestamps(aside, out_of_order="1h"))
        keyed = rows.map(partial(_stage, 1)).key_by(rng.choice(KEY_FUNCTIONS))
        kind = rng.choice(("running", "each", "every", "changes", "end", "window"))
        is_split = kind not in ("running", "each") and aside.random() < 0.5
        named = {**AGGREGATES, "rows": aggregate(list, _append, merge=_extend)} if is_split else AGGREGATES
        if kind == "window":
            size_s = rng.choice((0.02, 0.1))
            windows = keyed.window(Tumbling(size_s)).aggregate(split_hot_keys=is_split, **named)
            if is_split:
                with_eager_parts(graph)
            gathered = windows.flat_map(_rows_of_window)
        else:
            emissions = {"running": each(1), "each": each(rng.choice((2, 5))), "changes": changes(), "end": at_end()}
            emit: Emission = emissions.get(kind) or every(rng.choice((0.01, 0.05)))
            results = keyed.aggregate(emit=emit, split_hot_keys=is_split, **named)
            if is_split:
                with_eager_parts(graph)
            emitted = results.key_by(_key_of_result)
            gathered = emitted.stateful_map(_rows_since).flat_map(_same)
        leaving = gathered.map(partial(_stage, 4))
        leaving.sink(Immediate()) if rng.random() < 0.5 else leaving.sink(Parts())

    def complaints_of_rows(self, rows: Iterable[Row]) -> list[str]:
        """Returns how the results that visible rows left with differ from those of the twin."""
        found = []
        for offset, lineage, *_ in rows:
            offsets, results = next(entry[3] for entry in lineage if entry[0] == STAGE)
            expected = twin(offsets)
            if offset not in offsets or len(set(offsets)) < len(offsets) or not agrees(results, expected):
                found.append(f"offset {offset} left with {results} of {offsets} instead of {expected}")
        return found


def _timestamps(aside: Random, out_of_order: str | None = None) -> Timestamps:
    """Draws timestamps, which ascend in each split. No split is idle before its end."""
    return Timestamps(
        time_of,
        out_of_order=out_of_order,
        watermark_every=aside.choice((0.001, 0.02)),
        idle_after=aside.choice((None, 0.005)),
        future_max=None,
    )


def _append(rows: list[Row], row: Row) -> None:
    rows.append(row)


def _extend(rows: list[Row], others: list[Row]) -> None:
    rows.extend(others)


def _stage(stage: int, row: Row) -> Row:
    return drawn(stage, row[0] * 8, True, True, None, row)


def _key_of_result(result: tuple[Any, dict[str, Any]]) -> Any:
    return result[0]


def _rows_since(key: Any, left: int | None, result: tuple[Any, dict[str, Any]]) -> tuple[int, list[Row]]:
    """Returns the rows that have not left before: those after the first ``left``."""
    _, results = result
    return results["n"], [_leaving(results, index, index) for index in range(left or 0, results["n"])]


def _rows_of_window(window: Any) -> list[Row]:
    results = window.value
    return [_leaving(results, index, row[0] * 8) for index, row in enumerate(results["rows"])]


def _leaving(results: dict[str, Any], index: int, state: int) -> Row:
    """Returns a row with the results of the aggregates. No other row of its key has this ``state``."""
    offset, lineage = results["rows"][index]
    offsets = tuple(map(offset_of, results["rows"]))
    shown = tuple(_plain(value) for name, value in results.items() if name != "rows")
    return offset, (*lineage, (STAGE, 0, state, (offsets, shown), 0, 0))


def _plain(value: Any) -> Any:
    """Returns a result with offsets in place of rows."""
    return tuple(each[0] if isinstance(each, tuple) else each for each in value) if isinstance(value, list) else value


def _same(rows: list[Row]) -> list[Row]:
    return rows
