"""Contract of every remote place of files, as tests: a module for a store derives a class from this one.

``url`` is a fixture of that module: a folder of its own for each test, perhaps with options.
"""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged
from clonos.connectors.object_stores.urls import split_url
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.options import Options
from clonos_services import random
from tests.processes.harness.drawing_job import is_quiescent, wait_for_checkpoint
from tests.processes.harness.running_job import running
from tests.unit.connectors.reading import read_all
from tests.unit.connectors.writing import JOB, part_of, writer_of

LINES = 300
OPTIONS = Options(checkpoint_every_ms=500, heartbeat_ms=50)


def at(url: str, key: str) -> str:
    """The URL of a key in the folder."""
    parts = split_url(url)
    return parts.of(f"{parts.key}/{key}")


def put(url: str, content: bytes) -> None:
    """Writes a file or an object."""
    parts = split_url(url)
    parts.store().upload(parts.key, io.BytesIO(content))


def contents(url: str) -> dict[str, bytes]:
    """The files below a folder, by what follows it in their paths."""
    parts = split_url(url)
    store = parts.store()
    keys = store.keys_below(parts.key)
    return {key.removeprefix(f"{parts.key}/"): store.content(key) for key in keys}


class FilesContract:
    """Files that are read, written, replaced and withdrawn, and a job that is killed between two folders."""

    def test_files_are_found_by_folder_and_pattern_and_read_in_blocks(self, url: str) -> None:
        lines = [f"line {n} ü" for n in range(100_000)]
        put(at(url, "in/a b.txt"), "".join(f"{line}\n" for line in lines).encode())
        put(at(url, "in/deep/c.txt"), b"deep\n")
        blocks = files.lines(at(url, "in/*.txt"), ordered=False, block_bytes=200_000)
        assert len(blocks.splits(2)) > 3
        assert read_all(blocks) == lines
        assert read_all(files.lines(at(url, "in"))) == lines
        assert sorted(read_all(files.lines(at(url, "in/**/*.txt")))) == sorted([*lines, "deep"])

    def test_a_watched_file_that_grows_after_it_was_read_is_reported(self, url: str) -> None:
        put(at(url, "watched/a.txt"), b"one\n")
        source = files.lines(at(url, "watched/*.txt"), watch="1s")
        known = source.splits(1)
        assert source.discover(known, 0, 1) == []
        put(at(url, "watched/a.txt"), b"one\ntwo\n")
        with pytest.raises(InputChanged):
            source.discover(known, 0, 1)

    def test_a_file_that_is_replaced_while_it_is_read_is_refused(self, url: str) -> None:
        content = b"".join(b"line %d\n" % n for n in range(100_000))
        put(at(url, "one.txt"), content)
        source = files.lines(at(url, "one.txt")).in_order()
        (split,) = source.splits(1)
        reader = source.reader()
        reader.open(split, None)
        reader.read(10)
        put(at(url, "one.txt"), content[::-1])
        with pytest.raises(InputChanged):
            list(iter(lambda: reader.read(1_000), None))
        reader.close()

    def test_rows_are_visible_with_their_commit_which_may_be_repeated_and_withdrawn(self, url: str) -> None:
        out = at(url, "out")
        sink = files.jsonl(out)
        sink.prepare_output(JOB, resume=False, overwrite=False)
        parts = [part_of(sink, 1, [{"n": 1}]), part_of(sink, 1, [{"n": 2}], index=1)]
        assert contents(out) == {}
        sink.commit(JOB, 1, parts)
        sink.commit(JOB, 1, parts[::-1])
        sink.commit(JOB, 2, [part_of(sink, 2, [{"n": 3}])])
        assert [row["n"] for row in files.read_committed(out)] == [1, 2, 3]
        assert sorted(contents(out).values()) == [b'{"n":1}\n', b'{"n":2}\n', b'{"n":3}\n']
        assert read_all(files.jsonl(out)) == [{"n": 1}, {"n": 2}, {"n": 3}]
        writer = writer_of(sink, incarnation=2)
        writer.write([{"n": 4}])
        writer.close()
        assert files.roll_back(out, JOB, 1) == [2]
        assert sorted(contents(out).values()) == [b'{"n":1}\n', b'{"n":2}\n']
        assert [name for name in contents(at(url, ".out.clonos")) if name.startswith("parts/")] == []

    def test_an_overwrite_replaces_an_output_and_a_resume_completes_its_commit(self, url: str) -> None:
        out = at(url, "out")
        sink = files.jsonl(out, partition_by="day")
        sink.prepare_output(JOB, resume=False, overwrite=False)
        sink.commit(JOB, 1, [part_of(sink, 1, [{"n": 1, "day": "a b"}, {"n": 2, "day": "c"}])])
        assert sorted(name.partition("/")[0] for name in contents(out)) == ["day=a b", "day=c"]
        assert read_all(files.jsonl(out, partitioned=True)) == [{"n": 1, "day": "a b"}, {"n": 2, "day": "c"}]
        other = "other-0123456789abcdef"
        sink.prepare_output(other, resume=False, overwrite=True)
        assert contents(out) == {}
        prepared = part_of(sink, 1, [{"n": 3, "day": "d"}])
        resumed = files.jsonl(out, partition_by="day")
        resumed.prepare_output(other, resume=True, overwrite=False)
        resumed.commit(other, 1, [prepared])
        assert [row["n"] for row in files.read_committed(out)] == [3]

    def test_a_single_file_appears_when_the_job_has_ended(self, url: str) -> None:
        out = at(url, "all.csv")
        sink = files.csv(out, single=True)
        sink.prepare_output(JOB, resume=False, overwrite=False)
        for checkpoint in (1, 2):
            sink.commit(JOB, checkpoint, [part_of(sink, checkpoint, [{"n": checkpoint}])])
        assert "all.csv" not in contents(url)
        sink.finish_output(JOB)
        assert contents(url)["all.csv"] == b"n\n1\n2\n"

    def test_a_job_that_is_killed_and_resumed_leaves_each_row_once(self, url: str, tmp_path: Path) -> None:
        out = at(url, "out")

        def copying() -> JobGraph:
            graph = JobGraph("copying")
            numbers = graph.source(files.jsonl(at(url, "in/*.jsonl"), watch="100ms"), name="numbers")
            numbers.map(lambda n: {"n": n, "draw": random.getrandbits(30)}).sink(files.jsonl(out))
            return graph

        def rows() -> list[int]:
            return sorted(json.loads(line)["n"] for content in contents(out).values() for line in content.splitlines())

        def give(number: int) -> None:
            lines = range(number * LINES, (number + 1) * LINES)
            put(at(url, f"in/{number}.jsonl"), "".join(f"{n}\n" for n in lines).encode())

        with running(copying(), tmp_path, OPTIONS) as job:
            job.wait_for(is_quiescent)
            give(0)
            wait_for_checkpoint(job)
            give(1)
            job.wait_for(lambda _: len(rows()) >= LINES)
            for pid in job.provider.pids().values():
                os.kill(pid, signal.SIGKILL)
        with running(copying(), tmp_path, OPTIONS, resume=True) as job:
            job.wait_for(is_quiescent)
            give(2)
            job.wait_for(lambda _: len(rows()) >= 3 * LINES)
            job.driver.stop(drain=True)
            done = job.end()
        assert isinstance(done, JobDone)
        assert done.ending is Ending.DRAINED
        assert rows() == list(range(3 * LINES))
        assert len(list(files.read_committed(out))) == 3 * LINES
        assert [name for name in contents(at(url, ".out.clonos")) if name.startswith("parts/")] == []
