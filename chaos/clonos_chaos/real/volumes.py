"""Small file systems for the folders of a run: local folders with spill, the store, the files and the table.

A full one refuses every write with ENOSPC, as a full disk does. They are mounted in memory, for which Linux and root
are needed; without them the scenario is refused. ``close`` leaves their content in ordinary folders.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault
from clonos_chaos.scenario.scenario import Volume

SIZE: Final = "24m"
BALLAST: Final = "ballast"
PIECE_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4_096
LINKED: Final = {Volume.OUTPUT: "output", Volume.TABLE: "table.sqlite"}
"""Outputs of the shipped job, which are links into their file systems: parts are staged beside their folder."""


class VolumesRefused(EnvironmentFault):
    """The machine does not permit mounting file systems. The scenario was not run."""

    reason: str

    def __str__(self) -> str:
        return (
            f"this scenario fills small file systems, which cannot be mounted here ({self.reason}): it was not run."
            " It needs Linux, root and the command `mount`."
        )


class Volumes:
    """Mounted file systems of a run in ``folder``, by kind. The driver runs with their ``environment``."""

    def __init__(self, folder: Path) -> None:
        """Mounts them. Raises VolumesRefused."""
        self._temporary = Path(tempfile.mkdtemp(prefix="clonos-volume-"))  # sockets below need a short path
        self._places = {
            Volume.SPILL: self._temporary / "local",
            Volume.STORE: folder / "store",
            Volume.OUTPUT: folder / "output-volume",
            Volume.TABLE: folder / "table-volume",
        }
        self._mounted: list[Path] = []
        try:
            for place in self._places.values():
                place.mkdir()
                _run("mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "clonos-chaos", str(place))
                self._mounted.append(place)
        except VolumesRefused:
            self.close()
            raise
        (self._places[Volume.OUTPUT] / LINKED[Volume.OUTPUT]).mkdir()
        for volume, name in LINKED.items():
            (folder / name).symlink_to(self._places[volume] / name)

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment of processes whose local folders are in the file system for spill."""
        return {"TMPDIR": str(self._places[Volume.SPILL])}

    @property
    def local_root(self) -> Path:
        """Returns the root of the local folders of these processes."""
        return self._places[Volume.SPILL] / f"clonos-{os.getuid()}"

    def fill(self, volume: Volume) -> None:
        """Takes all space that is left."""
        for place in self._chosen(volume):
            with open(place / BALLAST, "ab", buffering=0) as ballast:
                for size in (PIECE_BYTES, PAGE_BYTES):
                    _write_until_full(ballast.fileno(), bytes(size))

    def free(self, volume: Volume) -> None:
        """Frees the space."""
        for place in self._chosen(volume):
            (place / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Unmounts the file systems, whose content stays."""
        for place in self._mounted:
            copy = place.with_name(f"{place.name}.copy")
            shutil.copytree(place, copy, symlinks=True, ignore=_sockets)
            _run("umount", "--lazy", str(place))
            place.rmdir()
            copy.rename(place)
        self._mounted.clear()

    def remove_local(self) -> None:
        """Removes what the processes have left in their local folders, once it was checked."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _chosen(self, volume: Volume) -> Collection[Path]:
        return self._places.values() if volume is Volume.ALL else (self._places[volume],)


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_socket()]


def _write_until_full(descriptor: int, data: bytes) -> None:
    try:
        while os.write(descriptor, data):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise VolumesRefused(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        raise VolumesRefused(" ".join(done.stderr.split())[-200:])
