"""Records that an earlier version wrote: their tasks repeat themselves, or they are refused by the number of a format.

When a format changes, ``python -m tests.golden_records`` adds records of the new one, and those that are there stay.
If this version does not read an old format, ``REFUSED`` names the folder, and its records are refused by the number.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.config import resolve_settings
from clonos.core.log import determinants as d
from clonos.core.model.element_kind import ElementKind
from clonos.core.wire.decoding import FormatUnknown
from clonos.io.epochs.record_parts import RECORD_FORMAT, RecordPart
from clonos.io.process.pickling import pack
from clonos.job.description import graph_of, options_of
from clonos.replay.epoch import Epoch
from clonos.replay.loading import load_epoch, versions_here
from tests.golden_records.archives import CHECKSUMS, FOLDER, NUMBERS, SERVER, change_record, records_in
from tests.golden_records.jobs import FAILS_AT, JOBS, KILLED
from tests.golden_stores.archives import checksum_lines, folders, numbers_of, unpack
from tests.harnesses.replays import replays_elsewhere

REFUSED: dict[str, int] = {"format_1": 1}
"""Folders whose formats this version does not read, with the number of the format of records."""
BYTES_MAX = 100_000
READ = [folder.name for folder in folders(FOLDER) if folder.name not in REFUSED]


def unpacked(folder: str, place: Path) -> list[Path]:
    """The golden records in a folder, each with the job of this version."""
    found: list[Path] = []
    for name, described in JOBS.items():
        unpack(FOLDER / folder / f"{name}.tar.xz", place / name)
        job = described(place / name, (FOLDER / folder / SERVER).read_text("utf-8"))
        packed = pack(graph_of(job).compile(resolve_settings(options_of(job)).core, parallelism=1))
        for record in records_in(place / name):
            change_record(record, {RecordPart.JOB: packed}, versions=versions_here())
            found.append(record)
    return found


def entries(epoch: Epoch) -> set[int]:
    """Tags of the entries of a log; those of steps are one."""
    reader, found = d.LogReader(epoch.log, epoch.head.log_offset_bytes), set[int]()
    while not reader.at_end:
        found.add(reader.next()[0])
    return found


@pytest.mark.parametrize("folder", READ)
def test_a_stored_record_repeats_itself_in_another_process(folder: str, tmp_path: Path) -> None:
    records = unpacked(folder, tmp_path)
    for record, report in zip(records, replays_elsewhere(records, tmp_path), strict=True):
        epoch = load_epoch(record)
        assert report["as_recorded"], report
        assert report["equal"] == sum(emitted.count for emitted in epoch.expected), report
        assert (report["task"], report["refused"], report["read_files"]) == (epoch.task, [], []), report
        if epoch.head.failure is not None:
            assert f"{FAILS_AT} is too large" in report["error"]["text"]


def test_the_last_golden_records_have_the_formats_that_this_version_writes() -> None:
    """If this fails, a format has changed: write new golden records with ``python -m tests.golden_records``."""
    assert numbers_of(folders(FOLDER)[-1]) == NUMBERS


def test_golden_records_stay_as_they_were_written() -> None:
    lines = [line for folder in folders(FOLDER) for line in checksum_lines(folder)]
    assert lines == CHECKSUMS.read_text("utf-8").splitlines()
    sizes = [archive.stat().st_size for folder in folders(FOLDER) for archive in folder.glob("*.tar.xz")]
    assert sum(sizes) < BYTES_MAX * len(folders(FOLDER))


def test_golden_records_have_input_and_choices_of_each_kind(tmp_path: Path) -> None:
    epochs = [*map(load_epoch, unpacked(folders(FOLDER)[-1].name, tmp_path))]
    assert all(epoch.head.epoch > 0 and epoch.state for epoch in epochs)
    assert {tag for epoch in epochs for tag in entries(epoch)} >= {d.READ, d.CLOCK, d.SEED, d.CALL, d.STEP}
    kinds = {each.kind for epoch in epochs for elements in epoch.input.values() for each in elements}
    assert kinds >= {ElementKind.ROWS, ElementKind.COLUMNS, ElementKind.WATERMARK}
    assert {epoch.task for epoch in epochs if epoch.head.incarnation > 1} >= {*KILLED["demo"]}
    assert [epoch.task for epoch in epochs if epoch.head.failure is not None] == ["checked/0"]


def test_a_record_of_another_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    record = unpacked(folders(FOLDER)[-1].name, tmp_path)[0]
    change_record(record, {}, format=RECORD_FORMAT + 1)
    with pytest.raises(FormatUnknown, match=f"has format {RECORD_FORMAT + 1}, .* reads format {RECORD_FORMAT}"):
        load_epoch(record)


@pytest.mark.parametrize("folder", REFUSED)
def test_a_stored_record_that_is_not_read_any_more_is_refused_by_its_number(folder: str, tmp_path: Path) -> None:
    unpack(FOLDER / folder / "demo.tar.xz", tmp_path)
    with pytest.raises(FormatUnknown, match=f"has format {REFUSED[folder]}, .* reads format {RECORD_FORMAT}"):
        load_epoch(records_in(tmp_path)[0])
