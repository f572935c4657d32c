"""Comparison of the recorded and the changed code on the same state, log and input: where their results differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from types import CodeType
from typing import Any, NamedTuple

from clonos.core.values import encode_rows
from clonos.core.values.column_rows import rows_of_columns
from clonos.core.values.value_errors import ValueBeyondLimit, ValueUnsupported
from clonos.core.wire.capture_messages import digest_of
from clonos.operators.chain import VertexImage
from clonos.operators.job_image import JobImage
from clonos.replay.output_comparison import Difference, shown
from clonos.replay.replaying import Replayed, described

DIFFERENCES_MAX = 1_000
"""Differences that are described; further ones are counted."""


class ResultChanges(NamedTuple):
    """Differences between the results of two replays. ``results``: of the first one; ``differing``: how many differ."""

    results: int
    differing: int
    differences: list[Difference]


class ChainResult(NamedTuple):
    """Row that left the chain. ``record``, ``last_record``: the first and the last record that may have made it.

    ``key``: as text, "" without one. ``digest``: of the encoded key and row.
    """

    output: str
    record: int
    last_record: int
    key: str
    row: str
    digest: bytes


class ReplayOutcome(NamedTuple):
    """Outcome of a replay, as plain values that travel between processes.

    ``batches``: results by the number of records before those that made them, and by output. ``error``: text of what
    ended it, "" at the end of the log; ``number``: of the record then. ``reached``: records before its last batch.
    """

    batches: dict[tuple[int, str], list[ChainResult]]
    error: str
    number: int
    reached: int


def outcome_of(replayed: Replayed) -> ReplayOutcome:
    """Returns the outcome of a replay whose results were recorded."""
    batches = dict[tuple[int, str], list[ChainResult]]()
    for made in replayed.made:
        rows = made.rows if isinstance(made.rows, list) else rows_of_columns(made.rows)
        first, last = made.first + 1, max(made.first + 1, made.first + made.size)
        is_one_to_one = len(rows) == made.size
        output = made.output if isinstance(made.output, str) else ""
        results = batches.setdefault((made.first, str(made.output)), [])
        for index, row in enumerate(rows):
            span = (first + index, first + index) if is_one_to_one else (first, last)
            key = None if made.keys is None else made.keys[index]
            key_text = "" if made.keys is None else shown(key)
            results.append(ChainResult(output, *span, key_text, shown(row), _digest(key, row)))
    error = replayed.user_error
    number = replayed.number if replayed.number is not None else replayed.records
    return ReplayOutcome(batches, "" if error is None else described(error), number, replayed.chain.first)


def changes(was: ReplayOutcome, now: ReplayOutcome, place: str = "") -> ResultChanges:
    """Compares two outcomes. ``place``: the line of code that was changed."""
    differences: list[Difference] = []
    results = differing = 0
    for batch in sorted({*was.batches, *now.batches}):
        for one, other in zip_longest(was.batches.get(batch, []), now.batches.get(batch, [])):
            results += one is not None
            if one is not None and other is not None and (one.key, one.digest) == (other.key, other.digest):
                continue
            if (other is None and now.error and batch[0] >= now.reached) or (
                one is None and was.error and batch[0] >= was.reached
            ):
                continue  # what one of them did not reach
            differing += 1
            if len(differences) < DIFFERENCES_MAX:
                differences.append(_difference(one, other, place))
    if was.error != now.error:
        number = now.number if now.error else was.number
        texts = was.error or "no error", now.error or "no error"
        differences.append(Difference(number, number, "", *texts, "the end of the replay", place))
        differing += 1
    differences.sort(key=lambda each: each.record or 0)
    return ResultChanges(results, differing, differences)


def _digest(key: Any, row: Any) -> bytes:
    try:
        return digest_of(encode_rows([(key, row)]))
    except (ValueUnsupported, ValueBeyondLimit):
        return shown(row).encode()


def _difference(one: ChainResult | None, other: ChainResult | None, place: str) -> Difference:
    known = one or other
    assert known is not None, "one of them is there"
    was = "nothing" if one is None else one.row
    now = "nothing" if other is None else other.row
    return Difference(
        known.record, known.last_record, known.key, was, now, known.output and f"sink {known.output}", place
    )


def place_of_change(recorded: Replayed, changed: Replayed) -> str:
    """Returns the first line of the first function of the task whose code was changed, "" if none was found."""
    before = dict(_functions(_vertex_of(recorded.image, recorded)))
    for step, code in _functions(_vertex_of(changed.image, changed)):
        if step not in before or _differs(before[step], code):
            return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno} in {code.co_name}"
    return ""


def _vertex_of(image: JobImage, replayed: Replayed) -> VertexImage:
    return image.vertices[image.plan.vertex_of[replayed.task]]


def _functions(vertex: VertexImage) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Yields the code of the user's functions in the steps of a vertex, by step and number."""
    seen = dict[str, int]()
    for node in vertex.nodes:
        made: Any = node.make
        for value in (*getattr(made, "args", ()), *getattr(made, "keywords", {}).values()):
            for code in _codes_of(value):
                number = seen[node.step] = seen.get(node.step, 0) + 1
                yield (node.step, number), code


def _codes_of(value: Any) -> Iterator[CodeType]:
    while isinstance(value, partial):
        value = value.func
    code = getattr(value, "__code__", None)
    if isinstance(code, CodeType):
        yield code
        return
    cls = value if isinstance(value, type) else type(value)
    if cls.__module__.partition(".")[0] in ("clonos", "builtins"):
        return
    methods: list[Callable[..., Any]] = [each for each in vars(cls).values() if hasattr(each, "__code__")]
    for method in methods:
        yield method.__code__


def _differs(one: CodeType, other: CodeType) -> bool:
    return (one.co_code, one.co_names, _constants(one)) != (other.co_code, other.co_names, _constants(other))


def _constants(code: CodeType) -> tuple[Any, ...]:
    """Returns the constants of code, those of inner functions in place of these, whose lines may differ."""
    return tuple((each.co_code, _constants(each)) if isinstance(each, CodeType) else each for each in code.co_consts)
