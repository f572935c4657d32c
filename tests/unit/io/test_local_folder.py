"""Folders of processes: their own while they live, swept when they are dead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clonos.io.local_folder import FolderRefused, LocalFolder, sweep

CHILD = """
import os, sys
from pathlib import Path
from clonos.io.local_folder import LocalFolder
folder = LocalFolder(Path(sys.argv[1]), "child")
(folder.path / "file").write_text("left behind")
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_private_and_goes_with_its_process(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "root", "one")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert sweep(tmp_path / "root") == []
    folder.close()
    folder.close()
    assert list((tmp_path / "root").iterdir()) == []


def test_a_second_process_cannot_have_the_same_folder(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "root", "one")
    with pytest.raises(FolderRefused, match="lock"):
        LocalFolder(tmp_path / "root", "one")
    folder.close()


@pytest.mark.processes
def test_the_folder_of_a_killed_process_is_swept_and_of_a_living_one_is_not(tmp_path: Path) -> None:
    root = tmp_path / "root"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert sweep(root) == []
    finally:
        child.kill()
        child.communicate()
    assert (root / "child" / "file").exists()
    assert sweep(root) == ["child"]
    assert list(root.iterdir()) == []


def test_a_root_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    with pytest.raises(FolderRefused, match="755"):
        LocalFolder(tmp_path, "one")


def test_sweeping_a_root_that_does_not_exist_is_no_error(tmp_path: Path) -> None:
    assert sweep(tmp_path / "nowhere") == []


def test_folders_that_are_made_while_others_sweep_are_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    ends = threading.Event()

    def keep_sweeping() -> None:
        while not ends.is_set():
            sweep(root)

    sweepers = [threading.Thread(target=keep_sweeping) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for number in range(200):
            folder = LocalFolder(root, f"{number}")
            assert folder.path.is_dir()
            folder.close()
    finally:
        ends.set()
        for sweeper in sweepers:
            sweeper.join()
    assert list(root.iterdir()) == []
