"""The plan of a graph: which steps share a vertex, which edges join vertices, and their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos.api.event_time import Timestamps
from clonos.api.graph import JobGraph
from clonos.api.graph_errors import BadSplits, ColumnsNeeded, InvalidJob
from clonos.api.windows import Tumbling
from clonos.connectors import files
from clonos.connectors.connector_errors import UnexpectedInput
from clonos.connectors.filesystem.file_splits import decode_split, encode_split
from clonos.core.checkpoint.checkpoint_metadata import plan_fingerprint
from clonos.core.model.options import Options, StandbyKind
from clonos.core.model.plan import Plan
from tests.unit.operators.driver import Given, Outbox
from tests.unit.operators.samples import ColumnsGiven, Files
from tests.unit.operators.test_timed_source import Readings


def plan_of(graph: JobGraph, parallelism: int = 2) -> Plan:
    return graph.compile(Options(), parallelism=parallelism).plan


def names(plan: Plan) -> list[str]:
    return [vertex.name for vertex in plan.vertices]


def edges(plan: Plan) -> list[tuple[str, str, str, int]]:
    return [
        (
            plan.vertices[edge.source].name,
            "external" if edge.target is None else plan.vertices[edge.target].name,
            edge.partitioning.value,
            edge.port,
        )
        for edge in plan.edges
    ]


def test_forward_steps_share_a_vertex_and_a_key_starts_a_new_one() -> None:
    graph = JobGraph("wordcount")
    counts = graph.source(Given([])).flat_map(str.split).key_by(lambda word: word).window(Tumbling("5s")).count()
    counts.map(str).sink(Files())
    plan = plan_of(graph)
    assert names(plan) == ["source-flat_map-key_by", "window_count-map-sink"]
    assert edges(plan) == [("source-flat_map-key_by", "window_count-map-sink", "hash", 0)]
    assert [(v.is_source, v.is_transactional, v.has_effects) for v in plan.vertices] == [
        (True, False, False),
        (False, True, False),
    ]


def test_several_consumers_share_a_vertex_with_one_port_per_edge() -> None:
    graph = JobGraph("tree")
    asked = graph.source(Given([])).map(str, name="ask")
    asked.filter(bool).sink(Files(), name="rejected")
    asked.filter(bool).key_by(len).count(name="one").sink(Outbox())
    asked.key_by(str).count(name="two").sink(Files())
    plan = plan_of(graph)
    assert names(plan) == ["ask", "one", "two"]
    assert edges(plan) == [
        ("ask", "one", "hash", 0),
        ("one", "external", "external", 0),
        ("ask", "two", "hash", 1),
    ]
    assert [v.has_effects for v in plan.vertices] == [False, True, False]
    assert plan.vertices[0].is_transactional


def test_a_union_becomes_several_edges_into_one_vertex() -> None:
    graph = JobGraph("union")
    left, right = graph.source(Given([]), name="left"), graph.source(Given([]), name="right", parallelism=1)
    left.union(right).map(str, name="both").sink(Outbox())
    left.key_by(str).union(right.key_by(str)).count(name="keyed").sink(Outbox())
    plan = plan_of(graph)
    assert names(plan) == ["left", "right", "both", "keyed"]
    assert edges(plan) == [
        ("left", "both", "forward", 0),
        ("right", "both", "rebalance", 0),
        ("both", "external", "external", 0),
        ("left", "keyed", "hash", 1),
        ("right", "keyed", "hash", 1),
        ("keyed", "external", "external", 0),
    ]


def test_a_diamond_of_forward_edges_is_cut_at_its_end() -> None:
    graph = JobGraph("diamond")
    numbers = graph.source(Given([]), name="numbers")
    numbers.map(str, name="a").union(numbers.map(repr, name="b")).sink(Outbox(), name="end")
    plan = plan_of(graph)
    assert names(plan) == ["numbers-a-b", "end"]
    assert edges(plan) == [
        ("end", "external", "external", 0),
        ("numbers-a-b", "end", "forward", 0),
        ("numbers-a-b", "end", "forward", 1),
    ]


def test_another_parallelism_rebalances_and_a_sink_has_the_parallelism_of_its_stream() -> None:
    graph = JobGraph("widths")
    graph.source(Given([]), parallelism=1).map(str, parallelism=3).sink(Outbox())
    plan = plan_of(graph)
    assert [(v.name, v.parallelism) for v in plan.vertices] == [("source", 1), ("map-sink", 3)]
    assert edges(plan)[0] == ("source", "map-sink", "rebalance", 0)


def test_rebalance_and_broadcast_start_a_new_vertex() -> None:
    graph = JobGraph("cuts")
    source = graph.source(Given([]))
    source.rebalance().map(str).broadcast().map(str).sink(Outbox())
    plan = plan_of(graph)
    assert [edge[2] for edge in edges(plan)] == ["rebalance", "broadcast", "external"]


def test_a_second_sink_with_external_output_gets_its_own_vertex() -> None:
    graph = JobGraph("sinks")
    source = graph.source(Given([]))
    for name in ("first", "second"):
        source.sink(Outbox(), name=name)
    source.sink(Files(), name="third")
    plan = plan_of(graph)
    assert names(plan) == ["source-first", "second", "third"]
    assert [edge[:3] for edge in edges(plan)] == [
        ("source-first", "external", "external"),
        ("second", "external", "external"),
        ("source-first", "second", "forward"),
        ("source-first", "third", "forward"),
    ]


def test_transactional_sinks_of_one_vertex_commit_their_own_parts() -> None:
    graph = JobGraph("two")
    source = graph.source(Given([]))
    sinks = [Files(), Files()]
    for sink in sinks:
        source.sink(sink)
    image = graph.compile(Options())
    both = image.sink_of(0)
    assert both is not None
    assert both not in sinks


def test_a_vertex_with_effect_calls_needs_a_keeper() -> None:
    graph = JobGraph("effects")
    graph.source(Given([])).map(str, effects=True).sink(Files())
    assert [vertex.has_effects for vertex in plan_of(graph).vertices] == [True]


def test_every_vertex_with_user_code_has_an_edge_to_the_error_output() -> None:
    graph = JobGraph("errors", errors=Files())
    graph.source(Given([])).map(str).key_by(str).count().sink(Files())
    plan = plan_of(graph)
    assert names(plan) == ["source-map-key_by", "count-sink", "errors"]
    assert edges(plan)[-1] == ("source-map-key_by", "errors", "rebalance", 1)
    assert plan.vertices[-1].parallelism == 1


def test_a_key_shared_by_several_steps_is_computed_once() -> None:
    graph = JobGraph("shared")
    keyed = graph.source(Given([1])).key_by(lambda value: value % 10)
    keyed.count().sink(Outbox())
    keyed.reduce(max).sink(Outbox())
    image = graph.compile(Options())
    assert [node.step for node in image.vertices[0].nodes] == ["source", "key_by"]


def test_a_long_chain_has_a_short_name() -> None:
    graph = JobGraph("long")
    stream: Any = graph.source(Given([]))
    for _ in range(20):
        stream = stream.map(str)
    assert names(plan_of(graph)) == ["source-to-map-20"]


def test_equal_graphs_have_equal_fingerprints_and_others_do_not() -> None:
    def fingerprint(size: str, parallelism: int, name: str) -> str:
        graph = JobGraph("prints")
        graph.source(Given([])).key_by(str).window(Tumbling(size)).count(name=name).sink(Outbox())
        return plan_fingerprint(graph.compile(Options(), parallelism=parallelism).plan)

    assert fingerprint("1s", 2, "count") == fingerprint("1000ms", 2, "count")
    jobs = [("1s", 2, "count"), ("2s", 2, "count"), ("1s", 3, "count"), ("1s", 2, "other")]
    assert len({fingerprint(*job) for job in jobs}) == 4


def test_a_resumed_job_keeps_the_splits_of_its_first_start() -> None:
    graph = JobGraph("resumed")
    graph.source(Given([1]), name="numbers").sink(Outbox())
    first = graph.compile(Options(), parallelism=2)
    assert graph.compile(Options(), parallelism=2, splits=first.splits).splits == first.splits
    with pytest.raises(BadSplits, match=r"no splits for \['numbers'\]"):
        graph.compile(Options(), splits={"others": [b""]})


def test_a_resumed_job_reads_no_file_that_its_source_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("line\n")
    graph = JobGraph("resumed")
    graph.source(files.lines(tmp_path / "*.txt"), name="lines").sink(Outbox())
    stored = graph.compile(Options()).splits
    (tmp_path / "in.txt").unlink()  # the split is looked at, not the file
    assert graph.compile(Options(), splits=stored).splits == stored
    for path in ("/etc/passwd", f"{tmp_path}/x/../../other.txt"):
        foreign = encode_split(msgspec.structs.replace(decode_split(stored["lines"][0]), path=path))
        with pytest.raises(UnexpectedInput, match=r"names '.*' as an input of files\.lines"):
            graph.compile(Options(), splits={"lines": (foreign,)})


def test_map_batches_on_rows_is_refused_when_the_plan_is_made() -> None:
    graph = JobGraph("rows")
    graph.source(ColumnsGiven([])).map_batches(lambda batch: batch).map(str).map_batches(lambda batch: batch)
    with pytest.raises(ColumnsNeeded, match="map_batches-2 works on columns, and map gives it rows"):
        plan_of(graph)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda graph: None, "has no source"),
        (lambda graph: graph.source("texts/*.txt"), "gets a str, which is not a source"),
        (lambda graph: graph.source(Given([])).sink("out/"), "gets a str, which is not a sink"),
        (lambda graph: graph.source(Given([])).sink(5), r"or immediate_writer\(\)"),
        (lambda graph: graph.source(Given([]), name="a b"), "cannot be the name of a source step"),
        (lambda graph: [graph.source(Given([]), name="a") for _ in range(2)], "has the name of another step"),
        (lambda graph: graph.source(Given([]), parallelism=0), "has the parallelism 0"),
        (lambda graph: graph.source(Given([]), parallelism=129), "has 129 tasks, but max_parallelism is 128"),
        (lambda graph: graph.source(Given([])).union(JobGraph("b").source(Given([]))), "joins streams of two jobs"),
        (lambda graph: graph.source(Given([])).process(str), "has no method process"),
        (lambda graph: graph.source(Given([])).key_by(str).window("5s"), "Give it a kind of window"),
    ],
)
def test_a_graph_that_cannot_run_is_refused_with_a_remedy(build: Any, message: str) -> None:
    graph = JobGraph("refused")
    with pytest.raises(InvalidJob, match=message):
        plan_of((build(graph), graph)[1])


def test_a_sink_of_two_streams_is_refused() -> None:
    graph = JobGraph("twice")
    sink = Files()
    source = graph.source(Given([]))
    source.sink(sink)
    with pytest.raises(InvalidJob, match="gets the sink of another step"):
        source.map(str).sink(sink)


def test_steps_with_a_hot_standby_share_no_vertex_with_sinks_and_effects() -> None:
    graph = JobGraph("hot")
    counts = graph.source(Given([]), name="read").key_by(len).count(name="count", standby="hot")
    counts.map(str, name="form").sink(Files(), name="files")
    counts.map(str, name="post", effects=True)
    plan = plan_of(graph)
    assert [(vertex.name, vertex.is_hot) for vertex in plan.vertices] == [
        ("read", False),
        ("count-form", True),
        ("files", False),
        ("post", False),
    ]
    assert plan.hot == frozenset({2, 3})


def test_a_hot_job_makes_every_eligible_step_hot() -> None:
    graph = JobGraph("hot")
    graph.source(Given([]), name="read").key_by(len).count(name="count").sink(Outbox())
    plan = graph.compile(Options(standby=StandbyKind.HOT), parallelism=1).plan
    assert [(vertex.name, vertex.is_hot) for vertex in plan.vertices] == [
        ("read", True),
        ("count", True),
        ("sink", False),
    ]


def test_a_single_step_can_be_declared_passive() -> None:
    graph = JobGraph("hot")
    graph.source(Given([]), name="read", standby="passive").key_by(len).count(name="count").sink(Outbox())
    plan = graph.compile(Options(standby=StandbyKind.HOT), parallelism=1).plan
    assert [vertex.name for vertex in plan.vertices if vertex.is_hot] == ["count"]


def test_a_step_that_cannot_have_a_hot_standby_is_refused_where_it_is_declared() -> None:
    stream = JobGraph("hot").source(Given([]))
    with pytest.raises(InvalidJob, match="has effects outside the job, and a hot standby would repeat them"):
        stream.map(str, effects=True, standby="hot")
    with pytest.raises(InvalidJob, match="has the standby 'warm'"):
        stream.map(str, standby="warm")  # type: ignore[arg-type]


def test_an_image_states_whether_its_processes_need_columns_and_which_sources_read_them() -> None:
    rows, columns = JobGraph("rows"), JobGraph("columns")
    rows.source(Given([])).map(str).sink(Outbox())
    columns.source(ColumnsGiven([])).map_batches(lambda batch: batch).rebalance().map(str).sink(Outbox())
    images = [graph.compile(Options(), parallelism=1) for graph in (rows, columns)]
    assert [image.has_columns for image in images] == [False, True]
    assert [[vertex.reads_columns for vertex in image.plan.vertices] for image in images] == [[False], [True, False]]


def test_a_source_with_timestamps_makes_watermarks_and_becomes_idle_by_its_option() -> None:
    def found(**arguments: Any) -> tuple[bool, bool]:
        graph = JobGraph("times")
        graph.source(Given([]), **arguments).sink(Files())
        (vertex, *_) = plan_of(graph).vertices
        return vertex.is_timed, vertex.becomes_idle

    assert found() == (False, False)
    assert found(timestamps=Timestamps("at")) == (True, False)
    assert found(timestamps=Timestamps("at", idle_after="1min")) == (True, True)


def test_a_step_with_timestamps_makes_no_source_with_watermarks() -> None:
    graph = JobGraph("times")
    graph.source(Given([])).with_timestamps(Timestamps("at", idle_after="1min")).sink(Files())
    assert plan_of(graph).timed_sources == ()


def test_a_timed_source_of_the_users_own_makes_watermarks() -> None:
    for idle_after_ns in (0, 1):
        graph = JobGraph("times")
        graph.source(Readings([[1]], idle_after_ns=idle_after_ns), parallelism=2).sink(Files())
        plan = plan_of(graph)
        assert plan.timed_sources == (0, 1)
        assert plan.vertices[0].becomes_idle is (idle_after_ns > 0)
