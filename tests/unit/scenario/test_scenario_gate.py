"""Gate of the shipped job's source: it admits input in order, and repeats it to a later incarnation."""

from __future__ import annotations

from pathlib import Path

from clonos_chaos.scenario.scenario_gate import Gate, Gated


def test_a_gated_source_reads_up_to_the_gate_and_ends_at_the_given_end(tmp_path: Path) -> None:
    gate, source = Gate(tmp_path), Gated(tmp_path)
    reader = source.reader()
    reader.open(b"1", None)
    assert reader.read(10) == []
    gate.open_to(9)
    assert reader.read(3) == [(1, 0), (1, 1), (1, 2)]
    assert reader.read(3) == [(1, 3)]
    assert reader.read(3) == []
    gate.end()
    assert reader.read(3) is None


def test_records_read_before_are_available_at_once_to_a_later_incarnation(tmp_path: Path) -> None:
    gate, source = Gate(tmp_path), Gated(tmp_path)
    gate.open_to(8)
    first, second = source.reader(), source.reader()
    first.open(b"0", None)
    assert first.read(2) == [(0, 0), (0, 1)]
    second.open(b"0", first.mark())
    assert second.read(10) == [(0, 2), (0, 3)]
    assert second.mark() == b"4"


def test_a_gate_never_closes(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    gate.open_to(8)
    gate.open_to(4)
    assert gate.records == 8
