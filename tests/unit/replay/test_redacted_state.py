"""Redacted state: what operators store encoded is redacted, left out or refused."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow
import pytest

import clonos.operators
from clonos.agg import count_distinct, distinct
from clonos.api.emission import each
from clonos.api.graph import JobGraph
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, decode_snapshot, encode_snapshot
from clonos.core.log import determinants as d
from clonos.core.log.asked import asked_of
from clonos.core.log.call_outcomes import decode_outcome, encode_outcome
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.redaction import RedactedOrigin
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.values import encode_value, rows_of
from clonos.io.epochs.record_parts import SourceRecords, StatePiece
from clonos.operators.state.declared_state import DeclaredState
from clonos.operators.state.state_changes import decode_piece
from clonos.operators.state.state_spec import ANY, Encoding, StateKind, StateSpec
from clonos.operators.steps.awaited_events import Awaits, Event
from clonos.operators.steps.enrich_batch import EncodedOutcomes
from clonos_standby.driver.redactor import NotRedacted, Redactor
from tests.unit.columns.test_column_windows import ColumnsOf
from tests.unit.operators.dividing.stateful_steps import CASES, build
from tests.unit.operators.driver import Given, Outbox, Run
from tests.unit.operators.test_awaited_events import LoggedCalls, awaits
from tests.unit.operators.test_calls import completed
from tests.unit.replay.test_redaction import EMPTY, HIDDEN, SECRET, hide

ROWS: Final = [{"card": SECRET, "n": n} for n in range(9)]
SCHEMA: Final = pyarrow.schema([("card", pyarrow.string()), ("n", pyarrow.int64())])


class Scene(NamedTuple):
    """A step whose state has the secret. ``then``: what happens after all has been read. ``reason``: why its state is
    refused, "" if it is redacted."""

    build: Callable[[Any], Any]
    then: Callable[[Run, LoggedCalls], None] = lambda going, calls: None
    reason: str = ""
    rows: tuple[Any, ...] = tuple(ROWS)
    is_column: bool = False
    flush: Any = None


def done(*numbers: int) -> Callable[[Run, LoggedCalls], None]:
    """Completes these calls."""

    def complete(going: Run, calls: LoggedCalls) -> None:
        completed(going, 0, list(numbers), calls)

    return complete


def suspended(going: Run, calls: LoggedCalls) -> None:
    """Lets the first call wait for an event after it has asked a service."""
    going.chains[1].take_part(0, b"asked", encode_value(SECRET))
    awaits(going, 0, calls, timeout_s=60)


def answer(*_given: Any) -> Any:
    return {"holder": SECRET}


def talk(_key: Any, _state: Any, value: Any) -> Any:
    return value, value


EVENTS = (*ROWS[:2], Event("other", {"card": SECRET, "n": 0}))

SCENES: Final[dict[str, Scene]] = {
    "key by function": Scene(lambda rows: rows.key_by(lambda row: (row["card"], row["n"])).count()),
    "ordered calls": Scene(lambda rows: rows.map_async(answer), done(1, 2)),
    "enrich": Scene(lambda rows: rows.enrich(answer, on="n", select=lambda row, found: (row, found)), done(1, 2)),
    "enrich, cache by the secret": Scene(
        lambda rows: rows.enrich(answer, on="card", select=lambda row, found: found, cache=9), done(0)
    ),
    "enrich batch": Scene(
        lambda rows: rows.enrich_batch(
            lambda keys: dict.fromkeys(keys, SECRET), on="n", select=lambda row, found: found, keys=3, within="1s"
        ),
        done(3),
    ),
    "suspended call and event": Scene(
        lambda rows: rows.key_by(lambda row: 0).stateful_map_async(talk, log_calls=True), suspended, rows=EVENTS
    ),
    "distinct texts": Scene(lambda rows: rows.key_by("n").aggregate(n=count_distinct("card"), all=distinct("card"))),
    "distinct lists": Scene(
        lambda rows: rows.key_by("n").aggregate(n=count_distinct(lambda row: [row["card"]])),
        reason=r"values in its state aggregate/state are encoded, and cannot be redacted",
    ),
    "columns before a sink": Scene(
        lambda rows: rows,
        reason="values in its state flush/columns are encoded, and cannot be redacted",
        is_column=True,
        flush=each(100),
    ),
}


def ran(scene: Scene) -> Run:
    """A job with the step that has read all of its input."""
    graph = JobGraph("job", errors=Outbox())
    given: Any = ColumnsOf(list(scene.rows), SCHEMA) if scene.is_column else Given(scene.rows)
    scene.build(graph.source(given, parallelism=1)).sink(Outbox(), flush=scene.flush, parallelism=1)
    calls = LoggedCalls()
    going = Run(graph.compile(Options(), parallelism=1), clock=calls)
    while going.read(10):
        going.drain()
    scene.then(going, calls)
    return going


def pieces_of(going: Run) -> list[bytes]:
    taken = [piece for pieces, _ in going.barrier(1) for piece in pieces if piece]
    going.close()
    return taken


def redacted(going: Run) -> list[bytes]:
    """The state of all tasks after the redaction."""
    redactor = Redactor(hide, "rows", {}, going.image.declared_state())
    state = [StatePiece(f"task {task}", _snapshot(changes)) for task, changes in enumerate(pieces_of(going))]
    found = redactor.redacted(EMPTY._replace(state=state)).state
    return [decode_snapshot(each.data, each.name).changes for each in found]


def _snapshot(changes: bytes) -> bytes:
    none = CheckpointId(0)
    found = Snapshot(SNAPSHOT_FORMAT, TaskId(0), Incarnation(1), none, None, (), (), (), 0, 0, False, b"", changes)
    return encode_snapshot(found)


@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if not scene.reason])
def test_a_secret_is_in_no_byte_of_redacted_state(name: str) -> None:
    assert any(SECRET.encode() in piece for piece in pieces_of(ran(SCENES[name])))
    assert not any(SECRET.encode() in piece for piece in redacted(ran(SCENES[name])))


@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if scene.reason])
def test_encoded_values_that_a_replay_needs_are_refused(name: str) -> None:
    with pytest.raises(NotRedacted, match=SCENES[name].reason):
        redacted(ran(SCENES[name]))


def test_redacted_answers_stay_in_the_cache_and_among_the_calls_done() -> None:
    scene = Scene(lambda rows: rows.enrich(answer, on="n", select=lambda row, found: found, cache=9), done(1))
    (piece, *_) = redacted(ran(scene))
    found = {section.name: rows_of(section.values) for section in decode_piece(piece).sections}
    ((cached, _at),) = found["enrich/answers"]
    assert decode_outcome(cached) == {"holder": HIDDEN}
    assert list(map(decode_outcome, found["enrich/calls done"])) == [{"holder": HIDDEN}]


def test_the_outcome_of_a_call_for_several_keys_is_redacted_by_the_answer() -> None:
    answers = tuple(encode_outcome("ask", each) for each in (SECRET, ValueError(SECRET)))
    log = d.completion(1, asked_of("ask", bytes(16)), encode_outcome("ask", EncodedOutcomes(answers)))
    seen = list[Any]()

    def hide_answers(origin: RedactedOrigin, value: Any) -> Any:
        seen.append((origin.name, type(value)))
        return KeyError("hidden") if isinstance(value, Exception) else HIDDEN

    found = Redactor(hide_answers, "rows", {}, DeclaredState(())).redacted(EMPTY._replace(log=log)).log
    assert SECRET.encode() not in found
    assert [each for _, each in seen] == [str, ValueError]


def test_the_outcome_of_a_call_that_awaits_an_event_stays_as_it_is() -> None:
    log = d.completion(1, asked_of("talk", bytes(16)), encode_outcome("talk", Awaits("approval", b"part")))
    found = Redactor(lambda _origin, _value: None, "rows", {}, DeclaredState(())).redacted(EMPTY._replace(log=log)).log
    assert found == log


def test_an_event_is_redacted_as_a_record() -> None:
    batch = SourceRecords(0, 1, pickle.dumps([Event("approval", {"card": SECRET})]))
    (found,) = Redactor(hide, "rows", {}, DeclaredState(())).redacted(EMPTY._replace(input=[batch])).input
    assert isinstance(found, SourceRecords)
    assert pickle.loads(found.batch) == [Event("approval", {"card": HIDDEN})]  # noqa: S301  this test has pickled it


def test_state_that_no_step_declares_is_refused() -> None:
    going = ran(SCENES["ordered calls"])
    redactor = Redactor(hide, "rows", {}, DeclaredState(()))
    state = [StatePiece("task", _snapshot(pieces_of(going)[0]))]
    with pytest.raises(NotRedacted, match="no step declares its state map_async/"):
        redactor.redacted(EMPTY._replace(state=state))


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for pair in value.items():
            yield from leaves(pair)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


WITHOUT_RECORDS = {"emitted", "ends", "event timers", "taken", "times of open calls", "watermarks"}
"""Tables of numbers and instants."""
GIVEN_AS_IT_IS = {f"broadcast/{ANY}"}
"""Tables of values that the user gives them."""
ELSEWHERE = {"held watermarks", "parts of open calls"}
"""Tables that test_event_time and test_redaction fill."""


def all_goings() -> Iterator[tuple[str, Run]]:
    """Jobs with the state of each stateful step."""
    for name, scene in SCENES.items():
        yield name, ran(scene)
    for name in CASES:
        graph = JobGraph("job")
        build(graph, name, "rows", 1)
        going = Run(graph.compile(Options(), parallelism=1))
        for _ in range(9):
            going.read(5)
            going.drain()
        yield name, going


def test_each_table_with_encoded_values_declares_them() -> None:
    filled = WITHOUT_RECORDS | GIVEN_AS_IT_IS | ELSEWHERE
    for name, going in all_goings():
        declared = going.image.declared_state()
        for piece in pieces_of(going):
            for section in decode_piece(piece).sections:
                found = declared.find(section.name)
                assert found is not None, section.name
                entries = list(zip(rows_of(section.keys), rows_of(section.values), strict=True))
                if entries:
                    filled.add(found[1].name)
                if name != "distinct lists" and any(isinstance(leaf, bytes) for leaf in leaves(entries)):
                    assert found[1].encoding is not Encoding.NONE, f"{name}: {section.name} has bytes"
    untested = {spec.name for spec in declared_tables()} - filled
    assert not untested, f"add a scene that fills {untested}"


def declared_tables() -> list[StateSpec]:
    """Declarations of tables in all modules of operators."""
    names = [found.name for found in pkgutil.walk_packages(clonos.operators.__path__, "clonos.operators.")]
    found = [value for name in names for value in vars(importlib.import_module(name)).values()]
    return [spec for spec in found if isinstance(spec, StateSpec) and spec.kind is StateKind.TABLE]
