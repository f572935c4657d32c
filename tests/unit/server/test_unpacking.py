"""Submitted files: what is unpacked, and that nothing is written outside of the folder or beyond the limits."""

from __future__ import annotations

import gzip
import io
import random
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
MUTATIONS = 50


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
    "bad", ["", "../up.py", "/etc/up.py", "a/../../up.py", "a\\..\\up.py", "C:/up.py", "a\nb.py", ".."]
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
    with pytest.raises(SubmissionRefused, match="a link or not a file"):
        unpack(io.BytesIO(data.getvalue()), "job.tgz", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_symbolic_link_in_a_zip_file_is_refused(tmp_path: Path) -> None:
    data, entry = io.BytesIO(), zipfile.ZipInfo("link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(SubmissionRefused, match="a link or not a file"):
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
        ([("é" * 30, b"")], "too long or too deep"),
        ([("job.py", b"1"), ("job.py", b"2")], "two of its entries"),
        ([("job.py", b"1"), ("job.py/inner.py", b"2")], "two of its entries"),
        ([], "has no file"),
    ],
)
def test_an_archive_beyond_a_limit_is_refused(name: str, entries: Entries, reason: str, tmp_path: Path) -> None:
    limits = Limits(files=3, bytes=2_000, depth=3, name_bytes=50)
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


def test_an_archive_of_a_whole_folder_has_its_job_at_the_top(tmp_path: Path) -> None:
    """The names are those of ``tar czf x.tar.gz .``."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name in (".", "./lib"):
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
        for name in ("./job.py", "./lib/words.py"):
            archive.addfile(tarfile.TarInfo(name))
    names = unpack(io.BytesIO(data.getvalue()), "x.tar.gz", tmp_path)
    assert (names, find_target(names, None)) == (["job.py", "lib/words.py"], "job.py")
    assert find_target(names, "./lib//words.py:job") == "lib/words.py:job"


def test_an_archive_that_cannot_be_unpacked_in_pieces_is_refused_before_it_is(tmp_path: Path) -> None:
    """596 bytes of bz2 may have more than a gigabyte, and its reader unpacks all of them at once."""
    data = io.BytesIO()
    for method, name in ((zipfile.ZIP_BZIP2, "bz2"), (zipfile.ZIP_LZMA, "lzma")):
        with zipfile.ZipFile(data, "w", method) as archive:
            archive.writestr("job.py", b"pass")
        with pytest.raises(SubmissionRefused, match=r"'job.py' is not compressed with deflate"):
            unpack(io.BytesIO(data.getvalue()), "job.zip", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_header_of_a_tar_archive_has_a_limit(tmp_path: Path) -> None:
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE):
        header = tarfile.TarInfo("h")
        header.type, header.size = kind, 1 << 30
        data = gzip.compress(header.tobuf() + b"\0" * (2 << 20), 1)
        with pytest.raises(SubmissionRefused, match="exceeds 1,048,576 bytes"):
            unpack(io.BytesIO(data), "job.tgz", tmp_path)


def test_the_list_of_entries_of_a_zip_archive_has_a_limit(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        entry = zipfile.ZipInfo("job.py")
        entry.comment = b"c" * 65_000
        archive.writestr(entry, b"")
        archive.filelist.extend(archive.filelist * 70)
    with pytest.raises(SubmissionRefused, match="the list of its entries has more than 4,194,304 bytes"):
        unpack(io.BytesIO(data.getvalue()), "job.zip", tmp_path)


def test_a_tar_archive_with_a_damaged_header_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    whole = bytearray(gzip.decompress(_tar([("job.py", b"pass\n"), ("data.txt", b"a")])))
    whole[1024] ^= 1  # the first byte of the second header
    with pytest.raises(SubmissionRefused, match="a header in it is damaged"):
        unpack(io.BytesIO(gzip.compress(whole)), "job.tgz", tmp_path)


def test_a_file_that_cannot_be_written_is_not_the_fault_of_the_archive() -> None:
    with pytest.raises(OSError, match="/proc/none"):
        unpack(io.BytesIO(_zip([("job.py", b"pass")])), "job.zip", Path("/proc/none"))


def _samples() -> list[tuple[str, bytes]]:
    """Archives of each form that the readers know, with long names, folders and comments."""
    entries = [("job.py", b"pass\n" * 50), ("n" * 100 + "/" + "n" * 90, b"abc"), ("in/é.txt", bytes(range(256)))]
    samples = [(name, make(entries)) for name, make in ARCHIVES.items()]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=form, pax_headers={"comment": "c" * 50}) as archive:
            for name, content in entries:
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        samples.append(("job.tgz", data.getvalue()))  # packed once it is damaged
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as opened:
        opened.comment = b"comment"
        for name, content in entries:
            opened.writestr(name, content)
    return [*samples, ("job.zip", stored.getvalue())]


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, removed or doubled, most of them where archives have their numbers."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        where = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0:
                changed[where] ^= 1 << rng.randrange(8)
            case 1:
                changed[where] = rng.choice((0, 255, 0x80, 0x7F))
            case 2:
                changed[where : where + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(9))
            case 3:
                changed[where:where] = changed[where : where + 64]
            case _:
                del changed[where : where + rng.choice((1, 8, 512))]
        changed = changed or bytearray(b"\0")
    return bytes(changed)


@pytest.mark.parametrize("seed", range(6))
def test_a_mutated_archive_raises_no_other_error_than_a_refusal(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    name, whole = _samples()[seed]
    is_packed_later = not whole.startswith((b"PK", b"\x1f\x8b"))
    for number in range(MUTATIONS):
        data = _damaged(rng, whole)
        folder = tmp_path / str(number)
        try:
            unpack(io.BytesIO(gzip.compress(data, 1) if is_packed_later else data), name, folder)
        except SubmissionRefused:
            pass
    assert all(file.resolve().is_relative_to(tmp_path.resolve()) for file in tmp_path.rglob("*"))


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
        (["a.py"], "", "it has no file"),
        (["a.py"], ":job", "it has no file"),
        (["a.py"], "a.py:a b", "'a b' cannot be the name of a job"),
    ],
)
def test_a_submission_without_a_clear_file_is_refused(names: list[str], file: str | None, reason: str) -> None:
    with pytest.raises(SubmissionRefused, match=reason):
        find_target(names, file)
