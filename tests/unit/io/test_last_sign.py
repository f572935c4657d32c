"""Last signs of life in shared memory: they outlive their process, and nothing stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clonos.io.system.last_sign import LEFT_S, MEMORY, SignOfLife, last_sign_ns, remove_sign

NUMBER = 0x1234


def test_the_last_sign_of_a_killed_process_is_there_until_it_is_removed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from clonos.io.system.last_sign import SignOfLife\n"
        "sign = SignOfLife(int(sys.argv[1]), Path(sys.argv[2])); sign.give(76); sign.give(77)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(NUMBER), str(tmp_path)], check=False)
    assert done.returncode == -9
    assert last_sign_ns(NUMBER, tmp_path) == 77
    remove_sign(NUMBER, tmp_path)
    remove_sign(NUMBER, tmp_path)
    assert last_sign_ns(NUMBER, tmp_path) is None


def test_a_process_that_ends_removes_its_sign(tmp_path: Path) -> None:
    sign = SignOfLife(NUMBER, tmp_path)
    assert last_sign_ns(NUMBER, tmp_path) is None  # it has given none
    sign.give(5)
    assert last_sign_ns(NUMBER, tmp_path) == 5
    sign.close()
    sign.close()
    sign.give(6)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_shared_memory_has_no_signs(tmp_path: Path) -> None:
    sign = SignOfLife(NUMBER, tmp_path / "none")
    sign.give(5)
    assert last_sign_ns(NUMBER, tmp_path / "none") is None
    sign.close()


def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"8 bytes!")
    (tmp_path / f"clonos-{os.getuid()}-{NUMBER:016x}.alive").symlink_to(target)
    sign = SignOfLife(NUMBER, tmp_path)
    sign.give(5)
    sign.close()
    assert target.read_bytes() == b"8 bytes!"
    assert last_sign_ns(NUMBER, tmp_path) is None


def test_old_signs_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    living = SignOfLife(1, tmp_path)
    living.give(5)
    dead = tmp_path / f"clonos-{os.getuid()}-{2:016x}.alive"
    young = tmp_path / f"clonos-{os.getuid()}-{3:016x}.alive"
    other = tmp_path / "other.alive"
    old_s = time.time() - 2 * LEFT_S
    for path in (dead, young, other):
        path.write_bytes(bytes(8))
    for path in (dead, other, tmp_path / f"clonos-{os.getuid()}-{1:016x}.alive"):
        os.utime(path, (old_s, old_s))
    SignOfLife(4, tmp_path).close()
    assert not dead.exists()
    assert young.exists()
    assert other.exists()
    assert last_sign_ns(1, tmp_path) == 5
    living.close()


@pytest.mark.skipif(not MEMORY.exists(), reason="this machine has no shared memory")
def test_a_sign_is_in_the_shared_memory_of_the_machine() -> None:
    number = int.from_bytes(os.urandom(7), "little")
    sign = SignOfLife(number)
    sign.give(5)
    assert last_sign_ns(number) == 5
    sign.close()
