"""Rotations of a log as logrotate makes them: app.log becomes app.log.1, app.log.1 becomes app.log.2, and so on."""

from __future__ import annotations

import bz2
import gzip
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final


def append(log: Path, text: str) -> None:
    """Writes at the end of a log, as a writer does that opens it anew."""
    with open(log, "a", encoding="utf-8") as file:
        file.write(text)


def renamed(log: Path) -> None:
    """With ``create``."""
    _shift(log)
    log.rename(f"{log}.1")
    log.touch()


def copied(log: Path) -> None:
    """With ``copytruncate``."""
    _shift(log)
    shutil.copyfile(log, f"{log}.1")
    os.truncate(log, 0)


def compressed(log: Path) -> None:
    """With ``create`` and ``compress``."""
    renamed(log)
    _compress(Path(f"{log}.1"), gzip.compress, ".gz")


def copied_and_compressed(log: Path) -> None:
    """With ``copytruncate`` and ``compress``, by another compressor."""
    copied(log)
    _compress(Path(f"{log}.1"), bz2.compress, ".bz2")


def compressed_later(log: Path) -> None:
    """With ``create`` and ``delaycompress``."""
    former = Path(f"{log}.1")
    if former.exists():
        _compress(former, gzip.compress, ".gz")
    renamed(log)


ROTATIONS: Final = {
    each.__name__: each for each in (renamed, copied, compressed, copied_and_compressed, compressed_later)
}


def into_another_folder(rotate: Callable[[Path], None]) -> Callable[[Path], None]:
    """Rotates with ``olddir old``."""

    def rotated(log: Path) -> None:
        folder = log.parent / "old"
        folder.mkdir(exist_ok=True)
        for each in folder.iterdir():
            each.rename(log.parent / each.name)
        rotate(log)
        for _, each in _rotated(log):
            each.rename(folder / each.name)

    return rotated


def remove_oldest(log: Path, rotated_max: int) -> None:
    """Removes rotated files beyond a number, as ``rotate N`` does."""
    for number, path in _rotated(log):
        if number > rotated_max:
            path.unlink()


def _rotated(log: Path) -> list[tuple[int, Path]]:
    """Returns the rotated files with their numbers, the oldest first."""
    found = [(re.match(rf"{re.escape(log.name)}\.(\d+)", path.name), path) for path in log.parent.iterdir()]
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def _shift(log: Path) -> None:
    for number, path in _rotated(log):
        suffix = path.name.removeprefix(f"{log.name}.{number}")
        path.rename(f"{log}.{number + 1}{suffix}")


def _compress(path: Path, compress: Callable[[bytes], bytes], suffix: str) -> None:
    modified_ns = path.stat().st_mtime_ns
    target = Path(f"{path}{suffix}")
    target.write_bytes(compress(path.read_bytes()))
    os.utime(target, ns=(modified_ns, modified_ns))
    path.unlink()
