"""Benchmark: a topic copied by a job and by a loop over the client library; latency from record to record readable."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.harness.ab_session import Session
from benchmarks.kafka import copying
from benchmarks.measures.latency import percentile
from tests.connectors.servers.kafka import KafkaServer

RECORDS: Final = 1_000_000
RECORDS_QUICK: Final = 50_000
VALUE: Final = b"x" * 100
PER_S: Final = 2_000
SECONDS: Final = 20.0
SECONDS_QUICK: Final = 4.0
WARM_S: Final = 3.0
GOAL: Final = ">= 0.8"
GOALS_MS: Final = {50: "<= 30", 99: "<= 100"}


def run(session: Session) -> None:
    """Measures throughput in pairs, then latency at a steady load."""
    with tempfile.TemporaryDirectory(prefix="clonos-bench-kafka-") as name:
        folder = Path(name)
        server = KafkaServer(folder)
        try:
            server.start()
            _throughput(session, server, folder)
            _latency(session, server, folder)
        finally:
            server.kill()


def _throughput(session: Session, server: KafkaServer, folder: Path) -> None:
    count = RECORDS_QUICK if session.is_quick else RECORDS
    session.progress(f"filling a topic with {count:,} records")
    given = server.create_topic("given")
    copying.fill(server.servers, given, count, VALUE)
    of_job, of_loop = [], []
    for pair in range(session.pairs):
        session.progress(f"pair {pair + 1} of {session.pairs}")
        by_job, by_loop = server.create_topic(f"job-{pair}"), server.create_topic(f"loop-{pair}")
        copying.run_job(folder, server.servers, given, by_job)
        copying.run_loop(server.servers, given, by_loop, f"loop-{pair}")
        of_job.append(copying.rate(server.servers, by_job, count))
        of_loop.append(copying.rate(server.servers, by_loop, count))
        session.figure(f"kafka copied by a job, run {pair + 1}", of_job[-1], "records/s")
        session.figure(f"kafka copied by a loop, run {pair + 1}", of_loop[-1], "records/s")
    session.compared("kafka/bare loop", of_job, of_loop, GOAL)


def _latency(session: Session, server: KafkaServer, folder: Path) -> None:
    seconds = SECONDS_QUICK if session.is_quick else SECONDS
    given, results = server.create_topic("paced"), server.create_topic("paced-results")
    session.progress(f"latency at {PER_S:,} records/s for {seconds:g} s")
    reading = Reading(server.servers, results)
    with copying.job(folder, server.servers, given, results, is_bounded=False).start(overwrite=True) as handle:
        _pace(server.servers, given, seconds)
        reading.end(round(seconds * PER_S))
        handle.stop(drain=False)
        handle.wait(copying.LIMIT_S)
    found = reading.latencies_ms
    for share, goal in GOALS_MS.items():
        session.figure(f"kafka, record in to record readable, p{share}", percentile(found, share), "ms", goal)


def _pace(servers: str, topic: str, seconds: float) -> None:
    """Writes records at a steady rate; each has the time at which it was written."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    begun, pause = time.monotonic(), threading.Event()
    for number in range(round(seconds * PER_S)):
        if (ahead_s := begun + number / PER_S - time.monotonic()) > 0:
            pause.wait(ahead_s)
        producer.produce(topic, b"%d" % time.time_ns())
        producer.poll(0)
    producer.flush(copying.LIMIT_S)


class Reading:
    """Reader of the results in a thread: the latency of each record that came after the warm-up."""

    def __init__(self, servers: str, topic: str) -> None:
        self.latencies_ms: list[float] = []
        self._servers, self._topic = servers, topic
        self._count = 0
        self._expected = 0
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reading results", daemon=True)
        self._thread.start()

    def end(self, expected: int) -> None:
        """Waits until all records have come.

        Raises: RuntimeError: they have not.
        """
        deadline = time.monotonic() + copying.LIMIT_S
        while self._count < expected and time.monotonic() < deadline:
            self._has_ended.wait(0.05)
        self._has_ended.set()
        self._thread.join(copying.LIMIT_S)
        if self._count != expected:
            raise RuntimeError(f"{self._count} records came in place of {expected}")

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "reading",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        first_ns = 0
        while not self._has_ended.is_set():
            first = consumer.poll(0.1)  # and what is there with it, without a wait for more
            messages: list[Any] = [] if first is None else [first, *consumer.consume(1_000, 0)]
            now_ns = time.time_ns()
            for message in messages:
                written_ns = int(message.value())
                first_ns = first_ns or now_ns  # records that waited for the start of the job are older
                if written_ns - first_ns > WARM_S * 1e9:
                    self.latencies_ms.append((now_ns - written_ns) / 1e6)
            self._count += len(messages)
        consumer.close()
