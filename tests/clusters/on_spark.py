"""A job on a Spark standalone cluster of three hosts, which are network namespaces: ``make clusters``.

Two hosts have workers behind a firewall that lets ``data_ports`` pass; the third has the master and the driver. Tasks
are killed, a host is lost, and what travels between the hosts is captured: nothing of the records can be read there.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from clonos_chaos.real.network_namespaces import Host, Hosts
from tests.clusters.cluster_job import expected, running, wait_for
from tests.processes.harness.running_program import ENVIRONMENT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

LIMIT_S: Final = 180.0
MARK: Final = "Rhinozerosvogel"
"""Word of each record that must not be seen on the wire."""
DATA_PORTS: Final = "40000-40100"
ALLOWED_PORTS: Final = f"{DATA_PORTS}, 42000-42016, 43000"
"""Ports of slots, of Spark's block managers, and of its worker."""

JOB: Final = """
import os
from clonos import Job, files

folder = os.environ["JOB_FOLDER"]
options = {"checkpoint_every": "500ms", "lease": "2s", "compress": "never", "spare_slots": 2, "slots_wait": "170s"}
job = Job("words", parallelism=2, **options)
lines = job.source(files.lines(f"{folder}/in", watch="100ms"), name="read")
words = lines.flat_map(str.split, name="split")
counts = words.key_by(lambda word: word).count(name="count").on(host="host-1")
counts.map(lambda found: {"word": found[0], "count": found[1]}, name="row").sink(files.jsonl(f"{folder}/out"))
"""

FIREWALL: Final = f"""
table inet clonos {{
  chain input {{
    type filter hook input priority 0; policy drop;
    iif lo accept
    ct state established,related accept
    meta l4proto icmp accept
    tcp dport {{ {ALLOWED_PORTS} }} accept
    counter
  }}
}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Hosts]:
    """The cluster; its blocks travel through fixed ports."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "spark.blockManager.port 42000\nspark.ui.enabled false\n", "utf-8"
    )
    (tmp_path / "cluster").mkdir()
    hosts = Hosts(tmp_path / "cluster", os.environ | ENVIRONMENT)
    for host in hosts.hosts:
        subprocess.run(_within(host, "nft", "-f", "-"), input=FIREWALL, check=True, text=True)
    yield hosts
    hosts.close()


def _within(host: Host, *command: str) -> list[str]:
    return ["ip", "netns", "exec", host.namespace, *command]


class Capture:
    """All frames that pass the links of the hosts, from the near side."""

    def __init__(self, hosts: Hosts) -> None:
        self._frames: list[bytes] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._take, args=(host.link,), daemon=True) for host in hosts.hosts]
        for thread in self._threads:
            thread.start()

    def _take(self, link: str) -> None:
        every_protocol = socket.htons(3)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every_protocol) as raw:
            raw.bind((link, 0))
            raw.settimeout(0.2)
            while not self._is_over.is_set():
                try:
                    self._frames.append(raw.recv(65_536))
                except TimeoutError:
                    continue
                except OSError:  # the link is down
                    self._is_over.wait(0.1)

    def close(self) -> bytes:
        """Ends the capture and returns its bytes."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return b"".join(self._frames)


def _text(number: int) -> str:
    return "".join(f"{MARK} word-{number}-{line % 7}\n" for line in range(300))


def _reaches(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


@contextmanager
def _listening(host: Host, port: int) -> Iterator[None]:
    """Context in which a program on a host listens on a port and answers with a mark."""
    code = f"import socket\ns = socket.create_server(('', {port}))\nwhile True: s.accept()[0].sendall(b'in-the-clear')"
    process = subprocess.Popen(_within(host, sys.executable, "-c", code))
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_job_on_three_hosts_keeps_its_output_and_its_secrets_over_kills_and_the_loss_of_a_host(
    tmp_path: Path, cluster: Hosts
) -> None:
    capture = Capture(cluster)
    environment = os.environ | ENVIRONMENT | cluster.driver_environment
    with running(tmp_path, JOB, environment, f"master={cluster.master}", f"data_ports={DATA_PORTS}") as job:
        tasks = job.tasks()
        assert {tasks[f"count-row/{number}"]["host"] for number in (0, 1)} == {"host-1"}
        job.add("one.txt", _text(1))
        wait_for(lambda: job.rows() == expected(_text(1)), "the first output")
        job.kill("count-row/0")
        job.kill("read-split/0")
        assert {job.tasks()[f"count-row/{number}"]["host"] for number in (0, 1)} == {"host-1"}
        job.add("two.txt", _text(2))
        wait_for(lambda: job.rows() == expected(_text(1), _text(2)), "output after the kills")
        lost = next(host for host in cluster.hosts if host.name == "host-1")
        pid = next(task["pid"] for task in job.tasks().values() if task["host"] == lost.name)
        assert cluster.cut([pid]) == [lost.address]
        wait_for(
            lambda: job.are_live() and {task["host"] for task in job.tasks().values()} == {"host-0"}, "a take-over"
        )
        job.add("three.txt", _text(3))
        wait_for(lambda: job.rows() == expected(_text(1), _text(2), _text(3)), "output without the host")
        alarms = " ".join(alarm["text"] for alarm in job.ask(f"/jobs/{job.job_id}/status")["alarms"])
        assert "count-row/0 is to run on host-1, and runs on host-0" in alarms
        cluster.heal()
        job.stop()
    host = cluster.hosts[0]
    with _listening(host, 40_050), _listening(host, 50_000):
        wait_for(lambda: _reaches(host.address, 40_050), "a port that the firewall lets pass")
        assert not _reaches(host.address, 50_000)
        wire = wait_for(capture.close, "the capture")
    assert b"in-the-clear" in wire
    assert len(wire) > 1_000_000
    assert MARK.encode() not in wire
    assert job.rows() == expected(_text(1), _text(2), _text(3))
