"""Explanations of jobs: what they say of each step and each vertex, in each format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos import (
    Job,
    Stream,
    Tag,
    Timestamps,
    Tumbling,
    ValueState,
    blackhole,
    each,
    files,
    sockets,
    sqlite,
    stdout,
    values,
)
from clonos.api.graph_errors import InvalidJob
from clonos.api.plan.explain_text import explanation_text
from clonos.api.plan.explaining import explain_graph
from clonos.api.plan.explanation import Explanation, StepInfo, VertexInfo
from clonos.core.model.options import Options, StandbyKind
from clonos.job.description import graph_of
from tests.unit.operators.samples import ColumnsGiven


def plan_of(job: Job, parallelism: int = 2, **options: Any) -> Explanation:
    return explain_graph(graph_of(job), Options(**options), parallelism)


def step(plan: Explanation, name: str) -> StepInfo:
    return next(each for each in plan.steps if each.name == name)


def vertex(plan: Explanation, name: str) -> VertexInfo:
    return next(each for each in plan.vertices if name in each.steps)


def numbers(job: Job, **options: Any) -> Stream[int]:
    return job.source(values([1, 2, 3]), name="numbers", **options)


EVEN = Tag[int]("even")


class Remember:
    seen = ValueState("seen", default=False)

    def process(self, value: Any, context: Any) -> None:
        context.emit(value)


# ---------------------------------------------------------------------- vertices


@pytest.mark.parametrize(
    ("extend", "reason"),
    [
        (lambda stream: stream.key_by(abs).count(name="next"), "all records of a key go to one task"),
        (lambda stream: stream.rebalance().map(abs, name="next"), "rebalance() distributes the records"),
        (lambda stream: stream.broadcast().map(abs, name="next"), "broadcast() sends each record to every task"),
        (
            lambda stream: stream.map(abs, name="next", parallelism=3),
            "it has the parallelism 3, the step before it 2",
        ),
        (lambda stream: stream.union(stream.map(abs)).map(abs, name="next"), "it has 2 inputs"),
        (
            lambda stream: stream.map(abs, name="next", effects=True, standby="passive"),
            "the steps before it have hot standbys, and it cannot have them",
        ),
        (
            lambda stream: (
                stream.map(abs, standby="passive", parallelism=3).map(abs, effects=True).map(abs, name="next")
            ),
            "it has hot standbys, and a step before it cannot have them",
        ),
    ],
)
def test_the_plan_has_the_reason_for_each_vertex(extend: Any, reason: str) -> None:
    job = Job("reasons")
    extend(numbers(job)).sink(blackhole())
    plan = plan_of(job, standby=StandbyKind.HOT)
    assert vertex(plan, "next").begins == reason
    assert vertex(plan, "numbers").begins == "it is a source"
    assert f"because {reason}" in " ".join(explanation_text(plan).split())


def test_a_second_sink_beside_an_immediate_one_begins_a_vertex(tmp_path: Path) -> None:
    job = Job("sinks")
    stream = numbers(job)
    stream.sink(sqlite(tmp_path / "a.db", "t", columns=["n"]), name="first")
    stream.sink(blackhole(), name="second")
    assert vertex(plan_of(job), "second").begins == "a vertex has one immediate sink and no other sink"


def test_fused_steps_keys_and_tasks_are_those_of_the_compiled_plan() -> None:
    job = Job("fused")
    keyed = numbers(job).map(abs, name="positive").key_by(str, name="by_text")
    keyed.count(name="counts", parallelism=3).sink(blackhole(), name="out")
    plan = plan_of(job)
    assert [(each.tasks, each.steps) for each in plan.vertices] == [
        (2, ("numbers", "positive", "by_text")),
        (3, ("counts", "out")),
    ]
    compiled = graph_of(job).compile(Options(), parallelism=2).plan
    assert [each.name for each in plan.vertices] == [each.name for each in compiled.vertices]
    (exchange,) = plan.exchanges
    assert (exchange.source, exchange.target, exchange.kind, exchange.step) == (
        "numbers-positive-by_text",
        "counts",
        "hash",
        "positive",
    )
    assert exchange.key is not None
    assert (exchange.key.name, exchange.key.by) == ("by_text", "str")


CALLS: dict[str, Callable[[Any], Any]] = {
    "map_async": lambda rows: rows.map_async(abs, name="call"),
    "stateful_map_async": lambda rows: rows.key_by(abs).stateful_map_async(lambda _, seen, n: (n, n), name="call"),
    "enrich": lambda rows: rows.enrich(abs, on=abs, name="call"),
    "enrich_batch": lambda rows: rows.enrich_batch(sorted, on=abs, name="call"),
    "par": lambda rows: rows.map(abs, par=4, name="call"),
}


@pytest.mark.parametrize("kind", CALLS)
def test_calls_at_once_have_keepers_if_no_other_task_has_their_outcomes(kind: str) -> None:
    job = Job("calls")
    CALLS[kind](numbers(job)).sink(blackhole())
    last = {each.name: each.keepers for each in plan_of(job).vertices if "call" in each.name}
    assert list(last.values()) == [1]
    job = Job("calls")
    CALLS[kind](numbers(job)).rebalance().sink(blackhole())
    assert not any(each.keepers for each in plan_of(job).vertices)


def test_standbys_and_keepers_of_a_vertex() -> None:
    job = Job("standbys")
    numbers(job).map(abs, effects=True, name="paid", parallelism=1).sink(blackhole())
    hot = plan_of(job, standby=StandbyKind.HOT, standbys=2)
    assert [(each.standby, each.standbys, each.keepers) for each in hot.vertices] == [("hot", 2, 0), ("passive", 2, 1)]
    assert [each.standby for each in plan_of(job, standbys=0).vertices] == ["none", "none"]
    text = explanation_text(hot)
    assert "standbys    2 hot per task" in text
    assert "keepers     the log of each task is also held by 1 other slot" in text
    assert "effects     paid changes something outside the job" in text


def test_the_error_output_is_a_vertex_that_gets_records_of_those_that_run_user_code() -> None:
    job = Job("errors", errors=files.jsonl("/bad"))
    numbers(job).map(abs).sink(blackhole())
    plan = plan_of(job)
    assert [each.takes_errors for each in plan.vertices] == [False, True]
    assert "records whose step raised, from numbers" in explanation_text(plan)
    assert "sink        files.jsonl('/bad')" in explanation_text(plan)
    assert "v0 -.->|errors| e1" in job.explain("mermaid", parallelism=2)


@pytest.mark.parametrize(
    ("exchange", "send", "reason"),
    [
        ("rescale", lambda stream: stream.rescale(), "rescale() distributes the records"),
        ("shuffle", lambda stream: stream.shuffle(), "shuffle() distributes the records"),
        ("global", lambda stream: stream.global_(), "global_() sends all records to one task"),
        (
            "custom",
            lambda stream: stream.partition_custom(lambda number, tasks: number % tasks, key=abs),
            "a function chooses the task of each record",
        ),
    ],
)
def test_an_exchange_in_which_the_sender_chooses_the_task_has_its_own_name(
    exchange: str, send: Any, reason: str
) -> None:
    job = Job("routed")
    send(numbers(job)).map(abs, name="next").sink(blackhole())
    plan = plan_of(job)
    (found,) = plan.exchanges
    assert (found.kind, found.step, found.key) == (exchange, "numbers", None)
    assert vertex(plan, "next").begins == reason
    assert f"next: map abs ({exchange})" in explanation_text(plan)
    assert f"-->|{exchange}| s1" in job.explain("mermaid")


def test_a_reader_of_a_side_output_names_it() -> None:
    class Halves:
        def process(self, value: int, context: Any) -> None:
            context.output(EVEN, value)

    job = Job("sides")
    split = numbers(job).process(Halves, name="split")
    split.side_output(EVEN).map(abs, name="even").sink(blackhole())
    split.sink(blackhole(), name="odd")
    plan = plan_of(job)
    assert [each.side_output for each in step(plan, "even").inputs] == ["even"]
    assert [each.side_output for each in step(plan, "odd").inputs] == [""]
    assert "├─ even: map abs (side output even)" in explanation_text(plan)
    assert '-->|"side output even"|' in job.explain("mermaid")


# ---------------------------------------------------------------------- steps


def test_state_has_its_kind_key_and_window() -> None:
    job = Job("state")
    rows = job.source(values([{"user": "ann", "n": 1}]))
    rows.key_by("user").window(Tumbling("5s")).sum("n", name="sums").sink(blackhole())
    rows.key_by(lambda row: row["n"], name="by_n").process(Remember, name="once").sink(blackhole())
    plan = plan_of(job)
    sums, once = step(plan, "sums").state, step(plan, "once").state
    assert sums is not None
    assert once is not None
    assert (sums.kind, sums.key, sums.properties) == (
        "window sum",
        "the field 'user'",
        {
            "window": "Tumbling 5s",
            "time": "processing",
            "windows": "in panes",
            "accumulators": "of the aggregate",
            "field": "'n'",
        },
    )
    assert (once.kind, once.properties['state "seen"']) == ("process", "ValueState")
    assert step(plan, "sink").state is None
    assert "sums: window sum by the field 'user'; window: Tumbling 5s; time: processing;" in explanation_text(plan)


def test_timestamps_watermarks_and_the_step_that_loses_them() -> None:
    job = Job("times")
    stream = numbers(job, timestamps=Timestamps("at", unit="ms", out_of_order="5s", idle_after="1min"))
    stream.map(abs, name="kept").key_by(abs).window(Tumbling("5s", time="processing")).count(name="counted").sink(
        blackhole(), name="out"
    )
    job.source(values([1]), name="plain").with_timestamps(float, name="given").sink(blackhole())
    plan = plan_of(job)
    given = step(plan, "numbers").time
    assert (given.has_timestamps, given.of) == (True, "the field 'at' (if it is a number: ms)")
    assert given.watermarks == "5s behind the latest timestamp of a split, every 200ms, idle after 1min"
    assert step(plan, "kept").time.has_timestamps
    assert [each.name for each in plan.steps if each.time.is_lost] == ["counted"]
    assert not step(plan, "plain").time.has_timestamps
    assert step(plan, "given").time.of == "float"
    assert step(plan, "given").time.watermarks == "at the latest timestamp of a task, every 200ms"
    assert "counted loses them" in explanation_text(plan)


def test_guarantees_and_descriptions_of_sources_and_sinks(tmp_path: Path) -> None:
    job = Job("connectors")
    lines = job.source(sockets.lines("localhost", 7000), name="lines")
    table = sqlite(tmp_path / "a.db", "words", columns=["word", "n"], upsert="word")
    lines.key_by(len).count(name="counts").sink(table, name="table")
    lines.sink(stdout(), name="shown")
    plan = plan_of(job)
    source, keyed, shown = step(plan, "lines").source, step(plan, "table").sink, step(plan, "shown").sink
    assert source is not None
    assert (source.connector, source.splits, source.is_unbounded) == ("sockets.lines('localhost', 7000)", None, True)
    assert keyed is not None
    assert (keyed.connector, keyed.guarantee, keyed.key) == ("sqlite(table='words')", "immediate", ("word",))
    assert shown is not None
    assert (shown.connector, shown.guarantee) == ("stdout()", "checkpoint")
    text = " ".join(explanation_text(plan).split())
    assert "sqlite(table='words'), one row per word; exactly-once, immediate: rows are numbered" in text
    assert "kept in a journal, because it cannot be read again" in text


def test_the_order_is_that_of_the_compiled_job() -> None:
    job = Job("order")
    numbers(job).rebalance().map(abs, name="dealt").sink(blackhole())
    assert plan_of(job).order == graph_of(job).compile(Options(), parallelism=2).order.ends


# ---------------------------------------------------------------------- what is wrong


def test_input_that_does_not_exist_yet_is_explained(tmp_path: Path) -> None:
    job = Job("early")
    job.source(files.lines(tmp_path / "*.txt"), name="texts").sink(blackhole())
    plan = plan_of(job)
    source = step(plan, "texts").source
    assert source is not None
    assert source.splits is None
    assert "no file matches" in source.note
    (warning,) = plan.warnings
    assert warning.startswith("the splits of texts are not known yet: no file matches")
    (tmp_path / "a.txt").write_text("one\n", "utf-8")
    assert plan_of(job).warnings == ()
    assert "1 split" in explanation_text(plan_of(job))


def test_a_source_of_the_user_that_cannot_list_its_splits_is_explained() -> None:
    class Broken(ColumnsGiven):
        def splits(self, parallelism: int) -> list[bytes]:
            raise OSError("the server is down")

    job = Job("early")
    job.source(Broken([]), name="remote").sink(blackhole())
    (warning,) = plan_of(job).warnings
    assert warning == "the splits of remote are not known yet: OSError: the server is down"


def test_the_plan_warns_of_results_that_no_step_reads_and_of_steps_without_a_name() -> None:
    job = Job("forgotten")
    stream = numbers(job)
    stream.map(abs, name="lost")
    stream.key_by(abs).count().sink(blackhole())
    plan = plan_of(job)
    assert [each.name for each in plan.steps if each.is_unread] == ["lost"]
    lost, unnamed = plan.warnings
    assert lost == "the results of the step lost go nowhere: no step reads them"
    assert unnamed.startswith("the step count keeps state under a name made from the place in the job")


def test_a_job_that_cannot_be_compiled_and_an_unknown_format_are_refused() -> None:
    with pytest.raises(InvalidJob, match="has no source"):
        Job("empty").explain()
    job = Job("formats")
    numbers(job).sink(blackhole())
    with pytest.raises(InvalidJob, match=r"'svg'\. Give one of text, mermaid, json"):
        job.explain("svg")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extend", "position", "text"),
    [
        (lambda stream: stream.map(abs, par=2).filter(bool), "record", "after the last record that the limit needs"),
        (lambda stream: stream.fold(0, max, emit=each(2)), "record", "committed after the last record"),
        (lambda stream: stream.flat_map(range), "step", "one record may give several results"),
        (lambda stream: stream.shuffle(), "checkpoint", "after what it has read when the next checkpoint begins"),
        (lambda stream: stream.map(abs, parallelism=2), "checkpoint", "as the limit is in another task"),
    ],
)
def test_the_plan_shows_where_a_limit_ends_its_source(extend: Any, position: str, text: str) -> None:
    job = Job("limited")
    extend(numbers(job, parallelism=1)).limit(7, name="few").sink(blackhole())
    plan = plan_of(job, 1)
    limit = step(plan, "few").limit
    assert limit is not None
    assert (limit.records, limit.sources, limit.position) == (7, ("numbers",), position)
    shown = " ".join(explanation_text(plan).split())
    assert "few: 7 records, then numbers ends, committed " in shown
    assert text in shown
    assert step(plan, "numbers").limit is None
