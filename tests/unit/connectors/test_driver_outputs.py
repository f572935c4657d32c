"""``collect`` and ``stdout``: rows appear in the driver once, when their checkpoint commits."""

import io
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import pyarrow
import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import blackhole, collect, files, stdout
from clonos.connectors.connector_errors import InvalidConnector, OutputFailed
from clonos.connectors.driver_outputs import DriverSink, OutputTooLarge, RowsWriter
from clonos.core.model.errors import InternalError
from clonos.operators.connector_contract import TransactionalSink
from tests.unit.connectors.writing import JOB, part_of, writer_of
from tests.unit.operators.driver import Given, Outbox, run


class Point(NamedTuple):
    x: int


def started(sink: DriverSink) -> Any:
    sink.prepare_output(JOB, resume=False, overwrite=False)
    return sink


def test_rows_are_collected_once_and_in_order_after_their_commit() -> None:
    sink = started(collect())
    later = part_of(sink, 2, [("c", 3)])
    earlier = [part_of(sink, 1, ["b"], index=1), part_of(sink, 1, [{"a": 1}])]
    assert sink.rows == []
    sink.commit(JOB, 1, earlier)
    assert sink.rows == [{"a": 1}, "b"]
    sink.commit(JOB, 1, earlier)
    sink.commit(JOB, 2, [later])
    sink.commit(JOB, 1, earlier)
    assert sink.rows == [{"a": 1}, "b", ("c", 3)]


def test_a_later_checkpoint_commits_the_rows_prepared_for_an_earlier_one() -> None:
    sink = started(collect())
    sink.commit(JOB, 3, [part_of(sink, 3, ["c"]), part_of(sink, 2, ["b"]), part_of(sink, 1, ["a"])])
    assert sink.rows == ["a", "b", "c"]


def test_copies_of_a_sink_in_the_driver_share_their_rows() -> None:
    sink = started(collect())
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    copy = cloudpickle.loads(cloudpickle.dumps(sink))
    copy.commit(JOB, 2, [part_of(copy, 2, ["b"])])
    assert sink.rows == copy.rows == ["a", "b"]
    assert collect().rows == []
    assert len(cloudpickle.dumps(sink)) == len(cloudpickle.dumps(copy))


def test_rows_may_be_read_while_they_are_collected() -> None:
    sink = started(collect())
    parts = [part_of(sink, checkpoint, list(range(20))) for checkpoint in range(50)]
    committing = threading.Thread(target=lambda: [sink.commit(JOB, n, [part]) for n, part in enumerate(parts)])
    committing.start()
    while committing.is_alive():
        assert len(sink.rows) % 20 == 0
    committing.join()
    assert len(sink.rows) == 1_000


def test_a_fresh_start_clears_collected_rows_and_a_resume_keeps_them() -> None:
    sink = started(collect())
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    sink.prepare_output(JOB, resume=True, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    assert sink.rows == ["a"]
    sink.prepare_output("another", resume=False, overwrite=False)
    assert sink.rows == []
    with pytest.raises(InternalError, match="prepared for the job 'another'"):
        sink.commit(JOB, 2, [])


def test_more_rows_than_the_limit_are_an_error() -> None:
    sink = started(collect(limit=3))
    sink.commit(JOB, 1, [part_of(sink, 1, ["a", "b"])])
    with pytest.raises(OutputTooLarge, match=r"more than 3 rows.*files\.jsonl"):
        sink.commit(JOB, 2, [part_of(sink, 2, ["c", "d"])])
    assert sink.rows == ["a", "b"]
    with pytest.raises(InvalidConnector):
        collect(limit=0)


def test_more_bytes_than_a_message_may_carry_are_an_error() -> None:
    writer = RowsWriter("collect", part_bytes_max=1_000)
    writer.write(["x" * 600])
    with pytest.raises(OutputTooLarge, match="more than 1000 bytes from one task between two checkpoints"):
        writer.write(["x" * 600])
    writer.close()


def test_columns_are_collected_as_dicts() -> None:
    sink = started(collect())
    writer = writer_of(sink)
    writer.write_columns(pyarrow.record_batch({"a": [1, 2]}))
    part = writer.prepare(1)
    assert part is not None
    assert writer.prepare(2) is None
    sink.commit(JOB, 1, [part])
    assert sink.rows == [{"a": 1}, {"a": 2}]


def test_a_malformed_part_is_refused() -> None:
    with pytest.raises(InternalError, match="not a prepared part"):
        started(collect()).commit(JOB, 1, [b"x"])


def test_rows_are_printed_once_with_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    sink = started(stdout())
    parts = [part_of(sink, 1, ["a b", Point(1)._asdict(), 2.5, None])]
    sink.commit(JOB, 1, parts)
    sink.commit(JOB, 1, parts)
    assert capsys.readouterr().out == 'a b\n{"x":1}\n2.5\nnull\n'


def test_rows_are_printed_in_the_users_format(capsys: pytest.CaptureFixture[str]) -> None:
    sink = started(stdout(format=lambda row: f"<{row}>"))
    sink.commit(JOB, 1, [part_of(sink, 1, [1])])
    assert capsys.readouterr().out == "<1>\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a device that is always full")
def test_a_closed_standard_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = started(stdout())
    part = part_of(sink, 1, ["a"])
    full = io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True)
    with full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(OutputFailed, match="standard output could not be written"):
            sink.commit(JOB, 1, [part])


def test_a_blackhole_takes_everything_and_prepares_nothing() -> None:
    sink: TransactionalSink = blackhole()
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(sink)
    writer.write([1, 2, 3])
    writer.write_columns(pyarrow.record_batch({"a": [1]}))
    assert writer.prepare(1) is None
    writer.close()
    sink.commit(JOB, 1, [])


def test_every_sink_in_the_driver_meets_the_sink_protocol() -> None:
    assert all(isinstance(sink, TransactionalSink) for sink in (collect(), stdout(), blackhole()))


def test_a_collected_row_that_is_too_deep_or_not_of_python_is_an_error_of_its_own(tmp_path: Path) -> None:
    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    times = pyarrow.array([1_000, 1, 2_000], pyarrow.time64("ns"))
    for source, bad in (
        (Given([{"n": 1}, {"n": deep}, {"n": 2}]), deep),
        (given_columns(tmp_path / "in.arrow", times), "00:00:00.000000001"),
    ):
        sink = started(collect())
        graph = JobGraph("job", errors=Outbox())
        graph.source(source, name="read").sink(sink, name="out")
        done = run(graph, parallelism=1)
        for parts in done.prepared.values():
            sink.commit(JOB, 1, parts)
        assert len(sink.rows) == 2
        (error,) = done.written["errors"]
        assert error.step == "out"
        assert str(bad)[:20] in str(error.record)


def given_columns(path: Path, column: Any) -> Any:
    batch = pyarrow.record_batch({"n": column})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return files.arrow(str(path))
