"""Output folders: prepared parts are hidden, committed ones are whole, and repeats and deaths change nothing."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from xxhash import xxh3_64_hexdigest

from clonos.connectors import files
from clonos.connectors.connector_errors import (
    InputMissing,
    InvalidConnector,
    NotOutputOwner,
    OutputConflict,
    OutputCorrupt,
    OutputFailed,
    OutputInUse,
    OutputUnusable,
    UnexpectedOutput,
)
from clonos.connectors.filesystem.file_sinks import FileSink
from clonos.connectors.filesystem.json_files import JsonFiles
from clonos.connectors.filesystem.output_parts import state_folder
from clonos.core.model.errors import InternalError
from clonos.operators.connector_contract import ImmediateSink, TransactionalSink
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of, writer_of

SINKS: dict[str, Callable[[Path], FileSink]] = {"jsonl": files.jsonl, "csv": files.csv, "parquet": files.parquet}


@pytest.fixture
def sink(tmp_path: Path) -> JsonFiles:
    started = files.jsonl(tmp_path / "out")
    started.prepare_output(JOB, resume=False, overwrite=False)
    return started


def shown(sink: FileSink) -> list[Any]:
    return list(files.read_committed(sink.folder()))


def hidden(sink: FileSink, *names: str) -> Path:
    return Path(state_folder(sink.folder()), *names)


def manifest_path(sink: FileSink, checkpoint: int = 1) -> Path:
    return hidden(sink, "manifests", f"{checkpoint:020}.manifest")


def prepared(sink: FileSink) -> list[str]:
    """Names of the parts that are not committed, and of unfinished ones."""
    return sorted(os.listdir(hidden(sink, "parts")))


def visible(sink: FileSink) -> list[str]:
    """Names that a reader of the folder sees."""
    return sorted(os.listdir(sink.folder()))


def a_part(checkpoint: int, index: int = 0, incarnation: int = 1) -> str:
    return f"part-{checkpoint:010}-count_words-{index}-0-{incarnation}.jsonl"


def test_an_output_behind_a_link_that_leads_nowhere_is_refused_and_its_target_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("not-mounted")
    with pytest.raises(OutputUnusable, match=r"out is a link to not-mounted, which does not exist: make that folder"):
        files.jsonl(tmp_path / "out").prepare_output(JOB, resume=False, overwrite=False)
    assert not (tmp_path / "not-mounted").exists()


@pytest.mark.parametrize("kind", SINKS)
def test_rows_become_visible_once_with_their_commit(tmp_path: Path, kind: str) -> None:
    sink = SINKS[kind](tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    first = [part_of(sink, 1, [{"word": "a"}, {"word": "b"}]), part_of(sink, 1, [{"word": "c"}], index=1)]
    assert shown(sink) == []
    sink.commit(JOB, 1, first)
    assert shown(sink) == [{"word": "a"}, {"word": "b"}, {"word": "c"}]
    sink.commit(JOB, 1, first[::-1])
    sink.commit(JOB, 2, [part_of(sink, 2, [{"word": "d"}])])
    assert [row["word"] for row in shown(sink)] == ["a", "b", "c", "d"]
    assert [(part.checkpoint, part.task, part.rows) for part in files.committed(tmp_path / "out")] == [
        (1, "count words/0", 2),
        (1, "count words/1", 1),
        (2, "count words/0", 1),
    ]


@pytest.mark.parametrize("kind", SINKS)
def test_columns_are_written_like_rows(tmp_path: Path, kind: str) -> None:
    sink = SINKS[kind](tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    writer = writer_of(sink)
    writer.write_columns(pyarrow.record_batch({"word": ["a", "b"]}))
    writer.write([{"word": "c"}])
    writer.write_columns(pyarrow.record_batch({"word": ["d"]}))
    part = writer.prepare(1)
    writer.close()
    assert part is not None
    sink.commit(JOB, 1, [part])
    assert [row["word"] for row in shown(sink)] == ["a", "b", "c", "d"]


def test_an_epoch_without_rows_writes_no_part_and_no_manifest(sink: JsonFiles) -> None:
    writer = writer_of(sink)
    writer.write([])
    assert writer.prepare(1) is None
    writer.close()
    sink.commit(JOB, 1, [])
    assert prepared(sink) == visible(sink) == []
    assert os.listdir(hidden(sink, "manifests")) == ["owner"]


def test_a_writer_starts_a_new_part_after_each_barrier(sink: JsonFiles) -> None:
    writer = writer_of(sink)
    parts = []
    for checkpoint in (1, 2, 3):
        writer.write([checkpoint])
        parts.append(writer.prepare(checkpoint))
    writer.close()
    sink.commit(JOB, 1, [part for part in parts[:1] if part])
    sink.commit(JOB, 3, [part for part in parts[1:] if part])
    assert shown(sink) == [1, 2, 3]


def test_a_commit_repeated_with_other_parts_is_refused_and_changes_nothing(sink: JsonFiles) -> None:
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    with pytest.raises(OutputConflict, match="its manifest exists with other parts"):
        sink.commit(JOB, 1, [part_of(sink, 1, ["b"], incarnation=2)])
    assert shown(sink) == ["a"]


def test_two_parts_of_one_task_for_one_barrier_are_refused(sink: JsonFiles) -> None:
    parts = [part_of(sink, 1, ["a"]), part_of(sink, 1, ["a"], incarnation=2)]
    with pytest.raises(OutputConflict, match="two parts for one barrier"):
        sink.commit(JOB, 1, parts)
    assert shown(sink) == []


def test_a_death_between_part_and_manifest_neither_shows_nor_loses_rows(sink: JsonFiles) -> None:
    part = part_of(sink, 1, ["a"])
    # The driver dies here. Another one resumes, and learns from the store that checkpoint 1 is complete.
    again = files.jsonl(sink.folder())
    again.prepare_output(JOB, resume=True, overwrite=False)
    assert shown(again) == []
    again.commit(JOB, 1, [part])
    assert shown(again) == ["a"]


def test_a_half_written_manifest_is_invisible_and_removed(sink: JsonFiles) -> None:
    part = part_of(sink, 1, ["a"])
    torn = hidden(sink, "manifests", "00000000000000000001.manifest.0.writing")
    torn.write_bytes(b'{"format":1,"job_id":"wo')
    assert shown(sink) == []
    sink.commit(JOB, 1, [part])
    assert shown(sink) == ["a"]
    sink.prepare_output(JOB, resume=True, overwrite=False)
    assert not torn.exists()


def test_the_successor_of_a_dead_writer_writes_the_same_rows_once(sink: JsonFiles) -> None:
    dead = writer_of(sink, incarnation=1)
    dead.write(["a", "b"])
    part_of(sink, 1, ["a", "b"], incarnation=2)  # prepared, and dead before anybody heard of it
    sink.commit(JOB, 1, [part_of(sink, 1, ["a", "b"], incarnation=3)])
    assert shown(sink) == ["a", "b"]
    dead.close()
    sink.prepare_output(JOB, resume=True, overwrite=False)
    assert prepared(sink) == []
    assert visible(sink) == [a_part(1, incarnation=3)]


def test_resuming_removes_only_files_that_can_never_be_visible(sink: JsonFiles) -> None:
    sink.commit(JOB, 2, [part_of(sink, 2, ["a"])])
    part_of(sink, 1, ["superseded"], incarnation=9)
    awaiting = part_of(sink, 3, ["awaits its commit"], incarnation=2)
    living = writer_of(sink, incarnation=4)
    living.write(["being written"])
    hidden(sink, "parts", "count_words-0-0-5.writing").write_bytes(b"of a dead process")
    sink.prepare_output(JOB, resume=True, overwrite=False)
    assert prepared(sink) == ["count_words-0-0-4.writing", f"{a_part(3, incarnation=2)}.prepared"]
    assert visible(sink) == [a_part(2)]
    living.close()
    sink.commit(JOB, 3, [awaiting])
    assert shown(sink) == ["a", "awaits its commit"]


def test_a_writer_that_is_closed_leaves_nothing_unfinished(sink: JsonFiles) -> None:
    writer = writer_of(sink)
    writer.write(["a"])
    writer.close()
    assert prepared(sink) == visible(sink) == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_fresh_start_on_a_used_folder_is_refused(sink: JsonFiles, committed: bool) -> None:
    if committed:
        sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    with pytest.raises(OutputInUse, match=r"--resume.*--overwrite"):
        files.jsonl(sink.folder()).prepare_output("other-1", resume=False, overwrite=False)


def test_two_sinks_of_one_job_cannot_share_a_folder(sink: JsonFiles) -> None:
    with pytest.raises(OutputInUse, match="committed checkpoints of the job"):
        files.csv(sink.folder()).prepare_output(JOB, resume=False, overwrite=False)


def test_a_folder_with_files_of_others_is_refused_and_never_cleared(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    sink = files.jsonl(tmp_path)
    with pytest.raises(UnexpectedOutput, match=r"1 file that no job wrote, such as 'precious\.txt'.*leaves them there"):
        sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.prepare_output(JOB, resume=False, overwrite=True)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_overwriting_replaces_an_earlier_output(sink: JsonFiles) -> None:
    sink.commit(JOB, 1, [part_of(sink, 1, ["old"])])
    later = files.jsonl(sink.folder())
    later.prepare_output("other-1", resume=False, overwrite=True)
    assert shown(later) == []
    assert prepared(later) == visible(later) == []
    with pytest.raises(NotOutputOwner, match="belongs to the job other-1"):
        sink.commit(JOB, 2, [part_of(sink, 2, ["of the job before"])])
    assert shown(later) == []


def test_resuming_with_the_folder_of_another_job_is_refused(sink: JsonFiles) -> None:
    with pytest.raises(NotOutputOwner, match=f"belongs to the job {JOB}, not to other-1"):
        files.jsonl(sink.folder()).prepare_output("other-1", resume=True, overwrite=False)


def test_resuming_makes_a_folder_that_is_missing(tmp_path: Path) -> None:
    sink = files.jsonl(tmp_path / "out")
    sink.prepare_output(JOB, resume=True, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    assert shown(sink) == ["a"]


def test_a_withdrawal_removes_the_output_after_a_checkpoint(sink: JsonFiles) -> None:
    for checkpoint in (1, 2, 5, 6):
        sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [checkpoint])])
    part_of(sink, 7, ["prepared"])
    assert files.roll_back(sink.folder(), JOB, 2) == [6, 5]
    assert shown(sink) == [1, 2]
    assert prepared(sink) == []
    assert visible(sink) == [a_part(1), a_part(2)]
    sink.commit(JOB, 8, [part_of(sink, 8, [8], incarnation=2)])
    assert shown(sink) == [1, 2, 8]
    with pytest.raises(NotOutputOwner):
        files.roll_back(sink.folder(), "other-1", 0)


def test_a_part_that_the_driver_does_not_find_is_not_made_visible(sink: JsonFiles) -> None:
    parts = [part_of(sink, 1, ["a"]), part_of(sink, 1, ["b"], index=1)]
    hidden(sink, "parts", f"{a_part(1, index=1)}.prepared").unlink()
    with pytest.raises(OutputFailed, match="count words/1 wrote it"):
        sink.commit(JOB, 1, parts)
    assert shown(sink) == []


def test_a_part_that_was_truncated_is_not_made_visible(sink: JsonFiles) -> None:
    part = part_of(sink, 1, ["a"])
    os.truncate(hidden(sink, "parts", f"{a_part(1)}.prepared"), 2)
    with pytest.raises(OutputCorrupt, match="4 bytes, found 2 bytes"):
        sink.commit(JOB, 1, [part])


def test_a_flipped_byte_in_committed_output_is_found(sink: JsonFiles) -> None:
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    Path(sink.folder(), a_part(1)).write_bytes(b'"b"\n')
    with pytest.raises(OutputCorrupt, match="expected xxh3"):
        shown(sink)


def test_a_corrupt_manifest_is_named(sink: JsonFiles) -> None:
    manifest_path(sink).write_bytes(b"{}")
    with pytest.raises(OutputCorrupt, match=r"00000000000000000001\.manifest"):
        shown(sink)


DEEP = b"[" * 5_000


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        b'{"surprise": %b' % DEEP,
        b"\xff",
        b'{"format": 9}',
        b'{"format":1,"job_id":"j","checkpoint":2,"parts":[]}',
    ],
)
def test_a_malformed_manifest_raises_only_the_corrupt_error(sink: JsonFiles, content: bytes) -> None:
    manifest_path(sink).write_bytes(content)
    with pytest.raises(OutputCorrupt, match=r"00000000000000000001\.manifest"):
        shown(sink)


@pytest.mark.parametrize("content", [DEEP, b'{"surprise": %b' % DEEP, b"\xff", b"[]"])
def test_a_malformed_owner_file_raises_only_the_corrupt_error(sink: JsonFiles, content: bytes) -> None:
    hidden(sink, "manifests", "owner").write_bytes(content)
    with pytest.raises(OutputCorrupt, match=r"manifests/owner of"):
        sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])


@pytest.mark.parametrize("part", [DEEP, b'{"surprise": %b' % DEEP, b"\xff", b"{}"])
def test_a_malformed_prepared_part_raises_only_the_refusal(sink: JsonFiles, part: bytes) -> None:
    with pytest.raises(InternalError, match="is not a prepared part"):
        sink.commit(JOB, 1, [part])


def test_a_manifest_that_names_parts_of_another_folder_is_refused(sink: JsonFiles) -> None:
    sink.commit(JOB, 1, [part_of(sink, 1, ["a"])])
    manifest = manifest_path(sink)
    manifest.write_bytes(manifest.read_bytes().replace(b"part-0000000001", b"../../part-0000000001"))
    for look in (shown, lambda sink: read_all(files.jsonl(sink.folder())), lambda sink: sink.roll_back(JOB, 1)):
        with pytest.raises(OutputCorrupt, match="matching regex"):
            look(sink)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("jsonl", b'{"word": \n'),
        ("jsonl", b"\xff\n"),
        ("csv", b"word\n\xff\n"),
        ("csv", b"word\n" + b"x" * 200_000),
        ("parquet", b"PAR1 is not enough"),
    ],
)
def test_unreadable_committed_rows_raise_only_the_corrupt_error(tmp_path: Path, kind: str, content: bytes) -> None:
    sink = SINKS[kind](tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    sink.commit(JOB, 1, [part_of(sink, 1, [{"word": "a"}])])
    (part,) = files.committed(tmp_path / "out")
    Path(part.path).write_bytes(content)
    manifest = manifest_path(sink)
    manifest.write_bytes(manifest.read_bytes().replace(part.xxh3.encode(), xxh3_64_hexdigest(content).encode()))
    with pytest.raises(OutputCorrupt, match="after 0 rows"):
        shown(sink)


def test_a_part_with_a_path_outside_the_folder_is_refused(sink: JsonFiles) -> None:
    part = part_of(sink, 1, ["a"]).replace(b"part-0000000001", b"../../etc/part-0000000001")
    with pytest.raises(InternalError, match=r"is not a prepared part of .*: Expected `str` matching regex"):
        sink.commit(JOB, 1, [part])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize("kind", SINKS)
def test_a_full_disk_is_reported_and_makes_no_row_visible(tmp_path: Path, kind: str) -> None:
    sink = SINKS[kind](tmp_path / "out")
    sink.prepare_output(JOB, resume=False, overwrite=False)
    os.symlink("/dev/full", hidden(sink, "parts", "count_words-0-0-1.writing"))
    writer = writer_of(sink)
    writer.write([{"word": "a"}])
    with pytest.raises(OutputFailed, match=r"No space left on device.*nothing is\s+lost"):
        writer.prepare(1)
    with pytest.raises(OutputFailed, match="an earlier attempt failed"):
        writer.prepare(2)
    writer.close()
    assert shown(sink) == []
    assert prepared(sink) == visible(sink) == []


@pytest.mark.parametrize("does_check", [False, True])
def test_an_output_in_the_place_of_a_file_is_refused_before_the_job_starts(tmp_path: Path, does_check: bool) -> None:
    (tmp_path / "file").write_text("mine")
    for path, problem in {
        tmp_path / "file": "it is a file, and this sink writes a folder of part files. Name a folder, or give single=",
        tmp_path / "file" / "a" / "out": f"{tmp_path}/file is a file, not a folder. Name a place in a folder.",
    }.items():
        sink = files.jsonl(path)
        with pytest.raises(InvalidConnector, match=re.escape(problem)):
            sink.check_output("") if does_check else sink.prepare_output(JOB, resume=False, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_that_was_the_single_output_of_a_job_becomes_a_folder_with_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    single = files.jsonl(path, single=True)
    single.prepare_output(JOB, resume=False, overwrite=False)
    single.commit(JOB, 1, [part_of(single, 1, [{"a": 1}])])
    single.finish_output(JOB)
    assert path.is_file()
    files.jsonl(path).prepare_output("other", resume=False, overwrite=True)
    assert path.is_dir()


def test_an_output_that_cannot_be_made_at_the_first_start_does_not_speak_of_a_resume(tmp_path: Path) -> None:
    place = "/proc/no-such-folder/out" if os.path.isdir("/proc") else str(tmp_path / ("n" * 300) / "out")
    with pytest.raises(OutputUnusable, match="could not be created") as raised:
        files.jsonl(place).prepare_output(JOB, resume=False, overwrite=False)
    assert "Nothing has been written: name another place" in str(raised.value)
    assert "--resume" not in str(raised.value)


def test_a_slot_that_cannot_reach_the_folder_reports_it(tmp_path: Path) -> None:
    writer = writer_of(files.jsonl(tmp_path / "only-on-the-driver"))
    with pytest.raises(OutputFailed, match="reaches under"):
        writer.write(["a"])
    writer.close()


def test_a_sink_with_a_pattern_or_several_folders_is_refused(tmp_path: Path) -> None:
    for path in ("nfs://server/out", "s3://bucket/*", str(tmp_path / "*.jsonl"), ["a", "b"]):
        with pytest.raises(InvalidConnector, match=r"files\.jsonl"):
            files.jsonl(path).prepare_output(JOB, resume=False, overwrite=False)
    with pytest.raises(InvalidConnector, match="either resume or overwrite"):
        files.jsonl(tmp_path / "out").prepare_output(JOB, resume=True, overwrite=True)


def test_reading_a_missing_output_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputMissing):
        files.committed(tmp_path / "nowhere")


def test_every_file_sink_meets_the_sink_protocol() -> None:
    sinks: list[TransactionalSink] = [files.lines("a"), files.jsonl("a"), files.csv("a"), files.parquet("a")]
    assert all(isinstance(sink, TransactionalSink) for sink in sinks)
    assert not any(isinstance(sink, ImmediateSink) for sink in sinks)
