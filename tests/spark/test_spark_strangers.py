"""What other users of the machine cannot do with the Spark that the library starts."""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pyspark
import pytest
from pyspark import SparkContext

from tests.spark.conftest import HASH_SEED
from tests.speed import scaled

STRANGER = Path(__file__).with_name("stranger.py")
DRIVERS = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent, "work")
LIMIT_S = scaled(60.0)
PAGE_LIMIT_S = scaled(30.0)
PAGES = 3
LISTENING = "0A"
"""State of a socket in /proc/net/tcp."""

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]


def _processes() -> list[psutil.Process]:
    """This process and all its descendants."""
    return [psutil.Process(), *psutil.Process().children(recursive=True)]


def _secrets(context: SparkContext) -> list[str]:
    """Secrets of the session."""
    found = [value for key, value in context.getConf().getAll() if re.search(r"\.secret$|\.secretKey$", key)]
    assert len(found) == 2
    return [*found, HASH_SEED]


def _rpc_endpoints() -> list[str]:
    """Endpoints whose addresses every user of the machine can read in the arguments of executors."""
    arguments = [word for process in _processes() for word in _arguments(process)]
    return sorted({word.removeprefix("spark://") for word in arguments if re.match(r"spark://\w+@[\w.]+:\d+$", word)})


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:  # a worker that has ended meanwhile
        return []


def _listening_ports() -> list[int]:
    """Ports on which the driver's JVM listens."""
    jvm = next(process for process in _processes() if "org.apache.spark.deploy.SparkSubmit" in _arguments(process))
    return sorted(it.laddr.port for it in jvm.net_connections("tcp") if it.status == psutil.CONN_LISTEN)


def test_the_secrets_of_a_session_are_visible_to_no_other_user(
    context: SparkContext,
) -> None:
    assert context.getConf().get("spark.authenticate") == "true"
    secrets = [secret.encode() for secret in _secrets(context)]
    for process in _processes():
        folder = Path("/proc", str(process.pid))
        try:
            arguments, environment = (folder / "cmdline").read_bytes(), folder / "environ"
            is_readable = any(secret in environment.read_bytes() for secret in secrets)
            mode = environment.stat().st_mode
        except OSError:  # a worker that has ended meanwhile
            continue
        assert not any(secret in arguments for secret in secrets), process
        assert not (is_readable and mode & 0o077), process
    logs = [path for path in (DRIVERS / context.applicationId).rglob("*") if path.is_file()]
    assert logs
    assert not any(secret in path.read_bytes() for secret in secrets for path in logs)


@pytest.mark.timeout(2 * LIMIT_S)
def test_a_process_without_the_secret_cannot_run_code_on_spark(context: SparkContext, tmp_path: Path) -> None:
    targets = _rpc_endpoints()
    names = [target.partition("@")[0] for target in targets]
    assert names == ["CoarseGrainedScheduler", "Worker", "Worker"]
    marker = tmp_path / "marker"
    secret = context.getConf().get("spark.authenticate.secret", "")
    try:
        output = subprocess.run(
            [sys.executable, str(STRANGER), str(marker), *targets],
            input=f"{secret}\n",
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        ).stdout
        attempts = [json.loads(line) for line in output.splitlines()]
        assert attempts == [
            *(["nobody", target, False] for target in targets),
            *(["insider", target, True] for target in targets),
        ]
        _wait_for(tmp_path / "marker-insider")  # so what the stranger sends does work, once it is let in
        assert not (tmp_path / "marker-nobody").exists()
    finally:
        shutil.rmtree(DRIVERS / "driver-of-a-stranger", ignore_errors=True)
    assert context.parallelize(range(4), 2).sum() == 6


def _wait_for(path: Path) -> None:
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 10)):
        if path.exists():
            return
        waiting.wait(0.1)
    raise AssertionError(f"{path} is not there")


def test_the_web_pages_of_master_and_workers_refuse_every_request(context: SparkContext) -> None:
    pages = [answer for answer in _answers(_listening_ports()) if answer.startswith(b"HTTP")]
    assert len(pages) == PAGES
    assert all(b" 403 " in page for page in pages)


def _answers(ports: list[int]) -> list[bytes]:
    """The first bytes of what each port answers to a browser; none from a port that has just closed.

    Spark keeps ports over which it handed a result of an earlier test to Python, and accepts no connection there: once
    the pages have answered, nobody waits for such.
    """
    found, deadline_s = list[bytes](), time.monotonic() + PAGE_LIMIT_S
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for port in ports:
            with suppress(ConnectionError):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), PAGE_LIMIT_S))
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)  # a port that waits for more sees that nothing comes
                selector.register(connection, selectors.EVENT_READ, port)
        while selector.get_map() and time.monotonic() < deadline_s:
            for key, _ in selector.select(0.1):
                with suppress(ConnectionError):
                    found.append(key.fileobj.recv(100))  # type: ignore[union-attr]
                selector.unregister(key.fileobj)
            waiting = {key.data for key in selector.get_map().values()}
            if len(found) >= PAGES and waiting <= _not_accepting():
                break
    return found


def _not_accepting() -> set[int]:
    """Ports that have connections that their programs have not accepted."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {
        int(address.rpartition(":")[2], 16)
        for _, address, _, state, queues, *_ in lines
        if state == LISTENING and int(queues.partition(":")[2], 16)
    }
