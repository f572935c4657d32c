"""``python -m tests.golden_records``: writes the golden records of the formats of this version, in half a minute.

It refuses to if there are some, and changes none. Look at the sizes that it prints: together they stay below 100 KB.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

from clonos.core.model.errors import ClonosError
from clonos.core.model.progress import TaskPhase
from clonos.demo.demo_server import DemoServerProcess
from clonos.io.epochs.record_parts import HEAD, RECORD_FORMAT, RecordPart
from tests.golden_records.archives import CHECKSUMS, FOLDER, NUMBERS, SERVER, change_record, records_in
from tests.golden_records.jobs import JOBS, KILLED
from tests.golden_stores.archives import checksum_lines, folders, new_folder, numbers_of, pack
from tests.processes.harness.gated_source import Gate
from tests.waiting import await_condition

LIMIT_S: Final = 120.0
READ: Final = (20, 40, 100)
"""Records of the source at the checkpoint, when tasks are killed, and at the captures."""


def main() -> int:
    """Writes them; returns the exit code."""
    if folders(FOLDER) and numbers_of(folders(FOLDER)[-1]) == NUMBERS:
        print(f"{folders(FOLDER)[-1]} has the formats of this version: nothing to write.")
        return 1
    target = new_folder(FOLDER, RECORD_FORMAT)
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        (made := Path(place) / target.name).mkdir()
        server = DemoServerProcess(Path(place) / "answers.log")
        try:
            for name in JOBS:
                (folder := Path(place) / name).mkdir()
                _run(name, folder, server.url)
                pack(folder / "records", made / f"{name}.tar.xz")
                print(f"{name}: {(made / f'{name}.tar.xz').stat().st_size:,} bytes")
        finally:
            server.close()
        (made / SERVER).write_text(server.url, "utf-8")
        (made / "numbers.json").write_text(f"{json.dumps(NUMBERS, indent=2)}\n", "utf-8")
        shutil.copytree(made, target)
    with CHECKSUMS.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in checksum_lines(target))
    return 0


def _run(name: str, folder: Path, url: str) -> None:
    """Runs a job and captures its tasks, or the task that fails."""
    records = folder / "records"
    with JOBS[name](folder, url).start() as handle:
        handle.failed_epoch.time_s = LIMIT_S
        for count in READ:
            Gate(folder / "gate").open_to(count)
            _wait_until_quiet(handle)
            if count == READ[0]:
                handle.checkpoint(LIMIT_S)
                await_condition(LIMIT_S, lambda: handle.checkpoints()[-1].completed_ns is not None)
            elif count == READ[1]:
                for task in KILLED.get(name, ()):
                    _kill(handle, task)
        if name == "failing":
            _wait_for_failure(handle)
            shutil.copytree(folder / "store.epochs", records)
        else:
            for each in handle.status().tasks:
                handle.capture(each.name, records, timeout=LIMIT_S)
            handle.stop(drain=False)
            handle.wait(LIMIT_S)
    for record in records_in(records):
        head = json.loads((record / HEAD).read_text("utf-8"))
        failure = head["failure"] and head["failure"] | {"frames": ""}
        with_paths = {RecordPart.JOB: b"", RecordPart.SOURCES: b""}  # of this machine, as the frames
        change_record(record, with_paths, failure=failure)


def _kill(handle: Any, name: str) -> None:
    os.kill(next(task.pid for task in handle.status().tasks if task.name == name), signal.SIGKILL)
    await_condition(LIMIT_S, lambda: any(each.task == name for each in handle.status().recoveries))
    _wait_until_quiet(handle)


def _wait_for_failure(handle: Any) -> None:
    try:
        handle.wait(LIMIT_S)
    except ClonosError as error:
        print(error)


QUIET: Final = 40


def _wait_until_quiet(handle: Any) -> None:
    """Waits until no task counts records any more, or the job has ended."""
    seen: list[Any] = []

    def is_quiet() -> bool:
        tasks = handle.status().tasks
        seen.append([(task.phase, task.counters.get("records_in")) for task in tasks])
        is_live = all(task.phase is TaskPhase.LIVE for task in tasks)
        return handle.is_over or (is_live and len(seen) > QUIET and seen[-1] == seen[-QUIET])

    await_condition(LIMIT_S, is_quiet)


if __name__ == "__main__":
    raise SystemExit(main())
