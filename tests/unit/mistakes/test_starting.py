"""Starting a job again: what is replaced, what is asked for, and what is protected."""

from __future__ import annotations

import logging
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos.api.graph import JobGraph
from clonos.config import RunOptions
from clonos.connectors import files, values
from clonos.connectors.connector_errors import OutputInUse, UnexpectedOutput
from clonos.connectors.filesystem.output_parts import OWNER, state_folder
from clonos.core.checkpoint.checkpoint_metadata import encode_metadata, metadata_of_start
from clonos.core.model.ids import CheckpointId
from clonos.core.model.options import Options
from clonos.io.store.driver_mark import JobRunning
from clonos.io.store.store import CheckpointStore, NothingToResume, StoreInUse, StoreOfAnotherJob
from clonos.job.starting import JobIdentity, JobStart, age_text, default_store
from clonos.operators.job_image import JobImage
from tests.harnesses.mistakes import check
from tests.harnesses.other_driver import another_driver


class Shop:
    """A folder with jobs, their stores and their outputs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def image(self, name: str = "etl", step: str = "double", outputs: tuple[str, ...] = ("out",)) -> JobImage:
        """A compiled job."""
        job = JobGraph(name)
        doubled = job.source(values([1, 2])).map(lambda number: {"n": number * 2}, name=step)
        for output in outputs:
            doubled.sink(files.jsonl(self.folder / output))
        return job.compile(Options(), parallelism=1)

    def start(self, image: JobImage, file: str = "/jobs/etl.py", **options: Any) -> JobStart:
        """A start that has claimed its store and its outputs."""
        identity = JobIdentity(image.plan.job_name, file)
        start = JobStart(CheckpointStore(str(self.folder / "store")), identity, RunOptions(**options))
        start.find()
        start.decide(image)
        try:
            start.begin(image, "7")
        except BaseException:
            start.undo()
            raise
        return start

    def end(self, start: JobStart, image: JobImage, is_final: bool, is_committed: bool = True) -> None:
        """Completes checkpoint 1 and ends the driver."""
        record = start.store.read_job()
        assert record is not None
        metadata = metadata_of_start(image.plan, record.job_id, 1)
        tasks = tuple(msgspec.structs.replace(task, final=is_final) for task in metadata.tasks)
        metadata = msgspec.structs.replace(metadata, checkpoint=CheckpointId(1), tasks=tasks)
        start.store.append_checkpoint(1, encode_metadata(metadata))
        if is_final and is_committed:
            start.finish()
        start.close()

    def owners(self, output: str = "out") -> list[str]:
        """Jobs that own an output."""
        found = Path(state_folder(str(self.folder / output))).rglob(OWNER)
        return [msgspec.json.decode(path.read_bytes())["job_id"] for path in found]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_finished_job_starts_afresh_and_replaces_its_output(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=True)
    before = shop.owners()
    with caplog.at_level(logging.WARNING, "clonos.run"), closing(shop.start(image)):
        assert len(shop.owners()) == 1
        assert shop.owners() != before
    assert (
        "etl has finished earlier (checkpoint 1): it starts afresh and replaces the output of that run" in caplog.text
    )


def test_an_unfinished_job_asks_for_resume_or_overwrite(shop: Shop) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=False)
    with pytest.raises(StoreInUse, match=r"unfinished: it stopped after checkpoint 1\. .*--resume.*--overwrite"):
        shop.start(image)
    with closing(shop.start(image, resume=True)) as resumed:
        assert resumed.is_resume


def test_a_resume_reports_from_which_checkpoint_the_job_continues(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=False)
    with caplog.at_level(logging.WARNING, "clonos.run"), closing(shop.start(image, resume=True)):
        pass
    assert re.search(r"etl continues from checkpoint 1, which is \d+ s old$", caplog.text, re.MULTILINE)


def test_a_resume_without_a_checkpoint_reports_that_the_job_begins_its_input_again(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    image = shop.image()
    shop.start(image).close()
    with caplog.at_level(logging.WARNING, "clonos.run"), closing(shop.start(image, resume=True)) as start:
        assert start.is_resume
    assert "etl ended before its first checkpoint: it begins its input again" in caplog.text


def test_a_resume_at_the_end_of_the_input_reports_it(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=True, is_committed=False)
    with caplog.at_level(logging.WARNING, "clonos.run"), closing(shop.start(image, resume=True)):
        pass
    assert "etl had read all its input at checkpoint 1: only its output is completed" in caplog.text


@pytest.mark.parametrize(
    ("age_s", "text"), [(-5, "0 s"), (89.7, "89 s"), (90 * 60, "90 min"), (3 * 86_400, "72 h"), (90 * 86_400, "90 d")]
)
def test_an_age_has_the_unit_that_fits(age_s: float, text: str) -> None:
    assert age_text(age_s) == text


def test_a_job_that_ended_before_a_checkpoint_starts_afresh(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    image = shop.image()
    shop.start(image).close()
    with caplog.at_level(logging.WARNING, "clonos.run"), closing(shop.start(image)) as start:
        assert not start.is_resume
    assert "etl ended before its first checkpoint and has no output: it starts afresh" in caplog.text


def test_a_job_with_effects_that_ended_before_a_checkpoint_asks(shop: Shop) -> None:
    def call(number: int) -> int:
        return number

    job = JobGraph("etl")
    job.source(values([1])).map(call, effects=True).sink(files.jsonl(shop.folder / "out"))
    image = job.compile(Options(), parallelism=1)
    shop.start(image).close()
    with pytest.raises(StoreInUse, match=r"unfinished: it stopped before a checkpoint\. .*--resume.*--overwrite"):
        shop.start(image)


def test_the_store_of_a_job_with_another_name_is_refused_as_another_jobs(shop: Shop) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=True)
    for resume in (False, True):
        with pytest.raises(StoreOfAnotherJob, match=r"holds another job: 'etl', but this is 'report'\. Give this job"):
            shop.start(shop.image("report"), resume=resume)


def test_a_job_of_the_same_name_in_another_file_is_refused_as_another_job(shop: Shop) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=True)
    message = r"holds another job: 'etl' of /jobs/etl\.py, but this is 'etl' of /jobs/other\.py"
    with pytest.raises(StoreOfAnotherJob, match=message):
        shop.start(shop.image(step="triple"), "/jobs/other.py")
    with pytest.raises(StoreOfAnotherJob, match=message):
        shop.start(shop.image(step="triple"), "/jobs/other.py", resume=True)
    shop.start(shop.image(step="triple")).close()  # the same file with other steps
    shop.start(shop.image(step="triple"), "/jobs/renamed.py").close()  # another file with the same steps


def test_a_resume_on_an_empty_store_starts_afresh_with_a_warning(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "clonos.run"), closing(shop.start(shop.image(), resume=True)) as start:
        assert not start.is_resume
        assert len(shop.owners()) == 1
    assert f"{shop.folder}/store is empty, so there is nothing to resume: etl starts afresh" in caplog.text


def test_a_resume_from_another_folder_names_the_store_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    identity = JobIdentity("etl", str(home / "etl.py"))

    def find(folder: Path, **options: Any) -> Any:
        monkeypatch.chdir(folder)
        store = CheckpointStore(options.get("store") or default_store("etl"))
        return JobStart(store, identity, RunOptions(resume=True, **options)).find()

    assert find(elsewhere) is None  # neither has a job
    monkeypatch.chdir(home)
    CheckpointStore(default_store("etl")).open_job("etl", splits={}, hash_seed="7", file=identity.file, plan="")
    with pytest.raises(NothingToResume) as refused:
        find(elsewhere)
    check(str(refused.value), f"{elsewhere}/.clonos/etl: it has no job", f"start from {home}", f"{home}/.clonos/etl")
    assert "--store" not in str(refused.value)  # relative paths of sources and outputs would be wrong here
    with pytest.raises(NothingToResume, match="start from"):
        find(elsewhere, checkpoint=3)
    assert find(elsewhere, store=str(elsewhere / "named")) is None
    assert find(home).name == "etl"


def test_a_resume_on_an_empty_store_replaces_no_output_of_others(shop: Shop) -> None:
    files.jsonl(shop.folder / "out").prepare_output("other-1", resume=False, overwrite=False)
    with pytest.raises(OutputInUse, match="other-1"):
        shop.start(shop.image(), resume=True)


def test_a_named_checkpoint_of_an_empty_store_is_refused(shop: Shop) -> None:
    with pytest.raises(NothingToResume, match="no checkpoint 3"):
        shop.start(shop.image(), resume=True, checkpoint=3)


def test_a_start_that_fails_leaves_nothing(shop: Shop) -> None:
    image = shop.image(outputs=("out", "other"))
    (shop.folder / "other").mkdir()
    start = JobStart(CheckpointStore(str(shop.folder / "store")), JobIdentity("etl", ""), RunOptions())
    start.find()
    start.decide(image)
    files.jsonl(shop.folder / "other").prepare_output("late-1", resume=False, overwrite=False)  # after the check
    with pytest.raises(OutputInUse, match="late-1"):
        start.begin(image, "7")
    start.undo()
    assert not (shop.folder / "store").exists()
    assert not list((shop.folder / "out").rglob("*"))
    assert shop.owners("other") == ["late-1"]


def test_an_occupied_output_is_found_before_the_output_of_the_earlier_run_is_replaced(shop: Shop) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=True)
    before = shop.owners()
    (shop.folder / "other").mkdir()
    (shop.folder / "other" / "precious.txt").touch()
    with pytest.raises(UnexpectedOutput, match=r"precious\.txt"):
        shop.start(shop.image(outputs=("out", "other")))
    assert shop.owners() == before


def test_a_job_whose_last_output_is_not_committed_has_not_finished(shop: Shop) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=True, is_committed=False)
    with pytest.raises(StoreInUse, match=r"--resume"):
        shop.start(image)
    start = shop.start(image, resume=True)
    start.finish()
    start.close()
    shop.start(image).close()


def test_a_failed_start_leaves_a_job_that_another_driver_has_taken_over(shop: Shop) -> None:
    image = shop.image()
    late = shop.start(image)
    late.close()  # its mark is gone, as after a long pause
    successor = shop.start(image, resume=True)
    owners = shop.owners()
    late.undo()
    assert shop.owners() == owners != []
    assert successor.store.read_job() is not None
    successor.close()


def test_a_failed_start_does_not_remove_a_file_that_the_job_would_have_replaced(shop: Shop) -> None:
    file = shop.folder / "report.jsonl"
    file.write_text("mine")
    sink = files.jsonl(file, single=True)
    sink.prepare_output("etl-1", resume=False, overwrite=True)
    sink.release_output("etl-1")
    assert file.read_text() == "mine"


# ---------------------------------------------------------------------- a running job


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
def test_a_running_job_is_recognized_and_protected(shop: Shop, options: dict[str, Any]) -> None:
    image = shop.image()
    shop.end(shop.start(image), image, is_final=False)
    with (
        another_driver(shop.folder / "store") as pid,
        pytest.raises(
            JobRunning, match=rf"etl is running on host .* as process {pid}, since \d{{4}}-.*kill -INT {pid}"
        ),
    ):
        shop.start(image, **options)
    shop.start(image, resume=True).close()  # the process is dead, its mark is not


def test_a_job_that_runs_in_this_process_is_ended_by_its_handle(shop: Shop) -> None:
    image = shop.image()
    with (
        closing(shop.start(image)),
        pytest.raises(JobRunning, match=r"running in this process.*first close its handle"),
    ):
        shop.start(image)


@pytest.mark.parametrize("has_effects", [False, True])
def test_of_two_starts_at_the_same_moment_the_second_is_refused_as_the_job_runs(shop: Shop, has_effects: bool) -> None:
    job = JobGraph("etl")
    job.source(values([1])).map(lambda n: {"n": n}, effects=has_effects).sink(files.jsonl(shop.folder / "out"))
    image = job.compile(Options(), parallelism=1)
    identity = JobIdentity("etl", "/jobs/etl.py")
    starts = [JobStart(CheckpointStore(str(shop.folder / "store")), identity, RunOptions()) for _ in range(2)]
    for start in starts:  # both find an empty store
        assert start.find() is None
        start.decide(image)
    with closing(starts[0]):
        starts[0].begin(image, "7")
        with pytest.raises(JobRunning, match="etl is running in this process"):
            starts[1].begin(image, "7")
        starts[1].undo()
        owners = shop.owners()
        assert len(owners) == 1
        with pytest.raises(JobRunning):  # the mark of the first one stands
            JobStart(CheckpointStore(str(shop.folder / "store")), identity, RunOptions(resume=True)).find()
        record = starts[0].store.read_job()
        assert record is not None
        assert [record.job_id] == owners


def test_a_driver_that_died_before_it_created_the_job_does_not_prevent_a_start(shop: Shop) -> None:
    with another_driver(shop.folder / "store"):
        pass
    assert os.listdir(shop.folder / "store" / "drivers") == ["000001"]
    running = shop.start(shop.image())
    assert os.listdir(shop.folder / "store" / "drivers") == ["000002"]
    running.close()
    assert not os.listdir(shop.folder / "store" / "drivers")
