"""Threads, child processes and open sockets of a test process.

Two snapshots tell what a test left behind. What still ends by itself gets `GRACE_S` for it; a leaked process is
killed, so that it cannot disturb the tests that follow, and reported.
"""

import os
import re
import stat
import threading
import time
from dataclasses import dataclass

import psutil

from tests.speed import scaled

GRACE_S = scaled(5.0)
LOOK_EVERY_S = 0.02
RUN_VARIABLE = "CLONOS_TEST_RUN"
"""Names this test run in the environment of all that it starts, so that orphans are found under every parent."""

# They run once per test run and end with it.
COMMANDS_OF_THE_RUN = ("multiprocessing.resource_tracker", "org.apache.spark.deploy.SparkSubmit")
# They run as long as the Spark session that tests share, executors and their Python workers; or they are the servers
# and the browser that tests share.
COMMANDS_OF_A_SESSION = (
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "pyspark.daemon",
    "clonos.spark.warm_daemon",
    "pyspark/daemon.py",
    "kafka.Kafka",
    "bin/postgres -D data",
    "postgres: ",
    "mosquitto -c",
    "nats-server",
    "redis-server",
    "beam.smp",  # RabbitMQ and its helpers
    "erl_child_setup",
    "inet_gethost",
    "rabbit_disk_monitor",
    "chromedriver",  # the browser of the tests of the page
    "chromium",
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """A snapshot. A socket is its inode, which is not used again as quickly as a file number."""

    threads: frozenset[threading.Thread]
    processes: frozenset[psutil.Process]
    sockets: frozenset[int]

    @classmethod
    def now(cls) -> "Holdings":
        """Look at this process."""
        threads = frozenset(thread for thread in threading.enumerate() if not thread.name.startswith("Dummy-"))
        return cls(threads, _descendants(), _open_sockets())


def left_behind(
    before: Holdings, sockets_count: bool = True, unnamed_threads_count: bool = True, grace_s: float = GRACE_S
) -> list[str]:
    """Returns a line for each thing that is held now, was not held before and does not end within the grace.

    Threads of this library bear names; a test that uses pyspark does not count those that pyspark left unnamed.
    """
    deadline = time.monotonic() + grace_s
    complaints = []
    now = Holdings.now()
    for thread in now.threads - before.threads:
        if not unnamed_threads_count and re.fullmatch(r"Thread-\d+( \(.*\))?", thread.name):
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            complaints.append(f"thread {thread.name!r} still runs")
    complaints += _end(list(now.processes - before.processes), deadline)
    opened = sockets_count and not now.sockets <= before.sockets
    if opened and (leaked := _sockets_after(before.sockets, deadline)):
        complaints.append(f"{len(leaked)} sockets are still open: {_describe_sockets(leaked)}")
    return complaints


def orphans_of_this_run(sessions_count: bool = False, grace_s: float = GRACE_S) -> list[str]:
    """Returns a line for each process of this test run whose parent is gone; kills each.

    With `sessions_count`, what belongs to a Spark session must be gone too.
    """
    ours = [process for process in psutil.process_iter() if _belongs_to_run(process, sessions_count)]
    known = _descendants()
    return _end([process for process in ours if process not in known], time.monotonic() + grace_s)


def _descendants() -> frozenset[psutil.Process]:
    if not _has_child():  # the usual case; reading the table of all processes for every test would cost minutes
        return frozenset()
    children = psutil.Process().children(recursive=True)
    return frozenset(child for child in children if not _runs(child, COMMANDS_OF_THE_RUN + COMMANDS_OF_A_SESSION))


def _has_child() -> bool:
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _runs(process: psutil.Process, commands: tuple[str, ...]) -> bool:
    command_line = _command(process)
    return any(command in command_line for command in commands)


def _belongs_to_run(process: psutil.Process, sessions_count: bool) -> bool:
    lasting = COMMANDS_OF_THE_RUN if sessions_count else COMMANDS_OF_THE_RUN + COMMANDS_OF_A_SESSION
    if process.pid == os.getpid():
        return False
    try:
        return process.environ().get(RUN_VARIABLE) == str(os.getpid()) and not _runs(process, lasting)
    except psutil.Error:  # it ended meanwhile, or it is another user's
        return False


def _end(processes: list[psutil.Process], deadline: float) -> list[str]:
    """Wait for them until the deadline, then kill those that are left and tell which."""
    _, alive = psutil.wait_procs(processes, timeout=max(0.0, deadline - time.monotonic()))
    complaints = [f"process {process.pid} still runs: {_command(process)[:200]}" for process in alive]
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=GRACE_S)
    return complaints


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error as gone:
        return str(gone)


def _open_sockets() -> frozenset[int]:
    sockets = set()
    for descriptor in os.listdir("/dev/fd"):
        try:
            status = os.fstat(int(descriptor))
        except OSError:  # the descriptor that lists the folder is closed by now
            continue
        if stat.S_ISSOCK(status.st_mode):
            sockets.add(status.st_ino)
    return frozenset(sockets)


def _sockets_after(before: frozenset[int], deadline: float) -> frozenset[int]:
    """Returns the sockets that are new and open at the deadline: a client's threads close theirs soon after it."""
    while (leaked := _open_sockets() - before) and time.monotonic() < deadline:
        threading.Event().wait(LOOK_EVERY_S)
    return leaked


def _describe_sockets(leaked: frozenset[int]) -> str:
    described = []
    for connection in psutil.Process().net_connections(kind="all"):
        try:
            inode = os.fstat(connection.fd).st_ino
        except OSError:  # it closed meanwhile
            continue
        if inode in leaked:
            described.append(f"{connection.laddr} -> {connection.raddr} {connection.status}")
    return "; ".join(described) or "they closed meanwhile"
