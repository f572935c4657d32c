"""Figures of the benchmarks: ratios of pairs, and no figure for a side with a wrong result."""

import json
from collections import Counter
from dataclasses import astuple, replace
from importlib import import_module
from itertools import chain
from operator import attrgetter
from pathlib import Path

import pytest

from benchmarks.harness import plots
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import ResultCounter, SinkResult, WrongResult, measured
from benchmarks.harness.stage_clock import STAGES
from benchmarks.harness.timestamp_sink import RolledBack, TimestampFile, Torn, entries, file_of
from benchmarks.measures import failover
from benchmarks.measures.latency import percentile
from benchmarks.workloads import words
from benchmarks.workloads.column_failover import FewKeys
from benchmarks.workloads.failover_cases import TITLES
from benchmarks.workloads.paced import Pace, PacedReader
from clonos import WriterFenced, WriterIdentity


def _workload(folder: Path) -> words.Workload:
    words.prepare(folder)
    return words.Workload(str(folder), repeats=2, lines=1_000)


def _counted(workload: words.Workload, counter: ResultCounter) -> None:
    counts: Counter[str] = Counter()
    for reader in range(workload.readers):
        share = workload.share(reader)
        position = 0
        while lines := share.after(position, 300):
            position += len(lines)
            rows = []
            for word in " ".join(lines).split():
                counts[word] += 1
                rows.append((word, counts[word]))
            counter.add(rows)


def test_ratios_are_taken_per_pair_and_the_file_has_the_median(tmp_path: Path) -> None:
    session = Session(("bare",), pairs=3)
    session.compared("rows/bare", [1.0, 4.0, 9.0], [2.0, 4.0, 3.0], ">= 0.85")
    session.write(tmp_path / "found.json")
    data = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert data["comparisons"] == [
        {"name": "rows/bare", "ratio_median": 1.0, "ratio_min": 0.5, "ratio_max": 3.0, "pairs": 3}
    ]
    assert data["goals"] == {"rows/bare": ">= 0.85"}


def test_a_tally_reads_every_final_count_from_its_stored_rows(tmp_path: Path) -> None:
    workload = _workload(tmp_path)
    counter = ResultCounter(workload.words)
    _counted(workload, counter)
    part = counter.part()
    assert part.finals == dict(workload.finals())
    assert measured(workload, [part], [part]).words == workload.words


@pytest.mark.parametrize("change", [1, -1])
def test_a_wrong_final_count_invalidates_the_measurement(tmp_path: Path, change: int) -> None:
    workload = _workload(tmp_path)
    finals = dict(workload.finals())
    word = next(iter(finals))
    part = SinkResult(workload.words, 1, 2, 1, finals | {word: finals[word] + change})
    with pytest.raises(WrongResult, match=word):
        measured(workload, [part], [part])


def test_a_surplus_row_invalidates_the_measurement(tmp_path: Path) -> None:
    workload = _workload(tmp_path)
    part = SinkResult(workload.words + 1, 1, 2, 1, dict(workload.finals()))
    with pytest.raises(WrongResult, match="counts came out"):
        measured(workload, [part], [part])


def test_a_ledger_accepts_a_row_once_and_reports_a_torn_write(tmp_path: Path) -> None:
    path = file_of(tmp_path, "count/0")
    first = TimestampFile(tmp_path)
    first.register(WriterIdentity("job", "count/0", 1, 1), 0)
    first.write(0, [("a", 1), ("@0.7", 1)])
    second = TimestampFile(tmp_path)
    assert second.register(WriterIdentity("job", "count/0", 1, 2), 0).next_number == 2
    assert second.write(1, [("@0.7", 1), ("b", 1)]) == 3
    with pytest.raises(WriterFenced):
        first.write(2, [("b", 1)])
    first.close()
    second.close()
    assert [(entry.rows, entry.weight, entry.marks) for entry in entries(path)] == [(2, 2, [(0, 7)]), (1, 1, [])]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(Torn, match="torn at byte"):
        list(entries(path))


def test_a_ledger_refuses_a_job_that_was_rolled_back(tmp_path: Path) -> None:
    first = TimestampFile(tmp_path)
    first.register(WriterIdentity("job", "count/0", 1, 1), 0)
    first.close()
    with pytest.raises(RolledBack, match="count/0"):
        TimestampFile(tmp_path).register(WriterIdentity("job", "count/0", 2, 2), 0)


def test_a_paced_reader_repeats_the_same_lines_from_a_mark(tmp_path: Path) -> None:
    words.prepare(tmp_path)
    pace = Pace(str(tmp_path), 0, 50, 7)
    whole, rest = PacedReader(pace), PacedReader(pace)
    whole.open(b"1", None)
    lines = whole.read(20)
    mark = whole.mark()
    following = whole.read(100)
    rest.open(b"1", mark)
    assert rest.read(100) == following
    marks = [line.split()[0] for line in (*(lines or ()), *(following or ())) if line.startswith("@")]
    assert marks == [f"@1.{number}" for number in range(8)]


def test_a_percentile_is_the_value_below_which_that_share_of_samples_lies() -> None:
    assert percentile([float(number) for number in range(100)], 99) == 99.0
    assert percentile([3.0], 50) == 3.0


def test_every_stage_of_the_time_budget_is_a_function_of_the_runtime() -> None:
    for place in chain.from_iterable(STAGES.values()):
        module, _, path = place.partition(":")
        assert callable(attrgetter(path)(import_module(module))), place


def test_failover_measures_the_cases_that_are_named_and_without_a_name_all() -> None:
    assert [case.name for case in failover.selected(Session((), cases=["columns-1m", "hot"]))] == ["hot", "columns-1m"]
    assert [case.name for case in failover.selected(Session(()))] == [*TITLES]
    assert {case.name for case in failover.selected(Session((), is_quick=True))} < {*TITLES}


def test_cases_of_failover_whose_ratio_is_given_differ_in_their_state_alone() -> None:
    by_name = {case.name: case for case in failover.CASES}
    many, few = (by_name[name] for name in failover.RATIOS["a million keys in columns to few"])
    changed = replace(many, name=few.name, pace=few.pace, fill_s=few.fill_s)
    assert changed == few
    pace = Pace("", 1_000.0, 100, 10)
    large, small = (case.pace(*astuple(pace)) for case in (many, few))
    assert isinstance(large, FewKeys)
    assert isinstance(small, FewKeys)
    assert (large.keys * large.readers, small.keys * small.readers) == (1_000_000, 1_000)


@pytest.mark.slow
def test_the_legend_of_a_chart_covers_no_curve() -> None:
    curves = {f"a curve with a name as long as those of growth, {number}": [(1.0, number)] for number in range(9)}
    figure = plots.drawn(curves, "growth", ("tasks", "bytes"))
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
