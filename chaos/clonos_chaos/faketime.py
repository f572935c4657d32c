"""Sets the wall clock of a scenario's processes with libfaketime, and nobody else's. Monotonic time stays as it is."""

from __future__ import annotations

import ctypes.util
import os
from pathlib import Path
from typing import Final

from clonos.core.errors import EnvironmentFault

LIBRARY: Final = "libfaketimeMT.so.1"
"""The one for processes with several threads."""

PATH_VARIABLE: Final = "CLONOS_FAKETIME"
FOLDERS: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/local/lib", "/usr/lib64")


class FakeTimeMissing(EnvironmentFault):
    """The library is not to be had."""

    def __str__(self) -> str:
        return (
            "this scenario sets the clock, for which it needs libfaketime, and there is none: install the package"
            f" `faketime` of your distribution, or say where {LIBRARY} is by {PATH_VARIABLE}=/path/to/{LIBRARY}."
        )


def find_library() -> Path:
    """Where it is. FakeTimeMissing."""
    named = os.environ.get(PATH_VARIABLE)
    places = [Path(named)] if named else [Path(folder, "faketime", LIBRARY) for folder in FOLDERS]
    for place in places:
        if place.is_file():
            return place
    if not named and ctypes.util.find_library("faketime"):
        return Path(LIBRARY)
    raise FakeTimeMissing


class FakeTime:
    """A clock that processes with its ``environment`` read."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = find_library()
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that shall read it."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def set(self, forth_ms: int) -> None:
        """By so much ahead of the real clock."""
        new = self._file.with_suffix(".new")
        new.write_text(f"+{forth_ms / 1000:g}s\n", "ascii")
        os.replace(new, self._file)
