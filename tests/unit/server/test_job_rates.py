"""Rates of a job: of tasks and of the edges between vertices."""

from __future__ import annotations

from dataclasses import replace

from clonos.core.model.metric_series import MetricFamily, MetricSeries
from clonos.core.model.progress import TaskPhase
from clonos.core.task.latency import BOUNDS_S, END_TO_END
from clonos.server.job_api.documents import PlanDocument, PlanEdge, VertexDocument
from clonos.server.job_api.job_rates import JobRates
from clonos.status import Phase, Status, TaskState


def _plan(*edges: str) -> PlanDocument:
    names = dict.fromkeys(letter for edge in edges for letter in edge)
    vertices = [
        VertexDocument(name=name, steps=[name], tasks=1, is_source=name == "a", has_sink=False) for name in names
    ]
    return PlanDocument(
        steps=[], vertices=vertices, edges=[PlanEdge(source=edge[0], target=edge[1], exchange="hash") for edge in edges]
    )


def _status(**counters: dict[str, int]) -> Status:
    tasks = [TaskState(f"{name}/0", 1, 1, 2, "", TaskPhase.LIVE, found, 1, 1) for name, found in counters.items()]
    return Status("job", Phase.RUNNING, tasks=tuple(tasks))


def test_an_edge_has_the_rate_of_the_side_that_has_no_other_edge() -> None:
    rates = JobRates(_plan("ac", "bc", "cd", "ce"))
    names = "abcde"
    rates.add(_status(**{name: {"records_in": 0, "records_out": 0} for name in names}), 10.0)
    moved = {name: {"records_in": 10 * place, "records_out": 100 * place} for place, name in enumerate(names, 1)}
    rates.add(_status(**moved), 11.0)
    found = {edge.source + edge.target: edge.records_per_s for edge in rates.edges(_status(**moved))}
    assert found == {"ac": 100.0, "bc": 200.0, "cd": 40.0, "ce": 50.0}


def test_the_records_that_a_successor_restores_are_no_growth() -> None:
    rates = JobRates(_plan("ab"))
    rates.add(_status(a={"records_in": 1_000}), 10.0)
    (before,) = _status(a={}).tasks
    rates.add(Status("job", Phase.RUNNING, tasks=(replace(before, incarnation=2),)), 11.0)
    now = Status("job", Phase.RUNNING, tasks=(replace(before, incarnation=2, counters={"records_in": 5_000}),))
    rates.add(now, 12.0)
    assert rates.tasks(now)[0].rates.records_in_per_s == 0


def test_an_edge_between_several_outputs_and_several_inputs_has_no_known_rate() -> None:
    rates = JobRates(_plan("ac", "ad", "bc", "bd"))
    assert [edge.records_per_s for edge in rates.edges(_status(a={}, b={}, c={}, d={}))] == [None] * 4


def test_the_backlog_of_a_task_counts_for_its_only_input() -> None:
    status = _status(a={"watermark_ns": 5_000_000}, b={"backlog_elements": 7}, c={"backlog_bytes": 9})
    edges = JobRates(_plan("ab", "ac")).edges(status)
    assert [edge.backlog for edge in edges] == [7, 9]
    assert [edge.watermark for edge in edges] == ["1970-01-01T00:00:00.005Z"] * 2


def test_times_of_work_and_of_waiting_for_receivers_are_shares_that_make_at_most_the_whole() -> None:
    rates = JobRates(_plan("ab"))
    rates.add(_status(a={"busy_us": 0, "blocked_us": 0}), 10.0)
    now = _status(a={"busy_us": 700_000, "blocked_us": 900_000})
    rates.add(now, 11.0)
    (task,) = rates.tasks(now)
    assert (task.rates.busy_ratio, task.rates.backpressure_ratio) == (0.7, 0.3)


def test_a_busy_task_that_gets_most_records_of_a_keyed_step_is_named_with_its_hot_key() -> None:
    rates = JobRates(_plan("ab"))

    def status(records: int, busy_us: int) -> Status:
        hot = TaskState("b/0", 1, 1, 2, "", TaskPhase.LIVE, {"records_in": 9 * records, "busy_us": busy_us}, 1, 1)
        cold = replace(hot, name="b/1", counters={"records_in": records, "busy_us": 0})
        return Status("job", Phase.RUNNING, tasks=(replace(hot, hot_key="'ann'", hot_key_share=0.5), cold))

    rates.add(status(0, 0), 10.0)
    rates.add(status(100, 800_000), 11.0)
    assert rates.skew(status(100, 800_000)) == [
        "b/0 gets 90% of the records of b, the key 'ann' alone 45%; where the step aggregates,"
        " split_hot_keys=True divides it, else take a finer key"
    ]


def test_a_counter_that_starts_again_with_an_incarnation_makes_no_negative_rate() -> None:
    rates = JobRates(_plan("ab"))
    rates.add(_status(a={"records_out": 500}), 10.0)
    later = Status(
        "job", Phase.RUNNING, tasks=(TaskState("a/0", 2, 1, 2, "", TaskPhase.LIVE, {"records_out": 20}, 1, 1),)
    )
    rates.add(later, 11.0)
    assert rates.tasks(later)[0].rates.records_out_per_s == 0.0


def test_the_latency_is_that_of_the_last_seconds_at_the_last_tasks_from_the_first_sample_on() -> None:
    rates = JobRates(_plan("ab"))

    def sampled(now_s: float, quick: int, slow: int) -> dict[str, float]:
        counts = [0.0] * (len(BOUNDS_S) + 1)
        counts[BOUNDS_S.index(0.01)], counts[BOUNDS_S.index(1.0)] = quick, slow
        last = MetricFamily(END_TO_END, (MetricSeries((), (0.0, *counts)),))
        other = MetricFamily(END_TO_END, (MetricSeries((), (0.0, *[9.0] * len(counts))),))  # of a task in the middle
        tasks = [
            TaskState(f"{name}/0", 1, 1, 2, "", TaskPhase.LIVE, {}, 1, 1, latencies=(found,))
            for name, found in (("a", other), ("b", last))
        ]
        rates.add(Status("job", Phase.RUNNING, tasks=tuple(tasks)), now_s)
        return rates.latencies_ms()

    assert sampled(0.0, 100, 0) == {"latency_ms_p50": 7.5, "latency_ms_p99": 9.95}
    for second in range(1, 6):
        assert sampled(float(second), 100, 100)["latency_ms_p99"] > 900
    assert sampled(6.0, 100, 200) == {"latency_ms_p50": 750.0, "latency_ms_p99": 995.0}
    assert [sampled(float(second), 100, 200) for second in range(7, 12)][-1] == {}, "nothing has come for a while"
