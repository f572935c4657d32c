"""``crash_test`` runs a user's job in worlds where processes die: correct jobs pass, faulty ones fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos import (
    Job,
    Timestamps,
    Tumbling,
    collect,
    files,
    sockets,
    sqlite,
    values,
)
from clonos.core.model.errors import JobError
from clonos.testing import CrashTestFailed, Outputs, crash_test
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.user.user_graph import ready
from clonos_chaos.user.user_world import Judging, UserWorld
from tests.tidy.source import PACKAGE_FOLDERS
from tests.worlds import tested_jobs as jobs

pytestmark = pytest.mark.controls

SEEDS = range(10)

TODAY = [{"key": "ab"[number % 2], "at": f"2026-03-02T00:00:{number:02}Z"} for number in range(30)]


def failing(job: Any, **arguments: Any) -> CrashTestFailed:
    with pytest.raises(CrashTestFailed) as raised:
        crash_test(job, **{"seeds": range(150), **arguments})
    return raised.value


# ------------------------------------------------------------------ correct jobs


@pytest.mark.parametrize("is_step", [False, True])
def test_timestamps_of_today_are_not_ahead_of_the_clock_of_a_world(is_step: bool) -> None:
    def job() -> Job:
        made = Job("today")
        timestamps = Timestamps("at")
        records = made.source(values(TODAY), timestamps=None if is_step else timestamps, name="records")
        timed = records.with_timestamps(timestamps) if is_step else records
        timed.key_by("key").window(Tumbling("1h")).count(name="counted").sink(collect(), name="out")
        return made

    def check(outputs: Outputs) -> None:
        assert sum(row.value for row in outputs["out"]) == len(TODAY)

    crash_test(job, seeds=range(3), check=check)


def test_a_job_that_uses_the_services_passes_the_crash_test() -> None:
    def check(outputs: Outputs) -> None:
        assert sorted(row[0] for row in outputs["asked"]) == list(range(2 * jobs.RECORDS))
        assert sum(window.value for window in outputs["counted"]) == 2 * jobs.RECORDS

    report = crash_test(jobs.everything, seeds=SEEDS, check=check, services={jobs.rate: lambda number: -number})
    assert report.worlds == len(SEEDS)
    assert report.injected["kill"] > 3
    assert report.calls >= len(SEEDS) * 2 * jobs.RECORDS


def test_sinks_that_agree_in_all_runs_are_compared_by_default() -> None:
    report = crash_test(jobs.spread(lambda number: number * 2), seeds=range(10))
    assert report.compared == ("sink",)


def test_sinks_that_differ_between_runs_are_compared_by_a_given_key() -> None:
    job = jobs.spread(jobs.lucky)
    assert crash_test(job, seeds=range(10)).compared == ()
    assert crash_test(job, seeds=range(10), compare=lambda row: row[0]).compared == ("sink",)
    with pytest.raises(JobError, match="differs between two fault-free"):
        crash_test(job, seeds=range(10), compare=lambda row: row[1])


def test_sinks_of_the_library_write_nothing_in_a_crash_test(tmp_path: Path) -> None:
    outputs: list[Outputs] = []
    job = jobs.spread(lambda number: {"number": number}, files.jsonl(str(tmp_path / "out")))
    crash_test(job, seeds=range(3), check=outputs.append)
    assert not list(tmp_path.iterdir())
    assert {"number": 7} in outputs[0].rows


def test_sources_read_the_records_given_by_the_test(tmp_path: Path) -> None:
    job = Job("given")
    lines = job.source(files.lines(str(tmp_path / "absent*.txt")), name="lines").map(str.upper)
    lines.union(job.source(values(["never"]), name="words")).sink(collect())

    def check(outputs: Outputs) -> None:
        assert sorted(outputs.rows) == ["A", "B", "c"]

    crash_test(job, {"lines": ["a", "b"], "words": ["c"]}, seeds=range(5), check=check)
    with pytest.raises(JobError, match="has no source 'word'; inputs= may name: lines, words"):
        crash_test(job, {"word": []})
    with pytest.raises(JobError, match="has 2 sources"):
        crash_test(job, ["a"])


# ------------------------------------------------------------------ negative controls


def test_hidden_randomness_is_reported_with_both_values() -> None:
    failure = failing(jobs.spread(jobs.secretly_lucky))
    assert re.search(r"had sent \(\d+, 0\.\d+\) to \S+, but a successor .* makes \(\d+, 0\.\d+\)", failure.complaint)
    assert "docs/determinism.md" in failure.complaint


def test_hidden_use_of_time_is_reported() -> None:
    assert "use clock.time_ns() of clonos" in failing(jobs.spread(jobs.secretly_timed)).complaint


def test_undeclared_state_is_reported() -> None:
    crash_test(jobs.counting(jobs.Remembering), seeds=range(6))
    failing(jobs.counting(jobs.Forgetting))


def test_a_job_without_its_causal_log_fails_the_crash_test() -> None:
    failing(jobs.spread(jobs.lucky, causal_logging=False), compare=False)


def test_an_immediate_sink_that_accepts_rows_twice_is_reported() -> None:
    def with_sink(sink: type) -> Any:
        return lambda: jobs.spread(lambda number: number, sink())

    crash_test(with_sink(jobs.Table), seeds=SEEDS)
    assert "CarelessTable" in failing(with_sink(jobs.CarelessTable)).complaint


def test_an_immediate_sink_that_promises_withdrawal_is_checked_for_it() -> None:
    def with_sink(sink: type) -> Any:
        return lambda: jobs.spread(lambda number: number, sink(), checkpoint_every="20ms")

    rollbacks: list[int] = []
    crash_test(with_sink(jobs.WithdrawingTable), seeds=SEEDS, check=lambda outputs: rollbacks.append(outputs.rollbacks))
    assert sum(rollbacks) > 0
    assert "in LeavingTable.rows" in failing(with_sink(jobs.LeavingTable)).complaint
    assert "but can_roll_back says that it withdraws output" in failing(with_sink(jobs.BoastingTable)).complaint


def test_an_immediate_sink_that_does_not_know_its_rows_drops_none_but_repeats() -> None:
    sinks: list[jobs.Stream] = []

    def job() -> Any:
        sinks.append(jobs.Stream())
        return jobs.spread(lambda number: number, sinks[-1], checkpoint_every="20ms")

    rollbacks: list[int] = []
    crash_test(job, seeds=SEEDS, check=lambda outputs: rollbacks.append(outputs.rollbacks))
    dropped = [pair for sink in sinks for pair in sink.dropped]
    assert sum(rollbacks) > 0 < len(dropped)
    assert [pair for pair in dropped if pair[0] != pair[1]] == []


def test_a_keyed_sink_requires_a_keyed_stream_in_a_crash_test() -> None:
    job = Job("keyed")
    job.source(values([{"word": "a", "n": 1}])).sink(sqlite("never.db", "words", ["word", "n"], upsert="word"))
    with pytest.raises(JobError, match="its stream is not keyed by that"):
        crash_test(job)


def test_a_transactional_sink_that_commits_twice_is_reported() -> None:
    def with_sink(sink: type) -> Any:
        return lambda: jobs.spread(lambda number: number, sink())

    crash_test(with_sink(jobs.Ledger), seeds=SEEDS)
    failure = failing(with_sink(jobs.CarelessLedger))
    assert "duplicated or unexpected" in failure.complaint
    assert "in CarelessLedger.rows" in failure.complaint


def test_a_job_that_raises_fails_with_its_own_error_as_the_cause() -> None:
    with pytest.raises(CrashTestFailed, match="fails in a world without faults") as raised:
        crash_test(jobs.spread(lambda number: 1 // (number - 7)))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert "the step map raised at the record 7: ZeroDivisionError: " in raised.value.complaint


# ------------------------------------------------------------------ report of a failure


def few(outputs: Outputs) -> None:
    """Wrong where a call was made again."""
    assert len(outputs.calls) == jobs.RECORDS, f"{len(outputs.calls)} calls"


def test_a_failure_names_the_smallest_world_and_the_command_to_reproduce_it() -> None:
    job = jobs.spread(jobs.asking)
    arguments: dict[str, Any] = {"http": lambda request: {"answer": len(request.url)}, "compare": False}
    failure = failing(job, check=few, **arguments)
    assert isinstance(failure.__cause__, AssertionError)
    assert f"fails in world {failure.seed} " in failure.report
    assert f"crash_test(..., seeds=[{failure.seed}], only_faults=[" in failure.report
    assert f'the_command_to_reproduce_it" --clonos-seed {failure.seed} --clonos-faults ' in failure.report
    assert " start " in failure.report.partition("its last events")[2]


def test_a_check_that_needs_all_records_is_not_shrunk_to_fewer() -> None:
    job = jobs.spread(jobs.asking)
    failure = failing(job, check=few, http=lambda request: {"answer": 1}, compare=False)
    assert failure.records is None
    assert failure.faults


def test_a_loss_is_shrunk_to_a_few_records() -> None:
    failure = failing(lambda: jobs.spread(lambda number: number, jobs.CarelessTable()))
    assert failure.records is not None
    assert failure.records < jobs.RECORDS


def test_a_reproduced_failure_is_the_same() -> None:
    failure = failing(jobs.spread(jobs.secretly_lucky))
    again = failing(jobs.spread(jobs.secretly_lucky), seeds=[failure.seed])
    assert again.report.splitlines()[1:] == failure.report.splitlines()[1:]
    smallest = failing(
        jobs.spread(jobs.secretly_lucky), seeds=[failure.seed], only_faults=failure.faults, records=failure.records
    )
    assert smallest.complaint == failure.complaint
    assert failure.records is not None
    assert failure.records < jobs.RECORDS


# ------------------------------------------------------------------ ends of a job


def test_records_that_raise_go_to_the_sink_for_errors() -> None:
    job = Job("routing", errors=collect())
    job.source(values(range(10))).map(lambda number: 6 // (number % 3)).sink(collect(), name="good")

    def check(outputs: Outputs) -> None:
        assert sorted(row.record for row in outputs["errors"]) == [0, 3, 6, 9]
        assert len(outputs["good"]) == 6

    crash_test(job, seeds=range(8), check=check)


def test_a_source_of_columns_reads_given_rows_as_columns() -> None:
    job = Job("columnar")
    rows = job.source(files.parquet("absent/*.parquet"), name="table")
    rows.map_batches(lambda batch: batch.slice(0)).rebalance().map(lambda row: row["number"]).sink(collect())

    def check(outputs: Outputs) -> None:
        assert sorted(outputs.rows) == list(range(12))

    crash_test(job, [{"number": number} for number in range(12)], seeds=range(8), check=check)


def test_a_function_of_batches_with_a_size_gets_the_same_batches_again() -> None:
    def numbers(batch: Any) -> Any:
        return pyarrow.table({"numbers": [batch.column("number").to_pylist()]})

    job = Job("gathered")
    rows = job.source(files.parquet("absent/*.parquet"), name="table")
    rows.map_batches(numbers, rows=5, within="1ms").rebalance().map(lambda row: row["numbers"]).sink(collect())

    def check(outputs: Outputs) -> None:
        assert sorted(number for batch in outputs.rows for number in batch) == list(range(40))
        assert max(map(len, outputs.rows)) <= 5

    crash_test(job, [{"number": number} for number in range(40)], seeds=range(8), check=check)


def test_a_pushed_source_in_a_crash_test_needs_records() -> None:
    job = Job("pushed")
    job.source(sockets.lines("localhost", 9), name="wire").map(str.upper).sink(collect())
    with pytest.raises(JobError, match=r"the source wire cannot be re-read, .* inputs=\{'wire': \[\.\.\.\]\}"):
        crash_test(job)
    crash_test(job, ["a", "b"], seeds=range(3))


def test_a_job_that_does_not_end_is_reported() -> None:
    job = Job("endless")
    job.source(jobs.Endless()).map(str).sink(collect())
    with pytest.raises(WorldFailed, match="has not ended within 20 virtual seconds: give it input that ends"):
        UserWorld(1, ready(job, {}), Judging(), virtual_seconds_max=20).run()


def test_a_crash_test_is_the_same_under_every_hash_seed() -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from clonos.testing import crash_test\n"
        "from tests.worlds import tested_jobs as jobs\n"
        "told = []\n"
        "print(crash_test(jobs.spread(jobs.lucky), seeds=range(4), check=told.append))\n"
        "print([(dict(outputs), outputs.calls) for outputs in told])\n"
    )
    assert len({same_in(program, hash_seed) for hash_seed in ("0", "1")}) == 1


def same_in(program: str, hash_seed: str) -> str:
    """Output of a program under a hash seed."""
    paths = [str(folder.parent) for folder in PACKAGE_FOLDERS.values()]
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1"}
    found = subprocess.run(
        [sys.executable, "-c", program, *paths], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"seeds": range(0)}, "would run no world"),
        ({"seeds": 3}, r"such as range\(200\), or \[3\]"),
        ({"seeds": [1], "records": 0}, "records=0, but at least 1"),
        ({"seeds": [1], "compare": {"snik": list}}, "has no sink 'snik'"),
        ({"seeds": [1], "only_faults": [99]}, "no fault 99 is injected in the world of seed 1; there are: "),
    ],
)
def test_a_crash_test_that_would_show_nothing_is_refused(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(JobError, match=complaint) as raised:
        crash_test(jobs.spread(jobs.lucky), **arguments)
    assert not isinstance(raised.value, CrashTestFailed)


def test_an_object_that_is_not_a_job_is_refused() -> None:
    with pytest.raises(JobError, match="takes a Job, or a function that makes one, not 'orders'"):
        crash_test("orders", seeds=[1])  # type: ignore[arg-type]
