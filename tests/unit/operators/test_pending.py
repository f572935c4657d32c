"""What waits in the external system of a source: the sum over the splits of a task, in records."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import files
from clonos.connectors.in_memory import values
from clonos.operators.connector_contract import PendingInput
from clonos.operators.split_source import SourceHead
from tests.unit.operators import test_source
from tests.unit.operators.driver import Given

Head = Callable[..., tuple[SourceHead, test_source.Taken]]


@pytest.fixture
def head() -> Iterator[Head]:
    made: list[SourceHead] = []

    def make(*arguments: Any, **options: Any) -> tuple[SourceHead, test_source.Taken]:
        found = test_source.head(*arguments, **options)
        made.append(found[0])
        return found

    yield make
    for each in made:
        each.close()


class Counted:
    """Source whose readers report what they are given. Each read gives two records."""

    def __init__(self, **reported: PendingInput | Exception | None) -> None:
        self.reported = reported

    def reader(self) -> CountedReader:
        return CountedReader(self.reported)


class CountedReader:
    def __init__(self, reported: dict[str, PendingInput | Exception | None]) -> None:
        self.reported, self.reads = reported, 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.name = split.decode()

    def read(self, records_max: int) -> list[str]:
        self.reads += 1
        return [self.name, self.name]

    def mark(self) -> bytes:
        return b"%d" % self.reads

    def pending(self) -> PendingInput | None:
        reported = self.reported[self.name]
        if isinstance(reported, Exception):
            raise reported
        return reported

    def close(self) -> None:
        pass


def read(made: SourceHead, records: int) -> None:
    """Reads this number of records, of any split."""
    while records:
        found = made.poll(records)
        assert isinstance(found, tuple)
        made.read(*found)
        records -= found[1]


def open_all(made: SourceHead) -> None:
    for split in made._splits.values():
        split.buffered(1)


def test_records_of_all_splits_count_with_those_that_were_read_ahead(head: Head) -> None:
    made, _ = head(Counted(a=PendingInput(10), b=PendingInput(5)), [b"a", b"b"])
    open_all(made)
    assert made.pending() == PendingInput(19)
    made.read(0, 1)
    assert made.pending() == PendingInput(18)


def test_the_sum_is_unknown_while_one_split_does_not_report(head: Head) -> None:
    made, _ = head(Counted(a=PendingInput(10), b=None), [b"a", b"b"])
    assert made.pending() is None
    open_all(made)
    assert made.pending() is None


def test_bytes_are_also_records_of_the_mean_length_that_was_read(head: Head) -> None:
    source = Counted(a=PendingInput(bytes=900, read_bytes=100))
    made, _ = head(source, [b"a"])
    made.poll(1)
    assert made.pending() == PendingInput(None, 900)
    made.read(0, 2)
    made.poll(1)
    source.reported["a"] = PendingInput(bytes=860, read_bytes=140)
    assert made.pending() == PendingInput(43 + 2, 860)


def test_an_exception_is_reported_once_and_the_source_reads_on(head: Head, caplog: pytest.LogCaptureFixture) -> None:
    made, taken = head(Counted(a=ValueError("no connection")), [b"a"])
    open_all(made)
    with caplog.at_level(logging.WARNING):
        assert made.pending() is None
        assert made.pending() is None
    [message] = caplog.messages
    assert "numbers: pending() of its source raised ValueError('no connection')" in message
    read(made, 4)
    assert taken.records == ["a"] * 4


def test_a_source_without_the_contract_is_unknown_and_an_ended_source_has_nothing(head: Head) -> None:
    source = Given([b"1", b"2"])
    made, _ = head(source, source.splits(1))
    assert made.pending() is None
    read(made, 2)
    made.poll(1)
    assert made.pending() == PendingInput(0)


def test_a_list_reports_what_is_left_before_and_after_it_is_opened(head: Head) -> None:
    source = values(range(5_000), splits=2)
    made, _ = head(source, source.splits(1))
    assert made.pending() == PendingInput(5_000)
    read(made, 1_500)
    assert made.pending() == PendingInput(3_500)


@pytest.mark.parametrize("kind", ["lines", "jsonl", "csv"])
def test_files_report_the_bytes_that_are_left_and_about_how_many_records(head: Head, tmp_path: Path, kind: str) -> None:
    lines = {"lines": "0123456", "jsonl": '{"a":1}', "csv": "a,b,c,d"}
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{lines[kind]}\n" * 10_000)
    source: Any = getattr(files, kind)(str(tmp_path / "*.txt"))
    splits = source.splits(1)
    made, _ = head(source, splits, is_columnar=kind == "csv")
    assert made.pending() == PendingInput(None, 160_000)
    made.poll(1_000)
    made.pending()
    read(made, 4_000)
    found = made.pending()
    assert found is not None
    assert found.records is not None
    assert found.bytes is not None
    assert abs(found.records - 16_000) < 200
    assert 120_000 < found.bytes <= 128_000


def test_a_compressed_file_does_not_report_what_is_left(head: Head, tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"1\n" * 100))
    source: Any = files.lines(str(tmp_path / "a.txt.gz"))
    made, _ = head(source, source.splits(1))
    assert made.pending() is None
    made.poll(1)
    assert made.pending() is None


def test_a_tailed_file_reports_what_was_written_when_it_was_last_looked_at(head: Head, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"0123456\n" * 100)
    source: Any = files.tail(str(log))
    made, _ = head(source, source.splits(1))
    assert made.pending() is None
    made.poll(10)
    read(made, 30)
    found = made.pending()
    assert found == PendingInput(70, 0)
    with log.open("ab") as file:
        file.write(b"0123456\n" * 50 + b"012")
    read(made, 70)
    made.poll(1)
    assert made.pending() == PendingInput(50, 3)
