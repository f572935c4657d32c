"""Values and outputs that are not what their place suggests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

from clonos import files, values
from clonos.connectors.connector_errors import InvalidConnector
from tests.unit.connectors.writing import JOB, part_of


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ("abc", "the values are a str. Each character would be a record"),
        ({"a": 1}, r"the values are a dict. Only its keys would be records. Give list\(values.items\(\)\)"),
        (pandas.DataFrame({"a": [1]}), r"the values are a DataFrame. Give its rows: frame.to_dict\('records'\)"),
        (pyarrow.table({"a": [1]}), r"the values are a Table.* \.to_pylist\(\) of Arrow"),
    ],
    ids=["a text", "a dict", "a frame of pandas", "a table of Arrow"],
)
def test_a_collection_whose_items_are_no_records_is_refused(records: Any, sentence: str) -> None:
    with pytest.raises(InvalidConnector, match=sentence):
        values(records)


def test_a_value_that_a_step_has_changed_is_read_again_as_it_was() -> None:
    source = values([{"n": 1}, {"n": 2}], ordered=True)
    (split,) = source.splits(1)
    for _ in range(2):  # as a task does that begins again in the same process
        reader = source.reader()
        reader.open(split, None)
        records = reader.read(10)
        assert records == [{"n": 1}, {"n": 2}]
        records[0]["n"] = 100


@pytest.mark.parametrize("is_single", [True, False])
def test_a_pipe_as_an_output_is_refused_and_stays(tmp_path: Path, is_single: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidConnector, match="it is a device, a pipe or a socket"):
        files.jsonl(pipe, single=is_single).prepare_output("etl-1", resume=False, overwrite=True)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_resume_warns_of_committed_parts_that_are_no_longer_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    sink.prepare_output(JOB, resume=True, overwrite=False)
    assert not caplog.messages
    for part in (tmp_path / "out").iterdir():
        part.unlink()
    sink.prepare_output(JOB, resume=True, overwrite=False)
    (message,) = caplog.messages
    assert message.startswith(f"1 committed part files of {tmp_path}/out are no longer there, such as part-")
