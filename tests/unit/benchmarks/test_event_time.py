"""Figures of event time: which watermarks a reader has sent, and how event time rises."""

from __future__ import annotations

from benchmarks.event_time.watermarks import AT_NS, EVERY_NS, ByLines, MarkedLines
from benchmarks.event_time.window_latency import BASE_NS, Events, watermarks_of
from benchmarks.event_time.window_latency import EVERY_NS as LEAST_NS
from clonos.operators.connector_contract import TimedSource


def test_a_watermark_of_a_reader_counts_if_it_has_risen_enough_since_the_last_one() -> None:
    events = Events("", 0, 1_000, 1, 1, per_s=1_000)
    given = [(1, 7), (2, 8), (11, 9), (15, 10), (400, 11)]
    found = [((reached_ns - BASE_NS) // 1_000_000, at_ns) for reached_ns, at_ns in watermarks_of(events, given)]
    assert LEAST_NS == 10_000_000
    assert found == [(0, 7), (10, 9), (399, 11)]
    assert events.windows() == 4


def test_event_time_rises_with_the_lines_wherever_reads_are_cut() -> None:
    source = MarkedLines(None, False, 1_000)
    assert isinstance(source, TimedSource)
    assert source.watermark_every_ns == EVERY_NS
    for rises in (source.watermark, lambda before, lines: ByLines(1_000).watermark(before, lines, [])):
        assert rises(None, ["a", "b", "c"]) == rises(rises(None, ["a"]), ["b", "c"]) == AT_NS + 3_000
    assert ByLines(0).watermark(None, ["a"], [AT_NS]) is None
