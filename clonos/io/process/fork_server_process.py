"""Process of a fork server as its driver sees it, and its start ahead of the job.

Driver and fork server import for about half a second each. Started ahead, they do so at the same time. This module
imports little, because the command line loads it first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from clonos.config import RunOptions, SlotKind
from clonos.core.model.errors import EnvironmentFault
from clonos.io.system.entropy import random_hash_seed

WARM_MODULES: Final = ("clonos_standby.slot.host",)
"""Modules imported before the job is known: those of a slot."""

COLUMN_MODULES: Final = ("clonos.io.system.retained_memory", "clonos_standby.slot.column_modules")
"""Modules imported for a job with columns, besides those that its pickled image names."""

ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Threads of numpy's linear algebra, unless the user has set them. A slot has one core for its task, and threads that
wait for work take 0.1 s of processor time when numpy is imported.
"""


@dataclass(frozen=True, slots=True)
class ForkServerProcess:
    """Running fork server. ``inherited``: what its slots inherit from the driver, as it was at the start.

    ``events_fd``: where it reports the start and the end of slots.
    """

    process: subprocess.Popen[bytes]
    events_fd: int
    inherited: tuple[object, ...]

    @classmethod
    def start(cls, hash_seed: str, warm_modules: tuple[str, ...], output: Path | None = None) -> ForkServerProcess:
        """Starts one. ``output``: file for the standard output of slots; None shares the driver's.

        Raises: EnvironmentFault.
        """
        events_read_fd, events_write_fd = os.pipe()
        opened = open(output, "ab") if output is not None else None  # noqa: SIM115 closed below
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "clonos.io.process.fork_server", str(events_write_fd), *warm_modules],
                stdin=subprocess.PIPE,
                stdout=opened,
                stderr=opened,
                pass_fds=(events_write_fd,),
                env=_environment(hash_seed),
                start_new_session=True,  # a Ctrl-C in the terminal signals only the driver
            )
        except OSError as error:
            os.close(events_read_fd)
            raise EnvironmentFault(f"slot processes cannot be started with {sys.executable}: {error}") from None
        finally:
            os.close(events_write_fd)
            if opened is not None:
                opened.close()
        return cls(process, events_read_fd, _inherited(hash_seed, warm_modules, output))

    def move_to(self, hash_seed: str, warm_modules: tuple[str, ...], output: Path) -> ForkServerProcess:
        """Gives a fork server that has forked nothing the working folder and the import path that this process has now,
        and ``output`` as the standard output of its slots. Returns it as one whose output is this process's.

        Raises: BrokenPipeError: it has ended.
        """
        from clonos.io.process.fork_server import HEADER, PLACE, packed_place  # with cloudpickle

        assert self.process.stdin is not None, "it was opened as a pipe"
        place = packed_place(os.getcwd(), str(output), _import_path())
        self.process.stdin.write(HEADER.pack(PLACE, 0, len(place)) + place)
        self.process.stdin.flush()
        return replace(self, inherited=_inherited(hash_seed, warm_modules, None))

    def discard(self) -> None:
        """Ends a fork server that has forked nothing."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None, "it was opened as a pipe"
        self.process.stdin.close()
        os.close(self.events_fd)


_ahead: ContextVar[tuple[str, ForkServerProcess] | None] = ContextVar("fork server started ahead", default=None)
"""Fork server that no job has taken yet, with its hash seed. Other threads do not see it."""


@contextmanager
def fork_server_ahead(run: RunOptions | None, warm_modules: tuple[str, ...] = WARM_MODULES) -> Iterator[None]:
    """Starts a fork server for the job that starts within the block, and ends it if no job takes it.

    ``run``: the options as far as they are known. A job on Spark needs none, and the hash seed of a resumed job is in
    its store. None starts none.
    """
    is_wanted = run is not None and run.slots is SlotKind.PROCESS and not run.resume
    if not is_wanted or _ahead.get() is not None:
        yield
        return
    hash_seed = random_hash_seed()
    with offered(hash_seed, ForkServerProcess.start(hash_seed, warm_modules)):
        yield


@contextmanager
def offered(hash_seed: str, fork_server: ForkServerProcess) -> Iterator[None]:
    """Offers a fork server to the job that starts within the block, and ends it if the job does not take it."""
    before = _ahead.set((hash_seed, fork_server))
    try:
        yield
    finally:
        left = _ahead.get()
        _ahead.reset(before)
        if left is not None:
            left[1].discard()


def hash_seed_ahead() -> str | None:
    """Returns the hash seed of the fork server that was started ahead; None without one."""
    ahead = _ahead.get()
    return None if ahead is None else ahead[0]


def take_or_start(hash_seed: str, warm_modules: tuple[str, ...], output: Path | None) -> ForkServerProcess:
    """Returns the fork server that was started ahead, else a new one.

    A fork server whose slots would differ from those of a new one is left: since it was started, the job may have
    changed a variable, the import path or the working folder.

    Raises: EnvironmentFault.
    """
    ahead = _ahead.get()
    if ahead is not None and ahead[1].inherited == _inherited(hash_seed, warm_modules, output):
        _ahead.set(None)
        return ahead[1]
    return ForkServerProcess.start(hash_seed, warm_modules, output)


def _inherited(hash_seed: str, warm_modules: tuple[str, ...], output: Path | None) -> tuple[object, ...]:
    return _environment(hash_seed), os.getcwd(), warm_modules, output, sys.executable


def _environment(hash_seed: str) -> dict[str, str]:
    """Returns the environment of slots: the driver's, with one hash seed and the driver's import path."""
    path = os.pathsep.join(_import_path())
    return ONE_THREAD | os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}


def _import_path() -> list[str]:
    return [entry or os.getcwd() for entry in sys.path]
