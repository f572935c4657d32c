"""Submitted files: what is unpacked, and that nothing is written outside of the folder or beyond the limits."""

from __future__ import annotations

import io
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.server.submission.unpacking import Limits, SubmissionRefused, find_target, unpack

Entries = list[tuple[str, bytes]]


def _zip(entries: Entries) -> bytes:
    data = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content)
    return data.getvalue()


def _tar(entries: Entries) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


ARCHIVES: dict[str, Callable[[Entries], bytes]] = {"job.zip": _zip, "job.tar.gz": _tar}


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_python_file_is_taken_under_its_name(tmp_path: Path) -> None:
    assert unpack(io.BytesIO(b"pass\n"), "C:\\jobs\\words.py", tmp_path) == ["words.py"]
    assert _files(tmp_path) == {"words.py": b"pass\n"}


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_files_of_an_archive_are_unpacked_with_their_folders(name: str, tmp_path: Path) -> None:
    entries = [("job.py", b"pass\n"), ("data/in.txt", b"a b\n")]
    assert unpack(io.BytesIO(ARCHIVES[name](entries)), name, tmp_path) == ["job.py", "data/in.txt"]
    assert _files(tmp_path) == dict(entries)


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize(
    "bad", ["../up.py", "/etc/up.py", "a/../../up.py", "a\\..\\up.py", "C:/up.py", "a\nb.py", ".."]
)
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str, bad: str, tmp_path: Path) -> None:
    folder = tmp_path / "inner" / "files"
    folder.mkdir(parents=True)
    with pytest.raises(SubmissionRefused):
        unpack(io.BytesIO(ARCHIVES[name]([("job.py", b""), (bad, b"x")])), name, folder)
    assert set(_files(tmp_path)) <= {"inner/files/job.py"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_an_entry_of_a_tar_file_that_is_no_file_is_refused(kind: bytes, tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(SubmissionRefused, match="a link or no file"):
        unpack(io.BytesIO(data.getvalue()), "job.tgz", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_in_a_zip_file_is_refused(tmp_path: Path) -> None:
    data, entry = io.BytesIO(), zipfile.ZipInfo("link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(SubmissionRefused, match="a link or no file"):
        unpack(io.BytesIO(data.getvalue()), "job.zip", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([(f"{number}.py", b"") for number in range(4)], "more than 3 files"),
        ([("big.py", b"\0" * 2_001)], "more than 2,000 bytes"),
        ([("a.py", b"\0" * 1_500), ("b.py", b"\0" * 600)], "more than 2,000 bytes"),
        ([("a/b/c/d.py", b"")], "too long or too deep"),
        ([("n" * 60, b"")], "too long or too deep"),
        ([("job.py", b"1"), ("job.py", b"2")], "two of its entries"),
        ([("job.py", b"1"), ("job.py/inner.py", b"2")], "two of its entries"),
        ([], "has no file"),
    ],
)
def test_an_archive_beyond_a_limit_is_refused(name: str, entries: Entries, reason: str, tmp_path: Path) -> None:
    limits = Limits(files=3, bytes=2_000, depth=3, name_characters=50)
    with pytest.raises(SubmissionRefused, match=reason):
        unpack(io.BytesIO(ARCHIVES[name](entries)), name, tmp_path, limits)
    assert sum(map(len, _files(tmp_path).values())) <= limits.bytes


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SubmissionRefused, match=r"'job.exe' is neither a .py file nor an archive"):
        unpack(io.BytesIO(b"MZ"), "job.exe", tmp_path)


@pytest.mark.parametrize("name", ARCHIVES)
@given(data=st.binary(max_size=200), cut=st.integers(0, 200), where=st.integers(0, 300))
def test_a_damaged_archive_is_unpacked_or_refused(
    name: str, data: bytes, cut: int, where: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = ARCHIVES[name]([("job.py", b"pass\n" * 50), ("in/a.txt", b"abc")])
    damaged = whole[:where] + data + whole[where + len(data) : len(whole) - min(cut, 40)]
    folder = tmp_path_factory.mktemp("damaged")
    try:
        unpack(io.BytesIO(damaged), name, folder)
    except SubmissionRefused:
        pass
    assert all(file.resolve().is_relative_to(folder.resolve()) for file in folder.rglob("*"))


@pytest.mark.parametrize(
    ("names", "file", "target"),
    [
        (["a.py"], None, "a.py"),
        (["a.py", "job.py", "in/c.py"], None, "job.py"),
        (["a.py", "lib/b.py"], None, "a.py"),
        (["a.py", "jobs/b.py"], "jobs/b.py:second", "jobs/b.py:second"),
    ],
)
def test_the_file_of_the_job_is_found(names: list[str], file: str | None, target: str) -> None:
    assert find_target(names, file) == target


@pytest.mark.parametrize(
    ("names", "file", "reason"),
    [
        (["a.py", "b.py"], None, "name the file that has the job: its Python files at the top are a.py, b.py"),
        (["in/a.txt"], None, "its Python files at the top are none"),
        (["a.py"], "b.py", "it has no file 'b.py'"),
        (["a.py"], "../../a.py", "it has no file"),
    ],
)
def test_a_submission_without_a_clear_file_is_refused(names: list[str], file: str | None, reason: str) -> None:
    with pytest.raises(SubmissionRefused, match=reason):
        find_target(names, file)
