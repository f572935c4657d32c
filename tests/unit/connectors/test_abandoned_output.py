"""Output that tasks have prepared and no checkpoint will commit: what is removed of it, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.connectors import files
from clonos.operators.chain_outputs import CombinedSinks
from clonos.operators.connector_contract import AbortingSink
from clonos_standby.driver.abandoned_output import AbandonedOutput, Lives
from tests.unit.connectors.writing import JOB, part_of, writer_of


def parts_in(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder.parent / f".{folder.name}.clonos/parts").iterdir())


@pytest.mark.parametrize("is_single", [False, True])
def test_part_files_of_the_dead_are_removed_and_those_that_may_be_committed_stay(
    tmp_path: Path, is_single: bool
) -> None:
    sink = files.jsonl(tmp_path / "out.jsonl", single=is_single)
    assert isinstance(sink, AbortingSink)
    sink.prepare_output(JOB, resume=False, overwrite=False)
    part_of(sink, 1, [{"a": 0}], incarnation=1)  # of a task that has died
    committed = part_of(sink, 2, [{"a": 1}], incarnation=2)
    pending = part_of(sink, 3, [{"a": 2}], incarnation=2)
    later = writer_of(sink, generation=9)
    later.write([{"a": 3}])
    later.prepare(2)  # of a driver that has replaced this one
    writing = writer_of(sink, index=1)
    writing.write([{"a": 4}])
    sink.commit(JOB, 2, [committed])
    sink.abort(JOB, 2, 0)
    names = [name for name in parts_in(tmp_path / "out.jsonl") if name.endswith(".prepared")]
    assert not any(name.startswith("part-0000000001") for name in names), names
    assert len(names) == 2 + is_single
    sink.commit(JOB, 3, [pending])
    assert list(files.read_committed(sink.folder())) == [{"a": 1}, {"a": 2}]
    writing.close()


class Aborted:
    """Sink that notes the calls, and fails when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.fails = False

    def abort(self, job_id: str, checkpoint: int, generation: int) -> None:
        if self.fails:
            raise OSError("no")
        self.calls.append((checkpoint, generation))


def test_output_is_removed_after_the_start_and_after_deaths_until_a_later_checkpoint_is_committed() -> None:
    sink, abandoned = Aborted(), AbandonedOutput()
    commits = [
        (1, Lives(1, 1, 1)),  # the start
        (2, Lives(1, 1, 2)),  # the first that began later
        (3, Lives(1, 1, 4)),
        (4, Lives(2, 1, 5)),  # a task has died while the checkpoint 5 was pending
        (5, Lives(2, 1, 6)),
        (6, Lives(2, 1, 6)),
        (7, Lives(2, 1, 7)),
        (8, Lives(3, 3, 7)),  # a rollback
    ]
    for checkpoint, lives in commits:
        abandoned.remove([object(), sink], JOB, checkpoint, lives)
    assert sink.calls == [(1, 1), (2, 1), (4, 1), (5, 1), (6, 1), (8, 3)]


def test_a_removal_that_fails_is_tried_again_after_the_next_commit(caplog: pytest.LogCaptureFixture) -> None:
    sink, abandoned = Aborted(), AbandonedOutput()
    sink.fails = True
    abandoned.remove([sink], JOB, 5, Lives(1, 1, 4))
    assert "was not removed, and is tried again: OSError: no" in caplog.text
    sink.fails = False
    abandoned.remove([sink], JOB, 6, Lives(1, 1, 6))
    abandoned.remove([sink], JOB, 7, Lives(1, 1, 7))
    assert sink.calls == [(6, 1)]


def test_each_sink_of_a_chain_that_can_removes_its_output() -> None:
    sinks = Aborted(), Aborted()
    CombinedSinks(sinks).abort(JOB, 3, 1)  # type: ignore[arg-type]
    assert [sink.calls for sink in sinks] == [[(3, 1)], [(3, 1)]]
