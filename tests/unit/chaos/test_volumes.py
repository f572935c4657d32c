"""Small file systems of a scenario: full ones refuse writes, and their content stays when they are unmounted."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from clonos_chaos.real.volumes import Volumes, VolumesRefused
from clonos_chaos.scenario.scenario import Volume


def test_a_machine_without_mounts_reports_that_the_scenario_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VolumesRefused, match=r"it was not run\. It needs Linux, root"):
        Volumes(tmp_path)


def _use(folder: Path) -> None:
    snapshot, part = folder / "store" / "snapshot", folder / "output" / "part"
    volumes = Volumes(folder)
    try:
        volumes.fill(Volume.STORE)
        with pytest.raises(OSError, match="No space left on device"):
            snapshot.write_bytes(b"state")
        part.write_bytes(b"rows")
        volumes.free(Volume.STORE)
        snapshot.write_bytes(b"state")
    finally:
        volumes.close()
        volumes.remove_local()
    assert (snapshot.read_bytes(), part.read_bytes()) == (b"state", b"rows")


def test_a_full_file_system_refuses_writes_until_it_is_freed_and_its_content_stays(tmp_path: Path) -> None:
    with suppress(VolumesRefused):  # elsewhere than on Linux as root
        _use(tmp_path)
