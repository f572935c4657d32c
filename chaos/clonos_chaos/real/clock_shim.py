"""Clock shim: sets the wall clock of a scenario's processes only, by a preloaded library that adds an offset.

Monotonic time does not change. libfaketime is not used: it also changes waits and sleeps, which breaks Python threads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault
from clonos_chaos.real.toxiproxy_server import CACHE_VARIABLE

FILE_VARIABLE: Final = "CLONOS_CLOCK_SHIM"
COMPILE_TIMEOUT_S: Final = 60.0
NANOSECONDS_PER_MS: Final = 1_000_000
SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *forth_ns;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLONOS_CLOCK_SHIM");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) forth_ns = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime) begin();
    int result = real_clock_gettime(clock, now);
    if (result == 0 && forth_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *forth_ns;
        now->tv_sec = ns / 1000000000;
        now->tv_nsec = ns % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    if (result == 0 && now) {
        now->tv_sec = exact.tv_sec;
        now->tv_usec = exact.tv_nsec / 1000;
    }
    return result;
}

time_t time(time_t *seconds) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (seconds) *seconds = exact.tv_sec;
    return exact.tv_sec;
}
"""


class ClockShimMissing(EnvironmentFault):
    """The shim cannot be compiled."""

    reason: str

    def __str__(self) -> str:
        return (
            f"this scenario sets the clock of its processes, for which a C compiler is needed ({self.reason}):"
            " put cc, with the headers of the C library, on the PATH; it works on Linux only."
        )


def _shim() -> Path:
    """Returns the library, compiled once for each version of its source."""
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache") / "clonos"
    library = cache / f"clock-shim-{hashlib.sha256(SOURCE.encode()).hexdigest()[:12]}.so"
    if library.is_file():
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        raise ClockShimMissing("there is none")
    cache.mkdir(parents=True, exist_ok=True)
    new = library.with_suffix(f".{os.getpid()}")
    command = [compiler, "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", str(new), "-ldl"]
    compiled = subprocess.run(command, input=SOURCE, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    if compiled.returncode:
        raise ClockShimMissing(" ".join(compiled.stderr.split())[-200:])
    os.replace(new, library)
    return library


class ClockShim:
    """Wall clock of the processes that run with its ``environment``."""

    def __init__(self, folder: Path) -> None:
        """Compiles the shim. Raises ClockShimMissing."""
        self._file = folder / "clock"
        self._library = _shim()
        self._file.write_bytes(bytes(8))

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment variables of processes that use this clock."""
        return {"LD_PRELOAD": str(self._library), FILE_VARIABLE: str(self._file)}

    def set(self, forth_ms: int) -> None:
        """Sets the clock ``forth_ms`` ahead of the real clock."""
        descriptor = os.open(self._file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, struct.pack("=q", forth_ms * NANOSECONDS_PER_MS), 0)
        finally:
            os.close(descriptor)
