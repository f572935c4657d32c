"""Comparison of the recorded and the changed code on the same state, log and input: where their results differ."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from clonos.core.values import encode_rows
from clonos.core.values.column_rows import rows_of_columns
from clonos.core.values.value_errors import ValueBeyondLimit, ValueUnsupported
from clonos.core.wire.capture_messages import digest_of
from clonos.operators.job_image import JobImage
from clonos.replay.epoch import Epoch
from clonos.replay.output_comparison import ComparedSpan, Difference, RanLive, compared, shown
from clonos.replay.replay_chain import Made
from clonos.replay.replaying import Replayed, described, replay_epoch

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
    ``spans``: what agrees with the digests of the live task.
    """

    batches: dict[tuple[int, str], list[ChainResult]]
    error: str
    number: int
    reached: int
    spans: tuple[ComparedSpan, ...] = ()

    def is_live(self, output: str, first: int, last: int) -> bool | None:
        """Returns whether the live task made the same of these records; None if the record does not tell."""
        found = {each.is_equal for each in self.spans if each.covers(output, first, last)}
        return False if False in found else None if None in found or not found else True


def outcome_of(replayed: Replayed, epoch: Epoch, single: Replayed | None = None) -> ReplayOutcome:
    """Returns the outcome of a replay whose results were recorded.

    ``single``: of the same code, which was given its records one by one: it tells which record made which result. Where
    its results are others, because a step works on whole batches, it is left out.
    """
    batches = _batches(replayed.made)
    if single is not None:
        starts = sorted({first for first, _ in batches})
        by_record = _batches(single.made, starts)
        batches = {at: _narrowed(results, by_record.get(at, [])) for at, results in batches.items()}
    error = replayed.user_error
    number = replayed.number if replayed.number is not None else replayed.records
    spans = tuple(compared(epoch, replayed).spans)
    return ReplayOutcome(batches, "" if error is None else described(error), number, replayed.chain.first, spans)


def outcome_by_record(
    epoch: Epoch, image: JobImage | None, allowed: frozenset[str], replayed: Replayed
) -> ReplayOutcome:
    """Returns the outcome of a replay. Where it does not tell which record made a result, the epoch is replayed once
    more, record by record."""
    if all(result.record == result.last_record for batch in _batches(replayed.made).values() for result in batch):
        return outcome_of(replayed, epoch)
    single = replay_epoch(epoch, image=image, allowed=allowed, records_results=True, one_by_one=True)
    return outcome_of(replayed, epoch, single)


def _batches(made: Iterable[Made], starts: list[int] | None = None) -> dict[tuple[int, str], list[ChainResult]]:
    """Returns results by the batch that made them, and by output. ``starts``: of the batches, if the records were given
    one by one."""
    batches = dict[tuple[int, str], list[ChainResult]]()
    for each in made:
        rows = each.rows if isinstance(each.rows, list) else rows_of_columns(each.rows)
        first, last = each.first + 1, max(each.first + 1, each.first + each.size)
        is_one_to_one = len(rows) == each.size and each.is_of_batch
        if starts is not None and not each.is_of_batch:  # of a timer, which no single record has made
            last = first + 1
        output = each.output if isinstance(each.output, str) else ""
        start = each.first if starts is None else starts[bisect_right(starts, each.first) - 1] if starts else 0
        results = batches.setdefault((start, str(each.output)), [])
        for index, row in enumerate(rows):
            span = (first + index, first + index) if is_one_to_one else (first, last)
            key = None if each.keys is None else each.keys[index]
            key_text = "" if each.keys is None else shown(key)
            results.append(ChainResult(output, *span, key_text, shown(row), _digest(key, row)))
    return batches


def _narrowed(results: list[ChainResult], by_record: list[ChainResult]) -> list[ChainResult]:
    """Returns results with the record that made each of them, if the other ones are the same."""
    if [each.digest for each in results] != [each.digest for each in by_record]:
        return results
    return [
        each._replace(record=single.record, last_record=single.record) if single.record == single.last_record else each
        for each, single in zip(results, by_record, strict=True)
    ]


def changes(was: ReplayOutcome, now: ReplayOutcome, place: str = "") -> ResultChanges:
    """Compares two outcomes. ``place``: the line of code that was changed."""
    differences: list[Difference] = []
    results = differing = 0
    for batch in sorted({*was.batches, *now.batches}):
        for one, other in _pairs(was.batches.get(batch, []), now.batches.get(batch, [])):
            results += one is not None
            if one is not None and other is not None and (one.key, one.digest) == (other.key, other.digest):
                continue
            if (other is None and now.error and batch[0] >= now.reached) or (
                one is None and was.error and batch[0] >= was.reached
            ):
                continue  # what one of them did not reach
            differing += 1
            if len(differences) < DIFFERENCES_MAX:
                differences.append(_difference(one, other, place, _ran_live(was, now, batch[1], one or other)))
    if was.error != now.error:
        number = now.number if now.error else was.number
        texts = was.error or "no error", now.error or "no error"
        differences.append(Difference(number, number, "", *texts, "the end of the replay", place))
        differing += 1
    differences.sort(key=lambda each: each.record or 0)
    return ResultChanges(results, differing, differences)


def _pairs(was: list[ChainResult], now: list[ChainResult]) -> Iterator[tuple[ChainResult | None, ChainResult | None]]:
    """Yields the results of a batch that are compared: those of one record in their order, if all records are known."""
    if any(each.record != each.last_record for each in (*was, *now)):
        yield from zip_longest(was, now)
        return
    for record in sorted({each.record for each in (*was, *now)}):
        yield from zip_longest(*([each for each in results if each.record == record] for results in (was, now)))


def _ran_live(was: ReplayOutcome, now: ReplayOutcome, output: str, result: ChainResult | None) -> RanLive:
    assert result is not None, "one of them is there"
    span = output, result.record, result.last_record
    if was.is_live(*span):
        return RanLive.WAS
    if now.is_live(*span):
        return RanLive.IS
    return RanLive.NEITHER if was.is_live(*span) is False and now.is_live(*span) is False else RanLive.UNKNOWN


def _digest(key: Any, row: Any) -> bytes:
    try:
        return digest_of(encode_rows([(key, row)]))
    except (ValueUnsupported, ValueBeyondLimit):
        return shown(row).encode()


def _difference(one: ChainResult | None, other: ChainResult | None, place: str, live: RanLive) -> Difference:
    known = one or other
    assert known is not None, "one of them is there"
    was = "nothing" if one is None else one.row
    now = "nothing" if other is None else other.row
    where = known.output and f"sink {known.output}"
    return Difference(known.record, known.last_record, known.key, was, now, where, place, live)
