"""files.tail reads each line of files that grow once, whatever a rotation does and whenever a reader is opened anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.connectors import files
from clonos.connectors.connector_errors import InputChanged, InvalidConnector, SplitMalformed, UnexpectedInput
from tests.harnesses.log_rotation import ROTATIONS, append, compressed_later, into_another_folder, renamed


class Tail:
    """A task of the source: finds splits, reads them, and is opened anew at its marks."""

    made: ClassVar[list[Tail]] = []

    def __init__(self, pattern: str, linger_ns: int = 0, **options: Any) -> None:
        self.source = files.tail(pattern, **options)
        self.source.linger_ns = linger_ns
        self.known: list[bytes] = list(self.source.splits(1))
        self.marks: dict[bytes, bytes | None] = dict.fromkeys(self.known)
        self.ended: set[bytes] = set()
        self.readers: dict[bytes, Any] = {}
        self.lines: list[Any] = []
        self.made.append(self)

    def poll(self, *, finds: bool = True, records_max: int = 1_000) -> list[Any]:
        """Finds new contents, and reads each one until it has nothing; returns what has come."""
        if finds:
            found = self.source.discover(self.known, 0, 1)
            self.known += found
            self.marks.update(dict.fromkeys(found))
        before = len(self.lines)
        for split in self.known:
            while split not in self.ended:
                reader = self._reader(split)
                some = reader.read(records_max)
                if some is None:
                    self.ended.add(split)
                    reader.close()
                elif not some:
                    break
                else:
                    self.lines += some
                    self.marks[split] = reader.mark()
        return self.lines[before:]

    def _reader(self, split: bytes) -> Any:
        if split not in self.readers:
            self.readers[split] = self.source.reader()
            self.readers[split].open(split, self.marks[split])
        return self.readers[split]

    def die(self) -> None:
        """Closes all readers; the next ones begin at the marks."""
        for reader in self.readers.values():
            reader.close()
        self.readers = {}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes what a test has left open."""
    yield
    while Tail.made:
        Tail.made.pop().die()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    return path


def test_a_line_is_read_when_it_has_its_end(log: Path) -> None:
    tail = Tail(str(log))
    assert tail.poll() == ["one", "two"]
    append(log, "thr")
    assert tail.poll() == []
    append(log, "ee\r\nfour\nfi")
    assert tail.poll() == ["three", "four"]
    tail.die()
    append(log, "ve\n")
    assert tail.poll() == ["five"]


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
@pytest.mark.parametrize("unread", ["", "three\n", "three\nunfinished"], ids=["all read", "some left", "no end"])
@pytest.mark.parametrize("pattern", ["app.log", "*.log", "app.log*", "old"])
@pytest.mark.parametrize("rotate", ROTATIONS.values(), ids=ROTATIONS)
def test_a_rotation_neither_loses_nor_repeats_a_line(
    log: Path, rotate: Callable[[Path], None], pattern: str, unread: str, dies: bool
) -> None:
    """``old``: files are rotated into another folder, whose files the pattern matches, too."""
    is_moved = pattern == "old"
    if is_moved:
        rotate, pattern = into_another_folder(rotate), "**/app.log*"
    tail = Tail(str(log.parent / pattern), rotated_to="old" if is_moved else None)
    tail.poll(records_max=1)
    append(log, unread)
    rotate(log)
    append(log, "new\n")
    if dies:
        tail.die()
    tail.poll()
    rotate(log)
    append(log, "newer\n")
    if dies:
        tail.die()
    tail.poll()
    assert sorted(tail.lines) == sorted(["one", "two", *(["three"] if unread else []), "new", "newer"])
    assert len(tail.ended) == 2


def test_contents_that_were_rotated_into_another_folder_between_two_looks_are_read(log: Path) -> None:
    tail = Tail(str(log), rotated_to=str(log.parent / "old"))
    tail.poll()
    for number in range(3):
        append(log, f"{number}\n")
        into_another_folder(compressed_later)(log)
    tail.poll()
    append(log, "last\n")
    tail.die()
    tail.poll()
    assert sorted(tail.lines) == ["0", "1", "2", "last", "one", "two"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(sorted(ROTATIONS)), st.booleans(), st.booleans())
def test_any_order_of_lines_rotations_polls_and_deaths_reads_each_line_once(
    tmp_path_factory: Any, seed: int, kind: str, finds_late: bool, is_moved: bool
) -> None:
    rng, folder = Random(seed), tmp_path_factory.mktemp("logs")
    log, written = folder / "app.log", 0
    log.write_text("begin\n")
    tail = Tail(str(folder / "*.log"), rotated_to="old" if is_moved else None)
    rotate = into_another_folder(ROTATIONS[kind]) if is_moved else ROTATIONS[kind]
    for _ in range(rng.randint(5, 40)):
        action = rng.choice(("write", "write", "poll", "rotate", "die"))
        if action == "write":
            for _ in range(rng.choice((1, 3, 400))):
                append(log, f"{written:09d} {'x' * rng.randrange(40)}\n")
                written += 1
        elif action == "poll":
            tail.poll(records_max=rng.choice((1, 7, 1_000)))
        elif action == "rotate":
            if not finds_late:
                tail.poll()
            rotate(log)
        else:
            tail.die()
    tail.poll()
    tail.die()
    assert sorted(line.split(" ")[0] for line in tail.lines) == [*(f"{n:09d}" for n in range(written)), "begin"]


@pytest.mark.parametrize("rotate", ROTATIONS.values(), ids=ROTATIONS)
def test_contents_that_come_and_are_rotated_between_two_looks_are_read(
    log: Path, rotate: Callable[[Path], None]
) -> None:
    tail = Tail(str(log))
    for word in ("three", "four", "five"):
        rotate(log)
        append(log, f"{word}\n")
    tail.poll()
    assert sorted(tail.lines) == sorted(["one", "two", "three", "four", "five"])


def test_contents_that_come_and_are_rotated_before_the_first_look_are_read(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    tail = Tail(str(tmp_path / "*.log"))
    for word in ("one", "two", "three"):
        append(log, f"{word}\n")
        compressed_later(log)
    assert sorted(tail.poll()) == ["one", "three", "two"]


def test_files_that_were_rotated_before_the_start_are_not_read_unless_they_match(log: Path) -> None:
    renamed(log)
    append(log, "three\n")
    assert Tail(str(log)).poll() == ["three"]
    assert sorted(Tail(f"{log}*").poll()) == ["one", "three", "two"]


def test_a_rotated_file_is_read_until_it_has_lingered(log: Path) -> None:
    tail = Tail(str(log), linger_ns=1 << 60)
    tail.poll()
    renamed(log)
    append(Path(f"{log}.1"), "late\n")
    assert tail.poll() == ["late"]
    assert not tail.ended


def test_a_file_that_is_emptied_without_a_copy_has_changed(log: Path) -> None:
    tail = Tail(str(log))
    tail.poll()
    log.write_text("")
    with pytest.raises(InputChanged, match=r"app\.log has changed otherwise .* no file beside it has what it had"):
        tail.poll()


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_a_file_whose_read_lines_become_others_has_changed(log: Path, dies: bool) -> None:
    tail = Tail(str(log))
    tail.poll()
    log.write_text("one\nTWO and more\nthree\n")
    if dies:
        tail.die()
    with pytest.raises(InputChanged):
        tail.poll()


def test_a_file_that_is_gone_when_a_reader_opens_it_has_changed(log: Path) -> None:
    tail = Tail(str(log))
    tail.poll()
    tail.die()
    log.unlink()
    with pytest.raises(InputChanged):
        tail.poll()


def test_files_with_equal_first_lines_are_different_contents(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(f"# fields\nof {name}\n")
    assert sorted(Tail(f"{tmp_path}/*.log").poll()) == ["# fields", "# fields", "of a.log", "of b.log"]


def test_a_split_belongs_to_one_task_together_with_its_rotations(tmp_path: Path) -> None:
    names = [f"{word}.log{suffix}" for word in "abcdef" for suffix in ("", ".1")]
    for name in names:
        (tmp_path / name).write_text(f"{name}\n")
    source = Tail(f"{tmp_path}/*").source
    found = [source.discover([], index, 3) for index in range(3)]
    assert sum(map(len, found)) == len(names)
    assert all(len(splits) % 2 == 0 for splits in found)


def test_lines_have_the_path_that_they_were_found_at_and_their_offset(log: Path) -> None:
    tail = Tail(str(log), with_position=True)
    assert tail.poll() == [(str(log), 0, "one"), (str(log), 4, "two")]
    renamed(log)
    append(Path(f"{log}.1"), "three\n")
    assert tail.poll() == [(str(log), 8, "three")]


def test_bytes_that_are_not_a_split_or_a_mark_are_refused(log: Path) -> None:
    source = Tail(str(log)).source
    (split,) = source.splits(1)
    source.check_split(split)
    with pytest.raises(UnexpectedInput):
        files.tail(f"{log.parent}/other.log").check_split(split)
    with pytest.raises(SplitMalformed):
        source.reader().open(b"x", None)
    with pytest.raises(SplitMalformed):
        source.reader().open(split, b"x")


def test_an_address_is_refused() -> None:
    with pytest.raises(InvalidConnector, match="is a URL, and no file grows there"):
        files.tail("s3://bucket/app.log")
