"""``clonos doctor``: looks at what a job needs on this machine and at its stores and servers, and says what to do.

Each check returns findings and changes nothing, except that a store gets one small object, which is deleted again.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clonos import __version__
from clonos.config import RunOptions, SlotKind
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.io.local.local_folder import FolderRefused, default_root
from clonos.io.store.object_files import LocalFiles, ObjectMissing
from clonos.io.store.store import open_files
from clonos.io.system.entropy import random_bytes
from clonos.io.system.open_files import raise_files_limit
from clonos.job.deployment import ports_of
from clonos.kernels.choice import kernels_in_use
from clonos_standby.launch_spec import NO_DISTRIBUTION, version_of

if TYPE_CHECKING:
    from clonos.job import Job

FILES_WANTED: Final = 4_096
"""Open files of a process that a job of a hundred tasks needs."""

PROCESSES_WANTED: Final = 512
DISK_WARNED_BYTES: Final = 2 << 30
DISK_NEEDED_BYTES: Final = 128 << 20
MEMORY_WANTED_BYTES: Final = 1 << 30
SOCKET_PATH_MAX: Final = 107
"""Length in bytes of the path of a Unix socket, in the kernel of Linux."""

SOCKET_NAME_LENGTH: Final = 40
"""Length of what follows the root of the local folders in such a path."""

CLOCK_UNSYNCHRONISED: Final = 5
"""Answer of ``adjtimex``: nothing keeps the clock right."""

STORE_SLOW_MS: Final = 500
OPTIONAL: Final = {
    "confluent-kafka": "kafka",
    "pika": "rabbitmq",
    "nats-py": "nats",
    "redis": "redis",
    "paho-mqtt": "mqtt",
    "psycopg": "postgres",
    "hdfs-native": "hdfs",
    "fastavro": "avro",
    "protobuf": "protobuf",
    "xmltodict": "xml",
}
"""Libraries of the extras of the package, by their name on PyPI."""


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check. ``advice``: what to do; empty if nothing is wrong."""

    check: str
    level: Severity
    text: str
    advice: str = ""


def examine(job: Job | None, run: RunOptions, server: str = "") -> Iterator[CheckResult]:
    """Runs all checks, for a job and its options if there is one, and yields what they find."""
    checks: list[tuple[str, Callable[[], Iterable[CheckResult]]]] = [
        ("Python", _python),
        ("libraries", _libraries),
        ("Spark", lambda: _spark(run, job is not None and run.slots is SlotKind.SPARK)),
        ("processor and memory", _machine),
        ("limits", _limits),
        ("local folder", _local_folder),
        ("ports", lambda: _ports(run.data_ports)),
        ("clock", _clock),
        ("store", lambda: _store(run.store)),
    ]
    if job is not None:
        checks.append(("job", lambda: _job(job, run)))
    if server:
        checks.append(("server", lambda: _server(server)))
    for name, check in checks:
        try:
            yield from check()
        except ClonosError as error:
            yield CheckResult(
                name, Severity.ERROR, str(error), "do what the message says, then run clonos doctor again"
            )


def _python() -> Iterator[CheckResult]:
    yield CheckResult("Python", Severity.OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    kernels = kernels_in_use()
    if kernels.startswith("native"):
        yield CheckResult("clonos", Severity.OK, f"{__version__}, {kernels}")
    else:
        advice = "install a C compiler and install clonos again; jobs on rows do not need it"
        yield CheckResult(
            "clonos", Severity.WARNING, f"{__version__}, {kernels}: columns take several times as long", advice
        )


def _libraries() -> Iterator[CheckResult]:
    there = [extra for name, extra in OPTIONAL.items() if _version(name)]
    missing = [extra for name, extra in OPTIONAL.items() if not _version(name)]
    text = f"installed: {', '.join(there) or 'none'}"
    if missing:
        text += f"; not installed: {', '.join(missing)} (where a job needs one: pip install 'clonos[{missing[0]}]')"
    yield CheckResult("libraries", Severity.OK, text)


def _version(distribution: str) -> str:
    found = version_of(distribution)
    return "" if found == NO_DISTRIBUTION else found


def _spark(run: RunOptions, is_needed: bool) -> Iterator[CheckResult]:
    from clonos.spark.java import JavaUnfit, check_java

    wrong = Severity.ERROR if is_needed else Severity.WARNING
    version = _version("pyspark")
    if not version and not is_needed:
        yield CheckResult("Spark", Severity.OK, "PySpark is not installed: jobs run in child processes")
        return
    if not version:
        advice = "pip install 'clonos[spark]', or run jobs with --slots process, which needs no Spark"
        yield CheckResult("Spark", wrong, "PySpark is not installed", advice)
        return
    try:
        check_java()
    except JavaUnfit as unfit:
        advice = f"{unfit.command}; or run jobs with --slots process, which needs no Java"
        yield CheckResult("Spark", wrong, f"PySpark {version}, but {unfit.found}", advice)
        return
    yield CheckResult("Spark", Severity.OK, f"PySpark {version} and its Java; master {run.master}")


def _machine() -> Iterator[CheckResult]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = _memory_free()
    text = f"{cores} {'core' if cores == 1 else 'cores'}, {_size(free)} of memory free"
    if free < MEMORY_WANTED_BYTES:
        advice = "end other programs, or lower inflight_memory and log_memory; each task needs about 100 MiB"
        yield CheckResult("memory", Severity.WARNING, text, advice)
    else:
        yield CheckResult("memory", Severity.OK, text)


def _memory_free() -> int:
    """Returns the memory that this process may still take: of the machine, and of its control group if that is less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) << 10
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    return min(free, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else free


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _limits() -> Iterator[CheckResult]:
    files = raise_files_limit()
    if files < FILES_WANTED:
        advice = f"raise the hard limit (ulimit -Hn {FILES_WANTED}, or LimitNOFILE= of the service)"
        yield CheckResult(
            "open files", Severity.WARNING, f"a process may have {files:,}; each connection is one", advice
        )
    else:
        yield CheckResult("open files", Severity.OK, f"a process may have {files:,}")
    processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if processes != resource.RLIM_INFINITY and processes < PROCESSES_WANTED:
        advice = f"raise it (ulimit -u {PROCESSES_WANTED}); each slot is a process with several threads"
        yield CheckResult("processes", Severity.WARNING, f"this user may have {processes:,}, threads included", advice)


def _local_folder() -> Iterator[CheckResult]:
    try:
        root = default_root()
    except FolderRefused as refused:
        yield CheckResult("local folder", Severity.ERROR, str(refused), "set TMPDIR to a folder of your own")
        return
    yield _disk_finding("local folder", root)
    if len(os.fsencode(root)) + SOCKET_NAME_LENGTH > SOCKET_PATH_MAX:
        advice = "set TMPDIR to a shorter path, such as /tmp"
        yield CheckResult("local folder", Severity.ERROR, f"{root} is too long for the paths of Unix sockets", advice)


def _disk_finding(check: str, folder: Path) -> CheckResult:
    """Returns how much space there is, on the disk of a folder that may not exist yet."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    text, advice = f"{folder}, {_size(free)} free", "free some space, or use another disk (--store, TMPDIR)"
    if free < DISK_NEEDED_BYTES:
        return CheckResult(check, Severity.ERROR, text, advice)
    return (
        CheckResult(check, Severity.WARNING, text, advice)
        if free < DISK_WARNED_BYTES
        else CheckResult(check, Severity.OK, text)
    )


def _ports(data_ports: str) -> Iterator[CheckResult]:
    if error := _bind_error("127.0.0.1", 0):
        advice = "check the network namespace and the firewall of this machine"
        yield CheckResult("ports", Severity.ERROR, f"no port of the loopback interface can be bound: {error}", advice)
        return
    ports = ports_of(data_ports)
    if ports is None:
        yield CheckResult("ports", Severity.OK, "the loopback interface can be bound")
        return
    taken = [port for port in ports if _bind_error("0.0.0.0", port)]
    text = f"data_ports={data_ports}: {len(ports) - len(taken)} of {len(ports)} are free"
    if len(taken) == len(ports):
        yield CheckResult("ports", Severity.ERROR, text, "name other ports, or end the programs that use them")
    else:
        yield CheckResult("ports", Severity.OK, text)


def _bind_error(host: str, port: int) -> str:
    with socket.socket() as listener:
        try:
            listener.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _clock() -> Iterator[CheckResult]:
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # all zero: it only reads
    except (OSError, AttributeError):
        state = -1
    if state == CLOCK_UNSYNCHRONISED:
        advice = "start chrony or systemd-timesyncd; only jobs on several machines and event time by the clock need it"
        yield CheckResult("clock", Severity.WARNING, f"{now}, and nothing synchronises it", advice)
    else:
        yield CheckResult("clock", Severity.OK, now if state < 0 else f"{now}, synchronised")


def _store(url: str) -> Iterator[CheckResult]:
    """Checks that the store, or a store in the working folder, can decide between two drivers."""
    if url:
        yield from _store_findings(url, url)
        if "://" not in url:
            yield _disk_finding("disk", Path(url).absolute())
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".clonos-doctor-", dir=".") as folder:
            yield from _store_findings(folder, "the working folder")
        yield _disk_finding("disk", Path.cwd())
    except OSError as error:
        advice = "name a store with --store, or work in a folder that you may write to"
        yield CheckResult("store", Severity.ERROR, f"the working folder cannot be written: {error.strerror}", advice)


def _store_findings(url: str, shown: str) -> Iterator[CheckResult]:
    files, name = open_files(url), f"doctor/{random_bytes(8).hex()}"
    began_s = time.monotonic()
    try:
        created = [files.create_if_absent(name, each) for each in (b"first", b"second")]
        content = files.read(name)
        files.delete(name)
        if isinstance(files, LocalFiles):
            files.remove_empty_folders()
    except (EnvironmentFault, ObjectMissing) as error:
        yield CheckResult("store", Severity.ERROR, str(error), "check address, credentials, permissions and free space")
        return
    took_ms = (time.monotonic() - began_s) * 1e3 / 4
    if created != [True, False] or content != b"first":
        advice = "use another store: two drivers could both run the job"
        yield CheckResult("store", Severity.ERROR, f"{shown} does not create an object only if it is absent", advice)
        return
    text = f"{shown}: objects can be created if absent, read and deleted; {took_ms:.0f} ms per request"
    if took_ms > STORE_SLOW_MS:
        yield CheckResult(
            "store", Severity.WARNING, text, "each checkpoint takes several requests: raise checkpoint_every"
        )
    else:
        yield CheckResult("store", Severity.OK, text)


def _job(job: Job, run: RunOptions) -> Iterator[CheckResult]:
    """Checks that the job compiles, that its input is there, and what its sinks check before a start."""
    from clonos.config import resolve_settings
    from clonos.job.description import graph_of, options_of

    image = graph_of(job).compile(resolve_settings(options_of(job)).core, parallelism=run.parallelism)
    text = f"{job.name}: {len(image.vertices)} vertices, {len(image.plan.tasks)} tasks"
    yield CheckResult("job", Severity.OK, text)
    for vertex, sink in image.sinks.items():
        if (check_start := getattr(sink, "check_start", None)) is None:
            continue
        name = image.plan.vertices[vertex].name
        try:
            check_start()
        except ClonosError as error:
            yield CheckResult(f"sink {name}", Severity.ERROR, str(error), "do what the message says")
        else:
            yield CheckResult(f"sink {name}", Severity.OK, "its server answers")


def _server(url: str) -> Iterator[CheckResult]:
    import urllib3

    try:
        answer = urllib3.PoolManager(retries=False, timeout=5.0).request("GET", f"{url.rstrip('/')}/api/v1/jobs")
    except urllib3.exceptions.HTTPError as error:
        advice = "start it with clonos serve, or name its address"
        yield CheckResult("server", Severity.ERROR, f"{url} does not answer ({type(error).__name__})", advice)
        return
    if answer.status in (200, 401):  # it asks for a token, so it is there
        yield CheckResult("server", Severity.OK, f"{url} answers")
    else:
        yield CheckResult(
            "server", Severity.ERROR, f"{url} answers with status {answer.status}", "name a server of clonos"
        )


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"


def lines_of(findings: Iterable[CheckResult]) -> Iterator[str]:
    """Yields the lines that show findings: level, check and text, and what to do below."""
    for finding in findings:
        yield f"{finding.level:8} {finding.check:14} {finding.text}"
        if finding.advice:
            yield f"{'':23} to do: {finding.advice}"


def main_level(findings: Iterable[CheckResult]) -> Severity:
    """Returns the worst level."""
    order = list(Severity)
    return max((finding.level for finding in findings), key=order.index, default=Severity.OK)


def print_examination(job: Job | None, run: RunOptions, server: str, as_json: bool) -> bool:
    """Prints what the checks find, each at once, and returns True when none found an error."""
    import msgspec

    found: list[CheckResult] = []
    for finding in examine(job, run, server):
        found.append(finding)
        if not as_json:
            for line in lines_of([finding]):
                print(line, flush=True)
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    return main_level(found) is not Severity.ERROR
