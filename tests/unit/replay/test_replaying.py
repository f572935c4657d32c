"""Replays of recorded epochs: the same output byte by byte, the same errors, and an end where the record ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from clonos import (
    Job,
    Timestamps,
    Tumbling,
    ValueState,
    agg,
    clock,
    col,
    collect,
    files,
    random,
    service,
    uuid4,
    values,
)
from clonos.core.log.determinants import CALL, LogReader
from clonos.core.model.element_kind import ElementKind
from clonos.core.values import encode_rows
from clonos.core.values.elements import decode_elements
from clonos.core.wire.capture_messages import digest_of
from clonos.io.epochs.record_parts import EmittedOutput
from clonos.replay.epoch import Epoch
from clonos.replay.loading import load_epoch
from clonos.replay.output_comparison import compared
from clonos.replay.port import RecordTorn
from clonos.replay.replay_report import ReplayReport
from clonos.replay.replaying import replay_epoch
from tests.harnesses.recorded_jobs import record_job

ROWS = [{"name": ("ann", "bob", "eve")[n % 3], "n": n, "at": 1_000 + 10 * n} for n in range(60)]


@service
def rate(name: str) -> float:
    """Answers otherwise each time."""
    return float(time.time())


class Sessions:
    """Counts by key; a timer emits the count."""

    seen = ValueState[int]("seen", default=0)

    def process(self, row: Any, context: Any) -> None:
        seen = context.state(self.seen)
        seen.value += 1
        context.set_timer(clock.time() + 0.003)

    def on_timer(self, timestamp: datetime, context: Any) -> None:
        context.emit((context.key, context.state(self.seen).value, random.getrandbits(40)))


def drawn(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"time": clock.time_ns(), "number": random.random(), "id": str(uuid4())}


def total(name: str, so_far: int | None, row: dict[str, Any]) -> tuple[int, tuple[str, int]]:
    total = (so_far or 0) + row["n"]
    return total, (name, total)


def raising(row: dict[str, Any]) -> float:
    return float(100 / (row["n"] % 7))


def priced(row: dict[str, Any]) -> tuple[str, float]:
    return row["name"], row["n"] * rate(row["name"])


def _draws(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(drawn, name="drawn").rebalance().sink(collect())


def _keyed(job: Job, folder: Path) -> None:
    keyed = job.source(values(ROWS), name="shop").key_by("name")
    keyed.stateful_map(total, name="total", parallelism=2).rebalance().sink(collect())


def _timers(job: Job, folder: Path) -> None:
    keyed = job.source(values(ROWS), name="shop").key_by("name")
    keyed.process(Sessions, name="sessions").rebalance().sink(collect())


def _windows(job: Job, folder: Path) -> None:
    keyed = job.source(values(ROWS), name="shop").key_by("name")
    keyed.window(Tumbling("5ms")).aggregate(
        list, lambda seen, row: seen.append(row["n"]), name="window"
    ).rebalance().sink(collect())


def _event_time(job: Job, folder: Path) -> None:
    timed = job.source(values(ROWS), timestamps=Timestamps("at", unit="s"), name="shop").key_by("name")
    timed.window(Tumbling("50s")).count(name="window").rebalance().sink(collect())


def _calls(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(priced, name="priced").rebalance().sink(collect())


def _calls_side_by_side(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map_async(priced, capacity=4, name="priced").rebalance().sink(
        collect()
    )


def _columns(job: Job, folder: Path) -> None:
    pq.write_table(
        pa.table({"name": [row["name"] for row in ROWS], "n": [row["n"] for row in ROWS]}), folder / "in.parquet"
    )
    table = job.source(files.parquet(str(folder / "in.parquet")), name="shop")
    table.filter(col("n") > 3).key_by("name").aggregate(total=agg.sum_("n"), name="total").rebalance().sink(collect())


def _joined(job: Job, folder: Path) -> None:
    first = job.source(values(ROWS), name="shop").key_by("name")
    second = job.source(values([{"name": "ann", "town": "Ulm"}]), name="towns").key_by("name")
    first.join(second, ttl="1h", name="joined").rebalance().sink(collect())


def _errors(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(raising, name="raising").rebalance().sink(collect())


JOBS: list[Callable[[Job, Path], None]] = [
    *(_draws, _keyed, _timers, _windows, _event_time, _calls, _calls_side_by_side, _columns, _joined, _errors),
]


def _recorded(make: Callable[[Job, Path], None], folder: Path, **how: Any) -> dict[str, Path]:
    job = Job("prices", errors=collect()) if make is _errors else Job("prices")
    make(job, folder)
    return record_job(job, folder, **how)


def _report(folder: Path) -> ReplayReport:
    epoch = load_epoch(folder)
    replayed = replay_epoch(epoch)
    return ReplayReport(epoch, replayed, compared(epoch, replayed))


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("make", JOBS)
def test_each_task_of_a_job_repeats_its_output_byte_by_byte(
    make: Callable[[Job, Path], None], epoch: int, tmp_path: Path
) -> None:
    barriers = {3: 1} if epoch else {}
    folders = _recorded(make, tmp_path, barriers=barriers, epoch=epoch)
    compared_elements = 0
    for name, folder in folders.items():
        report = _report(folder)
        assert report.differences == [], f"{name}: {report}"
        assert report.comparison.unknown == 0, f"{name}: {report}"
        assert "nothing outside was asked" in str(report)
        compared_elements += report.equal
    assert compared_elements > 40


def test_the_jobs_of_this_test_have_what_a_log_may_have(tmp_path: Path) -> None:
    texts = []
    for number, make in enumerate(JOBS):
        folder = tmp_path / str(number)
        folder.mkdir()
        texts += [str(_report(each)).splitlines()[0] for each in _recorded(make, folder).values()]
    assert any("60 calls" in text for text in texts)
    assert any("timer" in text for text in texts)
    assert any("from 22:13:20.0" in text for text in texts)


def test_the_report_names_a_step_whose_function_does_not_run(tmp_path: Path) -> None:
    note = "the function of priced does not run: the log has what its calls have returned, so no change of it shows"
    beside = _recorded(_calls_side_by_side, tmp_path / "beside")
    assert {task: note in str(_report(folder)) for task, folder in beside.items()}["priced/0"]
    assert not any(note in str(_report(folder)) for folder in _recorded(_calls, tmp_path / "plain").values())


def fails_late(row: dict[str, Any]) -> int:
    return {n: n for n in range(59)}[row["n"]]


def _failing(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(drawn, name="drawn").map(
        fails_late, name="fails"
    ).rebalance().sink(collect())


def test_a_failed_epoch_fails_again_at_the_same_record(tmp_path: Path) -> None:
    folders = _recorded(_failing, tmp_path, barriers={3: 1}, epoch=1)
    [_, folder] = folders.values()
    report = _report(folder)
    epoch = load_epoch(folder)
    assert epoch.head.failure is not None
    assert report.is_as_recorded, report
    assert isinstance(report.error, KeyError)
    assert report.replayed.number == report.replayed.records == 60 - 24
    assert "then at record 36 KeyError: 59, as it happened" in str(report)
    assert "return {n: n for n in range(59)}[row[" in str(report)


def test_a_failure_that_does_not_come_again_is_a_difference(tmp_path: Path) -> None:
    folder = _recorded(_draws, tmp_path)["drawn/0"]
    [_, failing] = _recorded(_failing, tmp_path / "failing").values()
    failed = load_epoch(failing).head.failure
    epoch = load_epoch(folder)
    epoch = epoch._replace(head=_with(epoch, failure=failed))
    replayed = replay_epoch(epoch)
    report = ReplayReport(epoch, replayed, compared(epoch, replayed))
    assert [(each.was, each.now) for each in report.differences] == [("KeyError: 59", "no error")]


def _with(epoch: Epoch, **changed: Any) -> Any:
    from msgspec.structs import replace

    return replace(epoch.head, **changed)


def _ends_of_calls(epoch: Epoch) -> list[int]:
    reader, ends = LogReader(epoch.log), list[int]()
    while not reader.at_end:
        if reader.next()[0] == CALL:
            ends.append(reader.offset_bytes)
    return ends


def test_a_call_without_an_outcome_ends_the_replay_and_is_named(tmp_path: Path) -> None:
    whole = load_epoch(_recorded(_calls, tmp_path)["priced/0"])
    epoch = whole._replace(log=whole.log[: _ends_of_calls(whole)[20]])
    replayed = replay_epoch(epoch)
    report = ReplayReport(epoch, replayed, compared(epoch, replayed))
    assert report.error is None
    assert replayed.replayed_calls == 21
    assert replayed.open_call.endswith("rate")
    assert "then the log ends at " in str(report)
    assert "in priced, which calls " in str(report)


def test_input_that_the_log_reads_and_the_record_lacks_is_a_torn_record(tmp_path: Path) -> None:
    epoch = load_epoch(_recorded(_draws, tmp_path)["drawn/0"])
    [(channel, elements)] = epoch.input.items()
    torn = epoch._replace(input={channel: elements[:2]})
    replayed = replay_epoch(torn)
    assert isinstance(replayed.error, RecordTorn)
    assert "its input from channel 0 ends at element 16" in str(replayed.error)
    source = load_epoch(tmp_path / "shop-0")
    replayed = replay_epoch(source._replace(reads=source.reads[:-1]))
    assert isinstance(replayed.error, RecordTorn)
    assert "its log reads 4 records of split 0, where what its source gave ends" in str(replayed.error)


def test_a_torn_record_names_what_it_was_made_without(tmp_path: Path) -> None:
    _recorded(_draws, tmp_path)
    source = load_epoch(tmp_path / "shop-0")
    missing = ("records of the source, which could not be read again: SourceChanged: the file has other bytes",)
    head = replace(source.head, missing=missing)
    replayed = replay_epoch(source._replace(reads=(), head=head))
    assert isinstance(replayed.error, RecordTorn)
    assert f"where what its source gave ends. It was made without {missing[0]}." in str(replayed.error)


def test_input_before_the_position_of_the_snapshot_is_passed_over(tmp_path: Path) -> None:
    whole = load_epoch(_recorded(_draws, tmp_path)["drawn/0"])
    epoch = load_epoch(_recorded(_draws, tmp_path / "other", barriers={3: 1}, epoch=1)["drawn/0"])
    [(channel, elements)] = epoch.input.items()
    joined = _joined_elements(list(elements))
    replayed = replay_epoch(epoch._replace(input={channel: tuple(joined)}))
    assert not compared(epoch, replayed).differences
    assert elements[0].first_seq > 0
    assert whole.head.epoch == 0


def _joined_elements(elements: list[Any]) -> list[Any]:
    """Puts rows in front of the first element, as the batch of an in-flight log that began before the barrier."""
    first = elements[0]
    rows = [{"name": "old", "n": -1, "at": 0}] * 2 + decode_elements(first.kind, first.payload)
    before = type(first)(first.channel, first.first_seq - 2, first.kind, first.count + 2, 0, encode_rows(rows))
    return [before, *elements[1:]]


def test_steps_that_left_together_are_compared_as_one(tmp_path: Path) -> None:
    """A task that replays a log itself emits several steps at once."""
    epoch = load_epoch(_recorded(_keyed, tmp_path)["total/0"])
    replayed = replay_epoch(epoch)
    channel = epoch.expected[0].channel
    first, second, *_ = replayed.sent[channel]
    rest = tuple(each for each in epoch.expected if each.channel != channel or each.first_seq > second.first_seq)
    assert first.kind is second.kind is ElementKind.ROWS
    rows = decode_elements(first.kind, first.payload) + decode_elements(second.kind, second.payload)
    for expected_rows, differing in ((rows, 0), ([*rows[1:], rows[0]], 1)):
        digest = digest_of(encode_rows(expected_rows))
        both = EmittedOutput(channel, 0, first.kind, len(rows), epoch.expected[0].checkpoint, digest)
        found = compared(epoch._replace(expected=(both, *rest)), replayed)
        assert len(found.differences) == differing
        assert found.unknown == 0


def test_pairs_of_a_key_and_a_row_that_left_together_are_compared_as_one(tmp_path: Path) -> None:
    """Such pairs have an encoding of their own, in which the fields of the rows are columns."""
    epoch = load_epoch(_recorded(_prices_by_key, tmp_path)["priced/0"])
    replayed = replay_epoch(epoch)
    channel = epoch.expected[0].channel
    first, second, *_ = replayed.sent[channel]
    rest = tuple(each for each in epoch.expected if each.channel != channel or each.first_seq > second.first_seq)
    pairs = decode_elements(first.kind, first.payload) + decode_elements(second.kind, second.payload)
    payload = encode_rows([row for _, row in pairs], [key for key, _ in pairs])
    assert payload != encode_rows(pairs)
    both = EmittedOutput(channel, 0, first.kind, len(pairs), epoch.expected[0].checkpoint, digest_of(payload))
    assert not compared(epoch._replace(expected=(both, *rest)), replayed).differences


def _prices_by_key(job: Job, folder: Path) -> None:
    priced = job.source(values(ROWS), name="shop").rebalance().map(_priced, name="priced")
    priced.key_by("name").aggregate(total=agg.sum_("n"), name="total").sink(collect())


def _priced(row: dict[str, Any]) -> dict[str, Any]:
    return {"name": row["name"], "n": row["n"]}


HIDDEN = [0]


def hidden(row: dict[str, Any]) -> dict[str, Any]:
    HIDDEN[0] += 1  # clonos: ok CLN504 a replay shall find it
    return row | {"count": HIDDEN[0]}


def _hidden(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(hidden, name="hidden").rebalance().sink(collect())


def test_a_different_output_is_reported_with_the_records_before_the_emission(tmp_path: Path) -> None:
    report = _report(_recorded(_hidden, tmp_path, barriers={3: 1}, epoch=1)["hidden/0"])
    assert not report.is_as_recorded
    first = report.differences[0]
    assert (first.record, first.last_record, first.where) == (1, 8, "to sink/0")
    assert "'count': 1}" in first.now
    assert "one of the records 1 to 8 differs (to sink/0)" in str(report)
    assert "... and" in str(report)
    cause = "changes the list HIDDEN (no checkpoint has it"
    assert cause in report.likely_cause
    assert f"likely cause: {report.likely_cause}" in str(report)
    assert report.to_json()["likely_cause"] == report.likely_cause


def undecided(row: dict[str, Any]) -> dict[str, Any]:
    HIDDEN[0] += 1  # clonos: ok CLN504 a replay shall find it
    return row | {"number": random.random() if HIDDEN[0] > 30 else clock.time_ns()}


def _undecided(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(undecided, name="undecided").rebalance().sink(collect())


def test_another_question_than_the_logged_one_is_a_divergence(tmp_path: Path) -> None:
    report = _report(_recorded(_undecided, tmp_path, barriers={5: 1}, epoch=1)["undecided/0"])
    assert report.replayed.divergence is not None
    assert "Before its failure it asked for" in str(report)
    assert "changes the list HIDDEN (no checkpoint has it" in report.replayed.divergence.cause
    assert report.likely_cause == "", "the divergence says it"


def caught(row: dict[str, Any]) -> tuple[str, float]:
    try:
        return priced(row)
    except BaseException:  # noqa: BLE001  what user code may do
        return row["name"], -1.0


def _caught(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(caught, name="priced").rebalance().sink(collect())


def test_user_code_that_catches_everything_does_not_outlive_the_log(tmp_path: Path) -> None:
    whole = load_epoch(_recorded(_caught, tmp_path)["priced/0"])
    epoch = whole._replace(log=whole.log[: _ends_of_calls(whole)[20]])
    replayed = replay_epoch(epoch)
    assert replayed.error is None
    assert replayed.replayed_calls == 21
    rows = [row for sent in replayed.sent.values() for each in sent for row in decode_elements(each.kind, each.payload)]
    assert rows
    assert -1.0 not in [price for _, price in rows]
    assert compared(epoch, replayed).equal == len(rows) == 16
    assert replayed.open_call.endswith("rate")
    assert "in priced, which calls " in str(ReplayReport(epoch, replayed, compared(epoch, replayed)))


def undecided_and_caught(row: dict[str, Any]) -> dict[str, Any]:
    try:
        return undecided(row)
    except BaseException:  # noqa: BLE001  what user code may do
        return row


def _undecided_and_caught(job: Job, folder: Path) -> None:
    job.source(values(ROWS), name="shop").rebalance().map(undecided_and_caught, name="undecided").rebalance().sink(
        collect()
    )


def test_a_divergence_that_user_code_catches_is_reported(tmp_path: Path) -> None:
    report = _report(_recorded(_undecided_and_caught, tmp_path, barriers={5: 1}, epoch=1)["undecided/0"])
    assert report.replayed.divergence is not None, report
    assert report.replayed.divergence.asked == "the time"
    assert not report.is_as_recorded
