"""Folders of processes: private while the process runs, swept when it is dead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from clonos.io.local.local_folder import FolderRefused, LocalFolder, default_root, sweep

ONE = "00000000000000a1"
CHILD_NAME = "00000000000000c4"
CHILD = """
import os, sys
from pathlib import Path
from clonos.io.local.local_folder import LocalFolder
folder = LocalFolder(Path(sys.argv[1]), "00000000000000c4")
(folder.path / "file").write_text("left behind")
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_private_and_removed_with_its_process(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "root", ONE)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert sweep(tmp_path / "root") == []
    folder.close()
    folder.close()
    assert list((tmp_path / "root").iterdir()) == []


def test_a_second_process_cannot_take_the_same_folder(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "root", ONE)
    with pytest.raises(FolderRefused, match="lock"):
        LocalFolder(tmp_path / "root", ONE)
    folder.close()


@pytest.mark.processes
def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_live_one_stays(tmp_path: Path) -> None:
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
    assert (root / CHILD_NAME / "file").exists()
    assert sweep(root) == [CHILD_NAME]
    assert list(root.iterdir()) == []


def test_a_root_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    with pytest.raises(FolderRefused, match="755"):
        LocalFolder(tmp_path, ONE)


def test_sweeping_a_root_that_does_not_exist_is_no_error(tmp_path: Path) -> None:
    assert sweep(tmp_path / "nowhere") == []


def test_a_story_is_removed_after_a_week_and_another_file_never(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "local", "0" * 16)
    root, week_s = folder.root, 7 * 24 * 3600
    for name, age_s in {
        f"slot-{1:016x}.story": week_s + 60,
        f"slot-{2:016x}.story": week_s - 60,
        "slot-3.story": 9 * week_s,
        "notes": 9 * week_s,
    }.items():
        (root / name).write_text("events")
        os.utime(root / name, (time.time() - age_s,) * 2)
    assert sweep(root) == []
    assert {file.name for file in root.iterdir() if file.is_file()} - {f"{'0' * 16}.lock"} == {
        f"slot-{2:016x}.story",
        "slot-3.story",
        "notes",
    }
    folder.close()


def test_folders_created_during_a_sweep_are_not_removed(tmp_path: Path) -> None:
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
            folder = LocalFolder(root, f"driver-{number:012x}")
            assert folder.path.is_dir()
            folder.close()
    finally:
        ends.set()
        for sweeper in sweepers:
            sweeper.join()
    assert list(root.iterdir()) == []


def _precious(folder: Path) -> Path:
    """A file of the user's in a folder that the user shares with others."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "precious"
    path.write_text("years of work", "utf-8")
    return path


def test_a_lock_named_for_the_parent_folder_deletes_nothing(tmp_path: Path) -> None:
    precious = _precious(tmp_path / "tmp")
    root = tmp_path / "tmp" / "root"
    root.mkdir(mode=0o700)
    for name in ("...lock", "..lock", ".lock", "another.lock"):
        (root / name).touch()
    assert sweep(root) == []
    assert precious.exists()
    assert len(list(root.iterdir())) == 4


def test_a_root_that_is_a_link_is_neither_swept_nor_used(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    precious = _precious(elsewhere)
    (elsewhere / ONE).mkdir()
    (elsewhere / f"{ONE}.lock").touch()
    root = tmp_path / "root"
    root.symlink_to(elsewhere)
    with pytest.raises(FolderRefused, match="link"):
        sweep(root)
    with pytest.raises(FolderRefused, match="link"):
        LocalFolder(root, ONE)
    assert sorted(elsewhere.iterdir()) == sorted([precious, elsewhere / ONE, elsewhere / f"{ONE}.lock"])


def test_links_below_the_root_are_not_followed(tmp_path: Path) -> None:
    precious = _precious(tmp_path / "elsewhere")
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    (root / f"{ONE}.lock").symlink_to(precious)
    (root / f"{CHILD_NAME}.lock").touch()
    (root / CHILD_NAME).symlink_to(precious.parent)
    sweep(root)
    assert precious.exists()
    assert (root / f"{ONE}.lock").is_symlink()


def test_a_root_of_another_user_is_neither_swept_nor_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    LocalFolder(root, ONE).close()
    (root / ONE).mkdir()
    (root / f"{ONE}.lock").touch()
    found_uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: found_uid + 1)
    with pytest.raises(FolderRefused, match=f"user {found_uid}"):
        sweep(root)
    with pytest.raises(FolderRefused, match=f"user {found_uid}"):
        LocalFolder(root, "00000000000000b2")
    assert len(list(root.iterdir())) == 2


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The common folder for temporary files, where nobody has a folder for what is of the session alone."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return folder


def test_each_user_has_a_different_root(temporary: Path) -> None:
    root = default_root()
    assert root == temporary / f"clonos-{os.getuid()}"
    assert root.stat().st_mode & 0o777 == 0o700
    assert default_root() == root


def test_a_root_taken_by_another_user_is_replaced_by_the_session_folder(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    precious = _precious(tmp_path / "elsewhere")
    (temporary / f"clonos-{os.getuid()}").symlink_to(precious.parent)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    root = default_root()
    assert root == runtime / "clonos"
    LocalFolder(root, ONE).close()
    assert f"Using {root} instead" in caplog.text
    assert list(precious.parent.iterdir()) == [precious]


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_session_folder_open_to_other_users_is_replaced_by_a_new_folder(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    (temporary / f"clonos-{os.getuid()}").mkdir()
    os.chmod(temporary / f"clonos-{os.getuid()}", 0o777)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    os.chmod(runtime, mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    root = default_root()
    assert root.parent == temporary
    assert root.stat().st_mode & 0o777 == 0o700
    assert default_root() == root, "the next process finds it, and so what a killed one has left"
    assert list(runtime.iterdir()) == []
