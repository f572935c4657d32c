"""``files.arrow``: record batches as splits, marks within them, damaged files, and the sink."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged, InputMalformed, InvalidConnector, SplitMalformed
from tests.unit.connectors.reading import read_all, read_piecewise
from tests.unit.connectors.writing import JOB, part_of, writer_of

ROWS = [{"n": number, "word": f"w{number}"} for number in range(100)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 rows in batches of 30."""
    found = tmp_path_factory.mktemp("arrow") / "in.arrow"
    table = pyarrow.Table.from_pylist(ROWS)
    with pyarrow.ipc.new_file(found, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    return found


@pytest.mark.parametrize("ordered", [True, False])
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_each_row_is_read_once_from_every_mark(path: Path, sizes: list[int], ordered: bool) -> None:
    source = files.arrow(path, ordered=ordered)
    splits = source.splits(2)
    assert len(splits) == (1 if ordered else 4)
    assert [row for split in splits for piece in read_piecewise(source, split, sizes) for row in piece] == ROWS


def test_only_the_columns_asked_for_are_read(path: Path) -> None:
    assert read_all(files.arrow(path, columns=["word"])) == [{"word": row["word"]} for row in ROWS]
    with pytest.raises(InvalidConnector, match=r"files.arrow: .* has no column 'm'\. It has n, word"):
        files.arrow(path, columns=["m"]).splits(1)


def test_a_file_that_changed_or_is_not_arrow_is_refused(tmp_path: Path, path: Path) -> None:
    damaged = tmp_path / "in.arrow"
    damaged.write_bytes(b"no Arrow at all")
    with pytest.raises(InputMalformed, match="it is not a readable Arrow IPC file"):
        files.arrow(damaged).splits(1)
    damaged.write_bytes(path.read_bytes())
    source = files.arrow(damaged)
    split = source.splits(1)[0]
    reader = source.reader()
    with pytest.raises(SplitMalformed, match="position in record batches of a file"):
        reader.open(split, b"1")
    os.utime(damaged, ns=(1, 1))
    with pytest.raises(InputChanged):
        reader.open(split, None)


def test_small_batches_that_follow_each_other_are_joined(path: Path) -> None:
    source = files.arrow(path, ordered=True)
    reader = source.reader()
    reader.open(source.splits(1)[0], None)
    batch: Any = reader.read(1_000)
    assert batch.num_rows == 100
    assert reader.read(1_000) is None


def test_rows_are_written_and_read_back(tmp_path: Path) -> None:
    sink = files.arrow(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, ROWS)])
    assert list(files.read_committed(tmp_path / "out")) == ROWS
    assert read_all(files.arrow(tmp_path / "out")) == ROWS


def test_a_single_file_has_the_rows_and_types_of_all_parts(tmp_path: Path) -> None:
    sink = files.arrow(tmp_path / "out.arrow", single=True)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"n": 1}])])
    sink.commit(JOB, 2, [part_of(sink, 2, [{"n": 2, "x": 0.5}])])
    sink.finish_output(JOB)
    assert read_all(files.arrow(tmp_path / "out.arrow")) == [{"n": 1, "x": None}, {"n": 2, "x": 0.5}]


def test_dictionaries_that_differ_are_decoded(tmp_path: Path) -> None:
    """A file has one dictionary for all its batches."""
    sink = files.arrow(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(sink)
    for word in ("a", "b"):
        writer.write_columns(pyarrow.record_batch({"word": pyarrow.array([word]).dictionary_encode()}))
    part = writer.prepare(1)
    writer.close()
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert list(files.read_committed(tmp_path / "out")) == [{"word": "a"}, {"word": "b"}]


def test_a_file_whose_names_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.arrow"
    batch = pyarrow.record_batch({"name": [1]})
    with pyarrow.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    path.write_bytes(path.read_bytes().replace(b"name", b"\xff\xff\xff\xff"))
    with pytest.raises(InputMalformed, match="it is not a readable Arrow IPC file"):
        files.arrow(path).splits(1)
