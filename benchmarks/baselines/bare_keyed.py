"""Baseline of the keyed workloads: plain processes over ZeroMQ, all to all, without fault tolerance.

``python -m benchmarks.baselines.bare_keyed read|count INDEX FOLDER`` is one of its processes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgpack
import msgspec
import zmq

from benchmarks.baselines import bare
from benchmarks.harness.keyed_result_counter import KeyedResultCounter
from benchmarks.harness.result_counter import Measured, SinkResult, measured
from benchmarks.workloads.keyed import KINDS, KeyedWorkload, enriched

BATCH_RECORDS: Final = 5_000
MESSAGES_AHEAD_MAX: Final = 8


class Order(msgspec.Struct):
    """Parameters of a process. ``rows``: of each counter."""

    workload: KeyedWorkload
    rows: list[int]


def target_of(readers: int) -> Callable[[int], int]:
    """Returns the function from a key to its counter."""
    return lambda key: key % readers


def run(workload: KeyedWorkload) -> Measured:
    """Runs the workload once and checks the result."""
    rows, finals = workload.expected(target_of(workload.readers))
    folder = Path(workload.folder)
    (folder / "order.json").write_bytes(msgspec.json.encode(Order(workload, rows)))
    counted, read = bare.run_processes("benchmarks.baselines.bare_keyed", workload.readers, folder)
    return measured(workload, read, counted, finals)


def main() -> None:
    """Runs one process."""
    role, index, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    order = msgspec.json.decode((folder / "order.json").read_bytes(), type=Order)
    with zmq.Context() as context:
        if role == "read":
            _read(context, order.workload, index, folder)
        else:
            bare.send_result(_fold(context, order, index, folder))


def _read(context: zmq.Context[Any], workload: KeyedWorkload, index: int, folder: Path) -> None:
    share, asks, width = workload.share(index), KINDS[workload.kind].asks, workload.readers
    encode = msgspec.msgpack.Encoder().encode
    sockets = bare.connected(context, width, folder)
    bare.await_go()
    begun_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
    position = 0
    while records := share.after(position, BATCH_RECORDS):
        position += len(records)
        parts: list[list[Any]] = [[] for _ in sockets]
        for record in enriched(records) if asks else records:
            parts[record[0] % width].append(record)
        for socket, part in zip(sockets, parts, strict=True):
            if part:
                socket.send(encode(part))
    for socket in sockets:
        socket.send(b"")
    bare.send_result(SinkResult(0, begun_ns, time.monotonic_ns(), time.process_time_ns() - cpu_ns, {}))
    sys.stdin.buffer.read()  # until all is counted
    for socket in sockets:
        socket.close(linger=0)


def _fold(context: zmq.Context[Any], order: Order, index: int, folder: Path) -> SinkResult:
    counter = KeyedResultCounter(order.rows[index])
    fold = KINDS[order.workload.kind].fold
    readers = order.workload.readers
    states: dict[int, Any] = {}
    get = states.get
    with context.socket(zmq.PULL) as socket:
        socket.set_hwm(MESSAGES_AHEAD_MAX)
        socket.bind(f"ipc://{folder}/counter-{index}")
        bare.await_go()
        while readers:
            data = socket.recv()
            if not data:
                readers -= 1
                continue
            results: list[Any] = []
            append = results.append
            for record in msgpack.unpackb(data, use_list=False):
                key = record[0]
                states[key], result = fold(key, get(key), record)
                append(result)
            counter.add(results)
    return counter.part()


if __name__ == "__main__":
    main()
