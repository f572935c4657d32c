"""The source of the demo, whose input ends on demand."""

from pathlib import Path

from clonos.connectors import values
from clonos.demo.stoppable import Stoppable


def test_a_reader_that_takes_over_in_the_middle_reads_what_was_read_before_although_the_input_has_ended(
    tmp_path: Path,
) -> None:
    source = Stoppable(values(range(100)), tmp_path / "stop")
    (split,) = source.splits(1)
    first = source.reader()
    first.open(split, None)
    read, mark = first.read(1_000), first.mark()
    assert read is not None
    (tmp_path / "stop").touch()
    assert first.read(1_000) is None
    successor = source.reader()
    successor.open(split, mark)
    assert successor.read(1_000) is not None
    assert successor.read(1_000) is None
    new = source.reader()
    new.open(split, None)
    assert new.read(1_000) is None
