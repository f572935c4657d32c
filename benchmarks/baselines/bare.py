"""Baseline: the same word count in plain processes over ZeroMQ, all to all, without fault tolerance.

``python -m benchmarks.baselines.bare read|count INDEX FOLDER`` is one of its processes; ``run`` starts all and checks
the result.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Final

import msgpack
import msgspec
import zmq

from benchmarks.harness.result_counter import Measured, ResultCounter, SinkResult, measured
from benchmarks.workloads.words import Workload

BATCH_LINES: Final = {"rows": 1_000, "columns": 2_000}
MESSAGES_AHEAD_MAX: Final = 8
"""High-water mark of each channel: a faster reader waits."""

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 60


class Order(msgspec.Struct):
    """Parameters of a process. ``targets``: word to counter. ``rows``: of each counter."""

    workload: Workload
    shape: str
    targets: dict[str, int]
    rows: list[int]


def run(workload: Workload, shape: str, targets: dict[str, int]) -> Measured:
    """Runs the word count once. ``shape``: rows or columns."""
    folder = Path(workload.folder)
    width = workload.readers
    rows = [0] * width
    for word, count in workload.finals().items():
        rows[targets[word]] += count
    (folder / "order.json").write_bytes(msgspec.json.encode(Order(workload, shape, targets, rows)))
    counted, read = run_processes("benchmarks.baselines.bare", width, folder)
    return measured(workload, read, counted)


def run_processes(module: str, width: int, folder: Path) -> tuple[list[SinkResult], list[SinkResult]]:
    """Starts all processes and runs them at once; returns the results of counting and reading processes."""
    processes = [_start(module, role, index, folder) for role in ("count", "read") for index in range(width)]
    try:
        for process in processes:
            _pipe(process.stdout).readline()  # it is ready
        for process in processes:
            _pipe(process.stdin).write(b"go\n")
            _pipe(process.stdin).flush()
        parts = [SinkResult.decoded(process.communicate(timeout=LIMIT_S)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return parts[:width], parts[width:]


def _start(module: str, role: str, index: int, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, role, str(index), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "every process has pipes"
    return pipe


def main() -> None:
    """Runs one process."""
    role, index, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    order = msgspec.json.decode((folder / "order.json").read_bytes(), type=Order)
    with zmq.Context() as context:
        if role == "read":
            _read(context, order, index, folder)
        else:
            send_result(_count(context, order, index, folder))


def await_go() -> None:
    """Reports that this process is ready; returns when all are."""
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    sys.stdin.buffer.readline()


def send_result(part: SinkResult) -> None:
    """Sends a result to the parent process."""
    sys.stdout.buffer.write(part.encoded())
    sys.stdout.buffer.flush()


def _read(context: zmq.Context[Any], order: Order, index: int, folder: Path) -> None:
    share: Any = order.workload.share(index)
    send = _send_rows
    if order.shape == "columns":
        from benchmarks.baselines.bare_columns import send_columns as send

        share = share.columns()
    sockets = connected(context, order.workload.readers, folder)
    await_go()
    begun_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
    send(share, sockets, order.targets, BATCH_LINES[order.shape])
    for socket in sockets:
        socket.send(b"")
    send_result(SinkResult(0, begun_ns, time.monotonic_ns(), time.process_time_ns() - cpu_ns, {}))
    sys.stdin.buffer.read()  # until all is counted: ZeroMQ drops what a busy receiver has not read when its sender goes
    for socket in sockets:
        socket.close(linger=0)


def connected(context: zmq.Context[Any], counters: int, folder: Path) -> list[zmq.Socket[Any]]:
    """Opens a socket to each counter."""
    sockets = []
    for counter in range(counters):
        socket = context.socket(zmq.PUSH)
        socket.set_hwm(MESSAGES_AHEAD_MAX)
        socket.connect(f"ipc://{folder}/counter-{counter}")
        sockets.append(socket)
    return sockets


def _send_rows(share: Any, sockets: list[Any], targets: dict[str, int], lines_max: int) -> None:
    encode = msgspec.msgpack.Encoder().encode
    position = 0
    while lines := share.after(position, lines_max):
        position += len(lines)
        words: list[str] = []
        extend = words.extend
        for line in lines:
            extend(line.split())
        parts: list[list[str]] = [[] for _ in sockets]
        for word in words:
            parts[targets[word]].append(word)
        for socket, part in zip(sockets, parts, strict=True):
            if part:
                socket.send(encode(part))


def _count(context: zmq.Context[Any], order: Order, index: int, folder: Path) -> SinkResult:
    counter = ResultCounter(order.rows[index])
    with context.socket(zmq.PULL) as socket:
        socket.set_hwm(MESSAGES_AHEAD_MAX)
        socket.bind(f"ipc://{folder}/counter-{index}")
        count = _count_rows
        if order.shape == "columns":
            from benchmarks.baselines.bare_columns import count_columns as count
        await_go()
        count(socket, order.workload.readers, counter)
    return counter.part()


def _count_rows(socket: Any, readers: int, counter: ResultCounter) -> None:
    counts: dict[str, int] = {}
    get = counts.get
    decode = msgpack.unpackb
    while readers:
        data = socket.recv()
        if not data:
            readers -= 1
            continue
        results: list[tuple[str, int]] = []
        append = results.append
        for word in decode(data):
            counts[word] = count = get(word, 0) + 1
            append((word, count))
        counter.add(results)


if __name__ == "__main__":
    main()
