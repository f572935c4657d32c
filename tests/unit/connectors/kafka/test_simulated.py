"""Jobs that read and write Kafka in simulated clusters: their input is given, and no broker is asked."""

from __future__ import annotations

from clonos.api.windows import Tumbling
from clonos.connectors import kafka
from clonos.job import Job
from clonos.testing import crash_test

NOON_NS = 1_700_000_000_000_000_000 // 60_000_000_000 * 60_000_000_000
BROKER = "127.0.0.1:9"


def test_a_job_with_timestamps_of_kafka_is_tested_with_pairs_of_nanoseconds_and_record() -> None:
    job = Job("orders")
    orders = job.source(kafka.source("orders", servers=BROKER, decode=bytes.decode, out_of_order="1s"), name="orders")
    counts = orders.window(Tumbling("20s")).count(name="count").map(lambda window: window.value, name="value")
    counts.sink(kafka.sink("counts", servers=BROKER), name="counts")
    given = [(NOON_NS + second * 1_000_000_000, f"order {second}") for second in range(60)]
    seen: list[list[int]] = []
    crash_test(
        job, inputs={"orders": given}, check=lambda outputs: seen.append(sorted(outputs["counts"])), seeds=range(5)
    )
    assert seen
    assert all(counts == [20, 20, 20] for counts in seen)
