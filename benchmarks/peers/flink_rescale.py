"""Pause of Flink while it changes the width of a running job: ``python -m benchmarks.peers.flink_rescale FLINK [N]``.

A standalone cluster of one worker runs a keyed count over generated rows with the adaptive scheduler, whose waits are
set to nothing. The worker prints the results, which are read here as they come. The width changes 2 -> 4 -> 2 by the
REST interface. The pause is the longest silence of the results after a request; the job begins again from a checkpoint.
``FLINK``: the folder of the distribution, such as ``.venvs/flink/lib/python3.11/site-packages/pyflink``.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

WAIT_S = 120
SETTLE_S = 4.0
"""Seconds between two changes: several checkpoints."""

ROWS_PER_S = 10_000
KEYS = 100_000
KEY_BYTES = 1_000
"""Length of a key: the state is about 100 MB."""

FILL_S = 25.0
"""Seconds until most keys have come."""

CONFIG = """
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
jobmanager.memory.process.size: 1g
jobmanager.scheduler: adaptive
jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout: 0s
jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling: 0s
jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout: 0s
jobmanager.adaptive-scheduler.rescale-trigger.max-delay: 0s
taskmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.memory.process.size: 2g
taskmanager.numberOfTaskSlots: 4
rest.port: {rest}
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.bind-port: "{rest}"
execution.checkpointing.interval: 1s
execution.checkpointing.dir: {checkpoints}
state.backend.type: hashmap
parallelism.default: 2
"""

SUBMIT = """
import sys
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment
jvm = get_gateway().jvm
classes = jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
java = classes.createRemoteEnvironment("127.0.0.1", int(sys.argv[1]), get_gateway().new_array(jvm.String, 0))
environment = StreamExecutionEnvironment(java)
lines = DataStream(java.socketTextStream("127.0.0.1", int(sys.argv[2]), "\\n", -1))
tables = StreamTableEnvironment.create(environment)
tables.create_temporary_view("lines", tables.from_data_stream(lines))
tables.execute_sql("CREATE TABLE counts (k STRING, n BIGINT) WITH ('connector' = 'print')")
tables.execute_sql("INSERT INTO counts SELECT RIGHT(f0, 8), COUNT(*) FROM lines GROUP BY f0")
"""


class Input:
    """Rows for each client: keys at random, a hundredth of a second's rows at a time."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        generator = random.Random(7)
        while True:
            connection, _ = self._listening.accept()
            with connection:
                try:
                    due = time.monotonic()
                    while True:
                        rows = (f"{generator.randrange(KEYS):0{KEY_BYTES}}\n" for _ in range(ROWS_PER_S // 100))
                        connection.sendall("".join(rows).encode())
                        due = max(due + 0.01, time.monotonic() - 1)
                        time.sleep(max(0.0, due - time.monotonic()))
                except OSError:
                    continue


class Results:
    """Times at which results came, as the worker prints them."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def follow(self, stream: Any) -> None:
        """Reads a stream to its end."""
        while os.read(stream.fileno(), 1 << 16):
            self.times.append(time.monotonic())

    def longest_silence_s(self, begun: float) -> float:
        """Returns the longest time without results since a moment."""
        times = [begun, *(each for each in list(self.times) if each >= begun), time.monotonic()]
        return max(after - before for before, after in pairwise(times))


@contextmanager
def cluster(flink: Path, folder: Path, rest: int, results: Results) -> Iterator[dict[str, str]]:
    """Starts the processes of a cluster and ends them. Yields their environment."""
    (folder / "conf").mkdir()
    for name in ("log4j-console.properties", "log4j.properties", "log4j-cli.properties"):
        (folder / "conf" / name).write_text("rootLogger.level = OFF\n", "utf-8")
    text = CONFIG.format(rpc=free_port(), rest=rest, checkpoints=(folder / "checkpoints").as_uri())
    (folder / "conf/config.yaml").write_text(text + opts(flink), "utf-8")
    environment = {**os.environ, "FLINK_CONF_DIR": str(folder / "conf"), "FLINK_LOG_DIR": str(folder)}
    started = []
    try:
        for script, stream in (("jobmanager.sh", subprocess.DEVNULL), ("taskmanager.sh", subprocess.PIPE)):
            command = [str(flink / "bin" / script), "start-foreground"]
            process = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.DEVNULL)
            started.append(process)
        threading.Thread(target=results.follow, args=(started[1].stdout,), daemon=True).start()
        yield environment
    finally:
        for process in started:
            process.kill()
            process.wait()


def opts(flink: Path) -> str:
    """Returns the lines of the distribution's configuration that open Java's modules."""
    lines = (flink / "conf/config.yaml").read_text("utf-8").splitlines()
    found = next((line.strip() for line in lines if line.strip().startswith("all: --add-exports")), "")
    return f"env.java.opts.all: {found.removeprefix('all: ')}\n" if found else ""


def free_port() -> int:
    """Returns a port that nobody listens on now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def ask(url: str, body: Any = None) -> Any:
    """Returns the answer of the REST interface."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="PUT" if data else "GET")
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def waited(look: Any, what: str) -> Any:
    """Returns what a look gives as soon as it gives something. Raises: TimeoutError: it gave nothing in time."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{what} did not come within {WAIT_S} s")


def widths(url: str, job: str) -> set[int]:
    """Returns the widths of the steps of a job that runs."""
    found = ask(f"{url}/jobs/{job}")
    return {each["parallelism"] for each in found["vertices"] if each["status"] == "RUNNING"}


def main() -> None:
    flink, changes = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    results = Results()
    with tempfile.TemporaryDirectory(prefix="flink-") as name:
        folder, rest = Path(name), free_port()
        url = f"http://127.0.0.1:{rest}"
        with cluster(flink, folder, rest, results) as environment:
            waited(lambda: ask(f"{url}/overview")["slots-total"] == 4, "the worker")
            submit = [str(flink.parents[3] / "bin/python"), "-c", SUBMIT, str(rest), str(Input().port)]
            subprocess.run(submit, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=WAIT_S)
            (job,) = waited(lambda: ask(f"{url}/jobs")["jobs"], "the job")
            waited(lambda: results.times, "results")
            time.sleep(FILL_S)
            quiet_s = results.longest_silence_s(time.monotonic() - SETTLE_S / 2)
            pauses = []
            for number in range(changes):
                width = 4 if number % 2 == 0 else 2
                address = f"{url}/jobs/{job['id']}/resource-requirements"
                wanted = {vertex: {"parallelism": {"lowerBound": 1, "upperBound": width}} for vertex in ask(address)}
                begun = time.monotonic()
                ask(address, wanted)
                waited(lambda width=width: width in widths(url, job["id"]), f"the width {width}")
                time.sleep(SETTLE_S)
                pauses.append(round(results.longest_silence_s(begun), 3))
                print(json.dumps({"width": width, "pause_s": pauses[-1]}), file=sys.stderr, flush=True)
    print(json.dumps({"quiet_s": round(quiet_s, 3), "pauses_s": pauses}))


if __name__ == "__main__":
    main()
