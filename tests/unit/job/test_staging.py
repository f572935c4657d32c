"""Input that is written when a job first starts: when it is written, found again, and removed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from clonos.api.graph import JobGraph
from clonos.config import RunOptions
from clonos.connectors import files
from clonos.connectors.connector_errors import InvalidConnector, OutputInUse
from clonos.connectors.filesystem.line_files import LineFiles
from clonos.core.checkpoint.checkpoint_metadata import encode_metadata, metadata_of_start
from clonos.core.model.ids import CheckpointId
from clonos.core.model.options import Options
from clonos.io.store.store import CheckpointStore, StoreInUse
from clonos.job.staging import StagedInput, StagedSource
from clonos.job.starting import JobIdentity, JobStart

LINES = "one\ntwo\n"


class Written:
    """A staged source of lines that stands for a DataFrame."""

    session = None

    def __init__(self, input_folder: str = "", problem: str = "") -> None:
        self.input_folder, self.problem = input_folder, problem
        self.lines: LineFiles[str] = files.lines("nothing")

    def write_input(self, folder: str) -> None:
        """Writes a file, and fails after that if it has a problem."""
        Path(folder).mkdir(parents=True)
        (Path(folder) / "part").write_text(LINES, "utf-8")
        if self.problem:
            raise OSError(self.problem)
        self.lines = files.lines(f"{folder}/part")

    def find_input(self, root: str) -> None:
        """Finds the file of an earlier start."""
        self.lines = files.lines(f"{root}/*/part")

    def splits(self, parallelism: int) -> list[bytes]:
        """A block of the file."""
        return self.lines.splits(parallelism)

    def reader(self) -> Any:
        """A reader of lines."""
        return self.lines.reader()


def _graph(source: Any, folder: Path) -> JobGraph:
    graph = JobGraph("etl")
    graph.source(source, name="read").sink(files.jsonl(folder / "out"))
    return graph


def _start(folder: Path, **options: Any) -> JobStart:
    start = JobStart(CheckpointStore(str(folder / "store")), JobIdentity("etl", "/jobs/etl.py"), RunOptions(**options))
    start.find()
    return start


def _begun(start: JobStart, source: Any, folder: Path) -> JobStart:
    """A start that has gone as far as the driver."""
    graph = _graph(source, folder)
    start.stage(graph)
    image = graph.compile(
        Options(), splits=getattr(start.store.read_job(), "splits", None) if start.is_resume else None
    )
    start.decide(image)
    start.begin(image, "7")
    return start


def _complete(start: JobStart, folder: Path) -> None:
    """Completes checkpoint 1 of a start, which is not the last one."""
    record = start.store.read_job()
    assert record is not None
    source = Written()
    source.find_input(f"{folder}/store/frames")
    image = _graph(source, folder).compile(Options(), splits=record.splits)
    metadata = metadata_of_start(image.plan, record.job_id, 1)
    start.store.append_checkpoint(1, encode_metadata(structs.replace(metadata, checkpoint=CheckpointId(1))))


def _inputs(folder: Path) -> list[Path]:
    return sorted((folder / "store" / "frames").glob("*/part"))


def test_a_source_that_is_not_staged_is_no_staged_source() -> None:
    assert isinstance(Written(), StagedSource)
    assert not isinstance(files.lines("texts"), StagedSource)


def test_a_fresh_start_writes_the_input_into_the_store(tmp_path: Path) -> None:
    with closing(_begun(_start(tmp_path), Written(), tmp_path)):
        (part,) = _inputs(tmp_path)
    assert part.parent.name.startswith("read-")
    assert part.read_text("utf-8") == LINES


def test_a_start_that_fails_later_removes_the_input_and_its_folders(tmp_path: Path) -> None:
    begun = _begun(_start(tmp_path), Written(), tmp_path)
    begun.undo()
    assert not (tmp_path / "store").exists()


def test_an_input_that_cannot_be_written_is_removed(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the disk is full"):
        _start(tmp_path).stage(_graph(Written(problem="the disk is full"), tmp_path))
    assert not (tmp_path / "store" / "frames").exists()


def test_a_resume_finds_the_input_and_writes_no_other(tmp_path: Path) -> None:
    with closing(_begun(_start(tmp_path), Written(), tmp_path)):
        pass
    before = _inputs(tmp_path)
    resumed = Written(problem="it is not written again")
    with closing(_begun(_start(tmp_path, resume=True), resumed, tmp_path)):
        assert _inputs(tmp_path) == before
    assert resumed.splits(1)


def test_a_start_that_replaces_a_job_removes_the_input_of_that_job(tmp_path: Path) -> None:
    with closing(_begun(_start(tmp_path), Written(), tmp_path)):
        (before,) = _inputs(tmp_path)
    with closing(_begun(_start(tmp_path, overwrite=True), Written(), tmp_path)):
        (after,) = _inputs(tmp_path)
    assert after != before


def test_a_start_that_is_refused_for_its_output_leaves_the_input_of_the_other_job(tmp_path: Path) -> None:
    with closing(_begun(_start(tmp_path), Written(), tmp_path)):
        before = _inputs(tmp_path)
    other = JobStart(CheckpointStore(str(tmp_path / "other")), JobIdentity("etl", "/jobs/etl.py"), RunOptions())
    other.find()
    with pytest.raises(OutputInUse):
        _begun(other, Written(), tmp_path)
    other.undo()
    assert _inputs(tmp_path) == before
    assert not (tmp_path / "other").exists()


def test_an_unfinished_job_in_the_store_is_seen_before_the_input_is_written(tmp_path: Path) -> None:
    with closing(_begun(_start(tmp_path), Written(), tmp_path)) as start:
        _complete(start, tmp_path)
    with pytest.raises(StoreInUse):
        _start(tmp_path).stage(_graph(Written(problem="it is written"), tmp_path))


def test_a_store_that_is_no_folder_asks_for_one(tmp_path: Path) -> None:
    staged = StagedInput(_graph(Written(), tmp_path), CheckpointStore("webhdfs://head.example/store"))
    with pytest.raises(InvalidConnector, match=r"webhdfs://head.example/store is no folder .* folder=\.\.\."):
        staged.write()


def test_stores_keep_their_input_apart_in_a_folder_of_the_user(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    staged = []
    for store in ("webhdfs://head.example/one", "webhdfs://head.example/two"):
        staged.append(StagedInput(_graph(Written(shared), tmp_path), CheckpointStore(store)))
        staged[-1].write()
        staged[-1].remove_others()
    assert len(list(Path(shared).glob("*/read-*/part"))) == 2
    staged[0].remove()
    assert len(list(Path(shared).glob("*/read-*/part"))) == 1
