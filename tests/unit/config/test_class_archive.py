"""Class archives of Spark's JVMs: used only where they are for this Java and nobody else could have written them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clonos.spark import make_class_archives
from clonos.spark.class_archive import JvmRole, archive_folder, archive_option


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the archives, with that of the driver."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n", "utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = archive_folder()
    assert found is not None
    found.mkdir(mode=0o700, parents=True)
    (found / "driver.jsa").touch(0o600)
    return found


def test_a_jvm_uses_the_archive_of_its_role(folder: Path) -> None:
    assert archive_option(JvmRole.DRIVER) == f"-XX:SharedArchiveFile={folder}/driver.jsa"
    assert archive_option(JvmRole.EXECUTOR) == "", "there is none"


@pytest.mark.parametrize("place", ["", "..", "driver.jsa"])
def test_an_archive_that_others_can_write_is_not_used(folder: Path, place: str) -> None:
    (folder / place).chmod(0o770)
    assert archive_option(JvmRole.DRIVER) == ""


def test_a_link_is_not_used(folder: Path) -> None:
    (folder / "driver.jsa").rename(folder / "other.jsa")
    (folder / "driver.jsa").symlink_to(folder / "other.jsa")
    assert archive_option(JvmRole.DRIVER) == ""


def test_another_java_has_archives_of_its_own(folder: Path, tmp_path: Path) -> None:
    os.utime(tmp_path / "java" / "bin" / "java", ns=(1, 1))
    assert archive_folder() != folder
    assert archive_option(JvmRole.DRIVER) == ""


def test_a_path_that_is_no_single_word_of_an_option_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaced = folder.parents[1].rename(folder.parents[2] / "my cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(spaced))
    assert archive_option(JvmRole.DRIVER) == ""


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0" + b"classes"])
def test_an_archive_without_its_header_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "executor.jsa").write_bytes(content)
    with pytest.raises(OSError, match=r"killed while it wrote executor\.jsa"):
        make_class_archives.check_whole(tmp_path / "executor.jsa")


def test_without_java_there_is_nothing_to_make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_option(JvmRole.DRIVER) == ""
    assert make_class_archives.main() == "There is no Java, or no home folder for the archives: set JAVA_HOME and HOME."


def test_a_folder_that_cannot_be_made_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "driver.jsa"))
    assert "were not made: [Errno 20] Not a directory" in (make_class_archives.main() or "")
