"""``python -m tests.golden_stores``: writes the golden stores of the formats of this version, in half a minute.

It refuses to if there are some, and changes none. Look at the sizes that it prints: together they stay below 200 KB.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from clonos.core.model.progress import TaskPhase
from clonos.io.store.envelope import seal
from clonos.io.store.store import JOB_NAME, CheckpointStore
from tests.golden_stores.archives import CHECKSUMS, NUMBERS, checksum_lines, folders, new_folder, numbers_of, pack
from tests.golden_stores.jobs import JOBS, SPLITS, GoldenJob

LIMIT_S: Final = 60.0
READ: Final = (20, 30, 40)
"""Records of each split at the first checkpoint, at the second one, and at the abort."""
CHANGES: Final = (("read=3", "seen=4", "timers=4", "deal=3"), ("read=2", "seen=2", "timers=3", "deal=2"))


def main() -> int:
    """Writes them; returns the exit code."""
    if folders() and numbers_of(folders()[-1]) == NUMBERS:
        print(f"{folders()[-1]} has the formats of this version: nothing to write.")
        return 1
    target = new_folder()
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        made = Path(place) / target.name
        made.mkdir()
        for name, described in JOBS.items():
            (folder := Path(place) / name).mkdir()
            _run(job := described(folder))
            if name == "moved":
                _change_widths(job)
            _forget_path(job)
            pack(job.folder, made / f"{name}.tar.xz")
            print(f"{name}: {(made / f'{name}.tar.xz').stat().st_size:,} bytes")
        (made / "numbers.json").write_text(f"{json.dumps(NUMBERS, indent=2)}\n", "utf-8")
        shutil.copytree(made, target)
    with CHECKSUMS.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in checksum_lines(target))
    return 0


def _run(job: GoldenJob) -> None:
    """Runs a job to two checkpoints and further, and aborts it."""
    with job.job().start() as handle:
        for records in READ:
            job.gate.open_to(records)
            _wait_until(lambda records=records: len(job.rows()) == records * SPLITS)  # type: ignore[misc]
            if records != READ[-1]:
                _complete_checkpoint(handle)
        handle.stop(drain=False)
        job.answer_calls()  # threads of calls end
        handle.wait(LIMIT_S)
    (job.folder / "answers").unlink()


def _change_widths(job: GoldenJob) -> None:
    """Lets a job begin with other widths, twice, without a checkpoint of its tasks."""
    for widths in CHANGES:
        with job.job().start(resume=True, widths=widths) as handle:
            _wait_until(lambda: all(task.phase is TaskPhase.LIVE for task in handle.status().tasks))
            _wait_until(lambda: len(job.rows()) == READ[-1] * SPLITS)
            handle.stop(drain=False)
            job.answer_calls()
            handle.wait(LIMIT_S)
        (job.folder / "answers").unlink()


def _complete_checkpoint(handle: Any) -> None:
    number = handle.checkpoint(LIMIT_S)
    _wait_until(lambda: any(each.number == number and each.completed_ns for each in handle.checkpoints()))


def _forget_path(job: GoldenJob) -> None:
    """Removes from the record of the job where this file was."""
    store = CheckpointStore(job.store)
    record = structs.replace(store.find_job(), file="")
    store.files.write(JOB_NAME, seal(msgspec.msgpack.encode(record), JOB_NAME))


def _wait_until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        if condition():
            return
        waiting.wait(0.02)
    raise TimeoutError(f"never: {condition}")


if __name__ == "__main__":
    raise SystemExit(main())
