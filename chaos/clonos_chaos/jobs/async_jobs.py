"""Fuzz jobs whose calls wait side by side (map_async): whatever dies, every record has one answer, given to it."""

from __future__ import annotations

from functools import partial
from random import Random

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos_chaos.jobs.api_jobs import ApiJob, Count, Immediate, Offsets, Parts, Row
from clonos_chaos.jobs.fuzz_chain import KEYS


class AsideJob(ApiJob):
    """A source, calls aside in order or as they are answered, state by key behind them, calls aside again."""

    def _build(self, graph: JobGraph, luck: Random) -> None:
        rows: Stream[Row] = graph.source(Offsets(self.records), parallelism=luck.choice((1, 2)))
        if luck.random() < 0.5:
            rows = rows.rebalance()
        for stage in (1, 3):
            answered = rows.map_async(
                partial(self._answered, stage),
                capacity=luck.choice((1, 3, 16)),
                ordered=luck.random() < 0.5,
                parallelism=luck.choice((1, 2)),
            )
            rows = answered.key_by(lambda row: row[0] % KEYS).process(Count(stage + 1, luck.choice((0, 15))))
        if luck.random() < 0.5:
            rows.sink(Immediate())
        else:
            rows.sink(Parts())

    def _answered(self, stage: int, row: Row, idempotency_key: str) -> Row:
        offset, story = row
        answer = self.service.ask((stage, offset), idempotency_key)
        return offset, (*story, (stage, 0, offset * 8, 0, 0, answer))
