"""Stores that an earlier version wrote: jobs go on from them exactly, or are refused by the number of a format.

When a format changes, ``python -m tests.golden_stores`` adds the stores of the new one, and those that are there stay.
If this version does not read an old format, ``REFUSED`` names the folder, and a resume is refused by its number.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from clonos.cli import main
from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, decode_metadata, encode_metadata
from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.wire.decoding import FormatUnknown
from clonos.io.store.store import CheckpointStore
from tests.golden_stores.archives import CHECKSUMS, NUMBERS, checksum_lines, folders, numbers_of, unpack
from tests.golden_stores.jobs import JOBS, GoldenJob

pytestmark = pytest.mark.processes

RECORDS = 60
REFUSED: dict[str, tuple[str, int]] = {}
"""Folders whose formats this version does not read: the format that it meets first, and the number of that."""
BYTES_MAX = 200_000
CASES = [(folder.name, name) for folder in folders() for name in JOBS if (folder / f"{name}.tar.xz").exists()]
READ = [case for case in CASES if case[0] not in REFUSED]


@cache
def expected(name: str) -> dict[str, list[Any]]:
    """Output of a job without a stop and with its own widths."""
    with TemporaryDirectory() as place:
        job = JOBS[name](Path(place))
        job.answer_calls()
        job.gate.end(RECORDS)
        assert job.job().run().has_finished
        return job.output()


def unpacked(folder: str, name: str, place: Path) -> GoldenJob:
    """A copy of a golden store with its job, which reads to the end."""
    unpack(Path(CHECKSUMS.parent, folder, f"{name}.tar.xz"), place)
    job = JOBS[name](place)
    job.answer_calls()
    job.gate.end(RECORDS)
    return job


def last_checkpoint(job: GoldenJob) -> tuple[CheckpointStore, CheckpointMetadata]:
    """The store of a job and the metadata of its last checkpoint."""
    store = CheckpointStore(job.store)
    store.find_job()
    return store, decode_metadata(store.checkpoint_metadata(), job.name)


@pytest.mark.parametrize("changed", range(3), ids=("same widths", "more tasks", "other tasks"))
@pytest.mark.parametrize(("folder", "name"), READ)
def test_a_job_goes_on_exactly_from_a_stored_format(folder: str, name: str, changed: int, tmp_path: Path) -> None:
    job = unpacked(folder, name, tmp_path)
    widths = ((), *JOBS[name].widths)[changed]
    assert job.job().run(resume=True, widths=widths).has_finished
    found = job.output()
    for output, rows in expected(name).items():
        assert found[output] == rows, output


@pytest.mark.parametrize("folder", REFUSED)
def test_a_format_that_is_not_read_any_more_is_refused_by_its_number(folder: str, tmp_path: Path) -> None:
    what, number = REFUSED[folder]
    assert numbers_of(CHECKSUMS.parent / folder)[what] == number
    job = unpacked(folder, "rows", tmp_path)
    with pytest.raises(FormatUnknown, match=f"has format {number}, .* reads format {NUMBERS[what]}"):
        job.job().run(resume=True)


def test_the_last_golden_stores_have_the_formats_that_this_version_writes() -> None:
    """If this fails, a format has changed: write new golden stores with ``python -m tests.golden_stores``."""
    assert numbers_of(folders()[-1]) == NUMBERS


def test_golden_stores_stay_as_they_were_written() -> None:
    assert [line for folder in folders() for line in checksum_lines(folder)] == CHECKSUMS.read_text(
        "utf-8"
    ).splitlines()
    sizes = [archive.stat().st_size for folder in folders() for archive in folder.glob("*.tar.xz")]
    assert sum(sizes) < BYTES_MAX * len(folders())


def test_golden_stores_have_state_of_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = unpacked("format_4", "user-state", tmp_path)
    assert main(["state", "ls", job.store, "--json"]) == 0
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    found = {f"{row['step']}: {row['state']}": row["entries"] for row in rows}
    assert all(found.values())
    assert {
        *("timers: /event timers", "timers: /timers", "timers: waiting", "timers: passed", "timers: passed//ttl"),
        *("timers: seen", "deal: retained", "check: broadcast/rules", "ask: open calls", "enrich: open calls"),
        *("enrich: answers", "seen: state"),
    } <= found.keys()


def test_golden_stores_have_widths_that_were_changed_twice(tmp_path: Path) -> None:
    store, metadata = last_checkpoint(unpacked("format_4", "moved", tmp_path))
    assert metadata.retired.keys() == {"seen/2", "seen/3"}
    vertices = [vertex.name for vertex in metadata.plan.vertices for _ in range(vertex.parallelism)]
    chain = metadata.tasks[vertices.index("seen")].objects
    heads = [decode_snapshot(next(iter(store.read_object(name))), name) for name in chain]
    assert [len(head.sources) > 0 for head in heads].count(True) > 1
    assert heads[-1].sources[0].width == 4


@pytest.mark.parametrize("number", [3, 5, 40])
def test_a_snapshot_of_another_format_is_refused_with_both_numbers(number: int, tmp_path: Path) -> None:
    job = unpacked("format_4", "rows", tmp_path)
    store, metadata = last_checkpoint(job)
    name = metadata.tasks[0].objects[-1]
    data = bytes(next(iter(store.read_object(name))))
    fields = [number, *msgspec.msgpack.decode(data)[1:]]
    with pytest.raises(FormatUnknown, match=f"has format {number}, .* reads format {NUMBERS['snapshot']}"):
        decode_snapshot(msgspec.msgpack.encode(fields), name)


@pytest.mark.parametrize("number", [1, 3, 40])
def test_metadata_of_another_format_ends_the_start_with_both_numbers(number: int, tmp_path: Path) -> None:
    job = unpacked("format_4", "rows", tmp_path)
    store, metadata = last_checkpoint(job)
    other = encode_metadata(msgspec.structs.replace(metadata, format=number, checkpoint=metadata.checkpoint + 1))
    store.acquire_term()
    store.append_checkpoint(metadata.checkpoint + 1, other)
    reads = NUMBERS["checkpoint metadata"]
    with pytest.raises(FormatUnknown, match=f"has format {number}, .* reads format {reads}"):
        job.job().run(resume=True)
