"""A sink of your own: compressed JSON lines, one file per task and checkpoint.

Gives files such as `out/archive/00000002-archive-0.jsonl.gz`, which appear when their checkpoint completes. Each row is
in one of them, once. A file is written below `.staged`, and renamed when the checkpoint is complete.

    clonos run examples/gzip_sink.py
    zcat out/archive/*.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from clonos import Job, JobError, WriterContext, values


class Archive:
    """Transactional sink into a folder of gzip files."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).absolute()

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        (self.folder / ".staged").mkdir(parents=True, exist_ok=True)
        earlier = [*self.folder.glob("*.gz"), *self.folder.glob(".staged/*.gz")]
        if overwrite:
            for file in earlier:
                file.unlink()
        elif earlier and not resume:
            raise JobError(f"{self.folder} has files of another start. Continue with --resume, or use --overwrite.")

    def writer(self) -> ArchiveWriter:
        return ArchiveWriter(self.folder / ".staged")

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        for part in parts:
            staged, name = json.loads(part)
            if Path(staged).exists():  # otherwise an earlier call has renamed it
                os.rename(staged, self.folder / name)

    def roll_back(self, job_id: str, checkpoint: int) -> list[int]:
        later = {file: int(file.name[:8]) for file in self.folder.glob("*.gz") if int(file.name[:8]) > checkpoint}
        for file in later:
            file.unlink()
        return sorted(set(later.values()))


class ArchiveWriter:
    """Writer of one task: rows wait in memory until the barrier."""

    def __init__(self, staged: Path) -> None:
        self.staged = staged
        self.rows: list[Any] = []

    def open(self, context: WriterContext) -> None:
        self.task = context.task_name.replace("/", "-")
        self.attempt = f"{context.generation}-{context.incarnation}"

    def write(self, rows: list[Any]) -> None:
        self.rows += rows

    def write_columns(self, batch: Any) -> None:
        self.write(batch.to_pylist())

    def prepare(self, checkpoint: int) -> bytes | None:
        if not self.rows:
            return None
        name = f"{checkpoint:08}-{self.task}.jsonl.gz"
        staged = self.staged / f"{self.attempt}-{name}"
        with open(staged, "wb") as file:
            file.write(gzip.compress("".join(json.dumps(row) + "\n" for row in self.rows).encode()))
            file.flush()
            os.fsync(file.fileno())
        self.rows = []
        return json.dumps([str(staged), name]).encode()

    def close(self) -> None:
        self.rows = []


job = Job("gzip_sink", parallelism=2, checkpoint_every="500ms")
job.source(values(range(1_000)), name="numbers").sink(Archive("out/archive"), name="archive")
