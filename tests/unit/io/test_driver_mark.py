"""Marks of drivers in a store: one replaces those of dead ones, and which of two drivers steps back."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from clonos.io.store.driver_mark import (
    NO_MARKS,
    SILENT_AFTER_S,
    DriverMark,
    JobRunning,
    MarkRecord,
    Marks,
    refuse_running,
)
from clonos.io.store.object_files import LocalFiles
from tests.harnesses.other_driver import another_driver


class Interrupted(LocalFiles):
    """A folder in which other drivers do something before the first mark is created, or after it."""

    def __init__(self, root: Path, before: Callable[[], object], behind: Callable[[], object] = int) -> None:
        super().__init__(root)
        self._waiting = [behind, before]

    def create_if_absent(self, name: str, data: bytes) -> bool:
        if not self._waiting:
            return super().create_if_absent(name, data)
        self._waiting.pop()()
        is_created = super().create_if_absent(name, data)
        self._waiting.pop()()
        return is_created


def _mark_in(files: LocalFiles, dead: Marks = NO_MARKS) -> DriverMark:
    return DriverMark.claimed("etl", "store", files, dead, renew_every_s=3600)


def test_of_two_drivers_that_replace_the_mark_of_a_dead_one_at_once_the_second_is_refused(tmp_path: Path) -> None:
    with another_driver(tmp_path):
        pass
    found = refuse_running("etl", "store", LocalFiles(tmp_path))
    first: list[DriverMark] = []
    files = Interrupted(tmp_path, lambda: first.append(_mark_in(LocalFiles(tmp_path), found)))
    with pytest.raises(JobRunning, match="in this process"):  # both have found the dead one
        _mark_in(files, found)
    assert first[0].renew()
    first[0].close()


def test_a_driver_steps_back_for_another_whose_mark_has_a_lower_number(tmp_path: Path) -> None:
    with another_driver(tmp_path):
        pass
    found = refuse_running("etl", "store", LocalFiles(tmp_path))
    anew: list[DriverMark] = []

    def run_and_begin_anew() -> None:
        _mark_in(LocalFiles(tmp_path), found).close()
        anew.append(_mark_in(LocalFiles(tmp_path)))

    with pytest.raises(JobRunning):
        _mark_in(Interrupted(tmp_path, run_and_begin_anew), found)
    assert os.listdir(tmp_path / "drivers") == ["000001"]
    assert anew[0].renew()
    anew[0].close()


def test_a_driver_that_dies_just_after_it_created_its_mark_does_not_prevent_the_next_start(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    with another_driver(tmp_path):
        pass
    dead = (tmp_path / "drivers" / "000001").read_bytes()
    (tmp_path / "drivers" / "000002").write_bytes(dead.replace(b'"pid":', b'"pid":9'))
    with closing(_mark_in(files)):
        assert os.listdir(tmp_path / "drivers") == ["000003"]


def _mark_of_another_machine(folder: Path, renewals: int) -> None:
    record = MarkRecord("far", 12, "another boot", "5", 1_790_000_000_000_000_000, renewals)
    (folder / "drivers").mkdir(exist_ok=True)
    (folder / "drivers" / "000001").write_bytes(msgspec.json.encode(record))


@pytest.mark.parametrize(("is_alive", "renewals"), [(True, 4), (False, 3)])
def test_a_driver_on_another_machine_runs_if_it_renews_its_mark(tmp_path: Path, is_alive: bool, renewals: int) -> None:
    _mark_of_another_machine(tmp_path, 3)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        _mark_of_another_machine(tmp_path, renewals)

    def look() -> None:
        refuse_running("etl", "store", LocalFiles(tmp_path), wait=wait)

    if is_alive:
        with pytest.raises(JobRunning, match="host far as process 12"):
            look()
    else:
        look()
    assert waits == [SILENT_AFTER_S]


def test_a_driver_does_not_renew_or_remove_the_mark_of_its_successor(tmp_path: Path) -> None:
    with closing(_mark_in(LocalFiles(tmp_path))) as mark:
        assert mark.renew()
        _mark_of_another_machine(tmp_path, 0)
        assert not mark.renew()
    assert msgspec.json.decode((tmp_path / "drivers" / "000001").read_bytes())["host"] == "far"
