"""Redacted records: what the function changes is in no byte, and a replay says that it was changed."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from clonos import Job, ValueState, collect, service, values
from clonos.core.checkpoint.snapshot import decode_snapshot, encode_snapshot
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.log import determinants as d
from clonos.core.log.asked import SERVICE_BYTES, asked_of
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import Blame, JobError, ReplayDiverged
from clonos.core.model.ids import ChannelId, CheckpointId
from clonos.core.model.options import Options
from clonos.core.ports.redaction import Redact, RedactedKind, RedactedOrigin
from clonos.core.values import encode_rows
from clonos.core.wire.capture_messages import Elements
from clonos.io.epochs.record_parts import (
    EpochContent,
    FailedHere,
    Input,
    JournalBytes,
    SourceRecords,
    StatePiece,
)
from clonos.io.epochs.record_reader import EpochRecord
from clonos.io.epochs.record_writer import RecordWriter
from clonos.job.description import graph_of
from clonos.operators.connector_contract import PartlyMalformed
from clonos.replay.key_chain import LEFT_OUT
from clonos.replay.key_timeline import timeline_of
from clonos.replay.loading import RecordRefused, load_epoch
from clonos.replay.replay_report import REDACTED
from clonos.replay.replay_session import CODE_GIVEN, replay
from clonos.replay.replaying import replay_epoch
from clonos_standby.driver.epoch_writing import failed_here
from clonos_standby.driver.redactor import NotRedacted, Redactor
from tests.harnesses.late_families import late_families
from tests.harnesses.recorded_conversations import conversations, record_a_wait
from tests.harnesses.recorded_jobs import STEP_RECORDS, record_job

SECRET = "4929-5518-0000-1234"
HIDDEN = "hidden"
ROWS = [{"name": ("ann", "bob")[n % 2], "card": SECRET, "n": n} for n in range(40)]


@service
def holder_of(card: str) -> str:
    """Answers with what was asked."""
    return f"holder of {card}"


class Cards:
    """Keeps the last card and its holder for each name."""

    last = ValueState[list[str]]("last", default=[])

    def process(self, row: Any, context: Any) -> None:
        last = context.state(self.last)
        if row["n"] >= 0:
            last.value = [row["card"], holder_of(row["card"]), *last.value[:2]]
        context.emit((row["name"], row["n"]))


def cards_job() -> Job:
    job = Job("cards")
    rows = job.source(values(ROWS), name="rows").map(dict, name="copied")
    rows.key_by("name").process(Cards(), name="cards").sink(collect(), name="out")
    return job


def hide(origin: RedactedOrigin, value: Any) -> Any:
    """Replaces the secret in any value."""
    del origin
    return hidden(value)


def hidden(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(SECRET, HIDDEN)
    if isinstance(value, dict):
        return {hidden(key): hidden(each) for key, each in value.items()}
    if hasattr(value, "_fields"):  # a NamedTuple, such as an Event
        return type(value)(*map(hidden, value))
    return type(value)(map(hidden, value)) if isinstance(value, list | tuple) else value


def as_it_is(origin: RedactedOrigin, value: Any) -> Any:
    """Replaces nothing."""
    del origin
    return value


OPTIONS = Options(step_records_first=STEP_RECORDS, step_records_max=STEP_RECORDS)
DECLARED = graph_of(cards_job()).compile(OPTIONS).declared_state()
EMPTY = EpochContent([], b"", b"", [], [])


def content_of(record: EpochRecord) -> EpochContent:
    pieces = [StatePiece(name, piece) for name, found in record.state() for piece in found]
    inputs, expected = list(record.inputs()), list(record.expected())
    return EpochContent(pieces, record.log(), b"", inputs, expected, record.head.sinks)


def redacted(source: Path, redact: Redact, *, has_code: bool = True, job: Job | None = None) -> Path:
    """A redacted copy of a record."""
    record = EpochRecord(source)
    image = graph_of(job or cards_job()).compile(OPTIONS)
    plan = image.plan
    senders = {each.id: plan.vertices[plan.vertex_of[each.sender]].name for each in plan.channels}
    redactor = Redactor(redact, "rows", senders, image.declared_state())
    content = redactor.redacted(content_of(record))
    folder = source.with_name(source.name + "-redacted")
    head = replace(record.head, redacted=redactor.sentences, sinks=content.sinks)
    with RecordWriter(folder) as writer:
        if has_code:
            writer.job(record.job())
        else:
            head = replace(head, options=OPTIONS, widths=tuple(plan.widths.items()))
        for state in content.state:
            writer.state(state)
        writer.log(content.log)
        for piece in content.input:
            writer.input(piece)
        for emitted in content.expected:
            writer.expected(emitted)
        writer.finish(head)
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Records of the tasks, after their first checkpoint."""
    folder = tmp_path_factory.mktemp("cards")
    return record_job(cards_job(), folder, barriers={2: 1}, epoch=1, has_sink_digests=True)


SENTENCES = {
    "rows-copied/0": ("24 records of the source rows were redacted",),
    "cards/0": (
        "24 answers of the service holder_of were redacted",
        "2 entries of the state cards/last were redacted",
        "24 records from the step rows-copied were redacted",
    ),
}


@pytest.mark.parametrize("task", list(SENTENCES))
def test_a_secret_of_the_input_is_in_no_byte_of_the_record(recorded: dict[str, Path], task: str) -> None:
    assert any(SECRET.encode() in part.read_bytes() for part in recorded[task].iterdir())
    folder = redacted(recorded[task], hide, has_code=False)
    for part in folder.iterdir():
        assert SECRET.encode() not in part.read_bytes(), part
    report = replay(folder, cards_job())
    assert report.is_as_recorded, report
    assert report.replayed.records == 24
    assert sorted(report.epoch.head.redacted) == sorted(SENTENCES[task])
    text = str(report)
    assert "its output not compared: the record was redacted" in text
    assert "equal byte by byte" not in text
    assert all(f"note: {each}" in text for each in (*SENTENCES[task], CODE_GIVEN))


@pytest.mark.parametrize("task", list(SENTENCES))
def test_a_record_in_which_nothing_was_redacted_is_compared(recorded: dict[str, Path], task: str) -> None:
    folder = redacted(recorded[task], as_it_is)
    found, source = EpochRecord(folder), EpochRecord(recorded[task])
    assert found.head.redacted == ()
    assert (found.log(), list(found.inputs())) == (source.log(), list(source.inputs()))
    assert list(found.expected()) == list(source.expected())
    assert found.head.sinks == source.head.sinks
    assert replay(folder).is_as_recorded


def test_the_digests_of_requests_and_of_output_leave_with_no_redacted_record(recorded: dict[str, Path]) -> None:
    record = EpochRecord(redacted(recorded["cards/0"], hide))
    reader, asked = d.LogReader(record.log()), []
    while not reader.at_end:
        tag, _, request, _ = reader.next()
        if tag == d.CALL:
            asked.append(request)
    assert set(asked) == {asked_of("holder_of", bytes(16))}
    assert len(asked) == 24
    assert list(record.expected()) == []
    assert record.head.sinks == ()
    ((name, (piece, *_)), *_) = record.state()
    assert decode_snapshot(piece, name).sinks == ()


def test_the_labels_of_metrics_are_left_out(recorded: dict[str, Path]) -> None:
    ((name, (piece, *_)), *_) = EpochRecord(recorded["cards/0"]).state()
    labelled = replace(decode_snapshot(piece, name), metrics=late_families(**{SECRET: 1}))
    state = [StatePiece(name, encode_snapshot(labelled))]
    (found,) = Redactor(hide, "rows", {}, DECLARED).redacted(EMPTY._replace(state=state)).state
    assert SECRET.encode() in state[0].data
    assert SECRET.encode() not in found.data


def test_a_redacted_call_answers_no_other_service(recorded: dict[str, Path]) -> None:
    folder = redacted(recorded["cards/0"], hide)
    record = EpochRecord(folder)
    code = asked_of("another", bytes(16)).to_bytes(SERVICE_BYTES + 4, "big")
    other = record.log().replace(asked_of("holder_of", bytes(16)).to_bytes(SERVICE_BYTES + 4, "big"), code)
    epoch = load_epoch(folder)._replace(log=other)
    assert isinstance(replay_epoch(epoch).divergence, ReplayDiverged)


def in_place(origin: RedactedOrigin, value: Any) -> Any:
    """Changes the dict that it is given, and returns the same object."""
    del origin
    row = value[1] if isinstance(value, tuple) else value
    if isinstance(row, dict):
        row["card"] = HIDDEN
    elif isinstance(row, list):
        row[:] = [HIDDEN]
    return value


def test_values_that_the_function_changes_in_place_are_redacted_and_counted(recorded: dict[str, Path]) -> None:
    record = EpochRecord(redacted(recorded["rows-copied/0"], in_place))
    assert record.head.redacted == SENTENCES["rows-copied/0"]
    assert not any(SECRET.encode() in each.batch for each in record.inputs() if isinstance(each, SourceRecords))
    other = EpochRecord(redacted(recorded["cards/0"], in_place))
    assert set(other.head.redacted) == set(SENTENCES["cards/0"][1:])
    assert not any(SECRET.encode() in each.payload for each in other.inputs() if isinstance(each, Elements))


def test_a_replay_that_takes_another_way_names_the_redaction_as_the_likely_cause(recorded: dict[str, Path]) -> None:
    def negative(origin: RedactedOrigin, value: Any) -> Any:
        return (value[0], value[1] | {"n": -1}) if origin.kind == "step" else value

    report = replay(redacted(recorded["cards/0"], negative))
    assert isinstance(report.error, ReplayDiverged)
    assert not report.is_as_recorded
    assert report.likely_cause == REDACTED
    assert f"likely cause: {REDACTED}" in str(report)


def test_the_function_gets_records_of_columns_one_by_one() -> None:
    seen = list[Any]()

    def hide_names(origin: RedactedOrigin, value: Any) -> Any:
        seen.append((origin, value))
        return value | {"card": HIDDEN}

    batch = pa.RecordBatch.from_pylist([{"card": SECRET, "n": 1}, {"card": "none", "n": 2}])
    piece = SourceRecords(0, 2, pickle.dumps(batch))
    redactor = Redactor(hide_names, "shop", {}, DECLARED)
    (found,) = redactor.redacted(EMPTY._replace(input=[piece])).input
    assert isinstance(found, SourceRecords)
    assert pickle.loads(found.batch).to_pylist() == [{"card": HIDDEN, "n": 1}, {"card": HIDDEN, "n": 2}]  # noqa: S301
    assert seen[0] == (RedactedOrigin(RedactedKind.SOURCE, "shop"), {"card": SECRET, "n": 1})
    assert redactor.sentences == ("2 records of the source shop were redacted",)


MALFORMED = SourceRecords(0, 1, pickle.dumps(PartlyMalformed([SECRET])))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (EMPTY._replace(input=[JournalBytes(SECRET.encode())]), "its source has a journal"),
        (EMPTY._replace(input=[MALFORMED]), "the source rows gave malformed records"),
        (EMPTY._replace(log=d.blob(d.ROUTED, SECRET.encode())), "its log has errors for the error output"),
    ],
)
def test_content_that_cannot_be_redacted_is_refused(content: EpochContent, reason: str) -> None:
    with pytest.raises(NotRedacted, match=reason) as refused:
        Redactor(as_it_is, "rows", {}, DECLARED).redacted(content)
    assert SECRET not in str(refused.value)


def test_parts_of_asynchronous_calls_are_left_out() -> None:
    parts = d.part(1, asked_of("holder_of", bytes(16)), bytes(16) + SECRET.encode()) + d.numbers(d.CLOCK, 7)
    found = Redactor(as_it_is, "rows", {}, DECLARED).redacted(EMPTY._replace(log=parts, unfinished=parts))
    assert (found.log, found.unfinished) == (d.numbers(d.CLOCK, 7),) * 2


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_an_error_of_the_function_is_reported_by_its_class_and_line(error: type[BaseException]) -> None:
    def raising(origin: RedactedOrigin, value: Any) -> Any:
        raise error(f"{origin}: {value}")

    rows: list[Input] = [SourceRecords(0, 1, pickle.dumps([SECRET]))]
    with pytest.raises(
        NotRedacted, match=rf"redact raised {error.__name__} for records of the source rows \(.*:\d+"
    ) as found:
        Redactor(raising, "rows", {}, DECLARED).redacted(EMPTY._replace(input=rows))
    assert SECRET not in str(found.value)


@pytest.mark.parametrize("returned", [lambda: None, object()])
def test_a_value_that_cannot_be_written_is_refused(returned: Any) -> None:
    row = encode_rows([SECRET])
    elements = Elements(ChannelId(0), 0, ElementKind.ROWS, 1, CheckpointId(0), row)
    with pytest.raises(NotRedacted, match="a value cannot be read or written by redact: ValueUnsupported"):
        Redactor(lambda _origin, _value: returned, "", {ChannelId(0): "rows"}, DECLARED).redacted(
            EMPTY._replace(input=[elements])
        )
    lock = threading.Lock()
    rows: list[Input] = [SourceRecords(0, 1, pickle.dumps([SECRET]))]
    with pytest.raises(NotRedacted, match="a value cannot be read or written by redact: TypeError"):
        Redactor(lambda _origin, _value: lock, "rows", {}, DECLARED).redacted(EMPTY._replace(input=rows))


def ask(question: dict[str, Any]) -> str:
    """Asks a model with a prompt that has the card."""
    return holder_of(question["card"]) + holder_of(f"again {question['card']}")


def asking_job() -> Job:
    job = Job("asking")
    rows = job.source(values(ROWS), name="rows").rebalance()
    rows.map_async(ask, capacity=4, log_calls=True, name="ask").sink(collect(), name="out")
    return job


def test_a_secret_of_a_prompt_is_in_no_byte_of_the_record(tmp_path: Path) -> None:
    source = record_job(asking_job(), tmp_path)["ask/0"]
    assert {d.PART, d.COMPLETION} <= tags_of(EpochRecord(source).log())
    assert SECRET.encode() in EpochRecord(source).log()
    folder = redacted(source, hide, has_code=False, job=asking_job())
    for part in folder.iterdir():
        assert SECRET.encode() not in part.read_bytes(), part
    assert d.PART not in tags_of(EpochRecord(folder).log())
    report = replay(folder, asking_job())
    assert report.is_as_recorded, report
    assert report.replayed.records == len(ROWS)


def test_a_call_that_awaits_an_event_is_shown_without_its_calls(tmp_path: Path) -> None:
    epoch = load_epoch(redacted(record_a_wait(tmp_path), as_it_is, job=conversations()))
    (step,) = timeline_of(epoch._replace(log=b""), "8", frozenset()).steps
    assert (step.awaits, step.calls, step.notes[0]) == ("approved", [], LEFT_OUT)


def tags_of(log: bytes) -> set[int]:
    reader, found = d.LogReader(log), set[int]()
    while not reader.at_end:
        found.add(reader.next()[0])
    return found


def test_a_record_without_code_asks_for_the_job(recorded: dict[str, Path]) -> None:
    folder = redacted(recorded["cards/0"], as_it_is, has_code=False)
    with pytest.raises(RecordRefused, match=r"it has no code, .* Give the job that it was made with: --code FILE"):
        replay(folder)
    with pytest.raises(JobError, match="the record has to have its code"):
        replay(folder, cards_job(), elsewhere=True)
    report = replay(folder, cards_job())
    assert report.is_as_recorded
    assert report.equal == replay(recorded["cards/0"]).equal


def test_the_failure_in_a_redacted_record_has_neither_text_nor_record() -> None:
    failed = JobFailed(Blame.JOB, "", step="priced", record=SECRET, error=f"KeyError: {SECRET!r}", frames=f"'{SECRET}'")
    assert failed_here(failed, is_redacted=True) == FailedHere("KeyError", "priced", "", None, 0, 0, "")
    assert failed_here(failed).record == SECRET
