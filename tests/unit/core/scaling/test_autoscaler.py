"""The autoscaler against a simulated job: what it decides, how often, and what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from clonos.core.scaling.autoscaler import (
    AskedWidths,
    Autoscaler,
    ScalingDirection,
    ScalingGroup,
    ScalingMemory,
    ScalingPolicy,
    ScalingSettings,
)
from clonos.core.scaling.load import Load
from tests.unit.core.scaling.curves import CURVES, Curve, random_case
from tests.unit.core.scaling.plant import Plant, PlantVertex, Run, run_plant

BOUNDS = {"read": (1, 64), "count": (1, 64), "write": (1, 64)}
COUNT_PER_S = 2_000  # that one task of count can take
SLICES, CURVES_OF_SLICE = 4, 25
"""100 of the 1,000 that were run when the rules were made."""


def job(count: PlantVertex | None = None, arrivals: float | Curve = 5_000.0, reports_lag: bool = True) -> Plant:
    """Returns a job whose step ``count`` has most of the work."""

    def curve(at_s: float) -> float:
        return arrivals(at_s) if callable(arrivals) else arrivals

    middle = count or PlantVertex("count", 1e6 / COUNT_PER_S)
    return Plant((PlantVertex("read", 20), middle, PlantVertex("write", 100)), curve, reports_lag)


def changes_within_an_hour(run: Run) -> int:
    """Returns the most changes in any hour."""
    times = [at_s for at_s, _, _ in run.changes]
    return max((sum(at_s - 3_600 < other <= at_s for other in times) for at_s in times), default=0)


def check_curve(seed: int) -> Run:
    """Runs the case of a seed and checks what must hold for each."""
    case = random_case(seed)
    run = run_plant(case.plant, case.seconds, BOUNDS)
    assert changes_within_an_hour(run) <= 6, (seed, case.name)
    assert all(1 <= width <= 64 for _, _, widths in run.changes for width in widths.values()), (seed, case.name)
    if case.is_scalable:
        seconds_behind = max(lag for _, lag in run.lags) / case.rate_max
        assert seconds_behind < 300, (seed, case.name)
        assert run.lags[-1][1] < 60 * case.rate_max, (seed, case.name)
    return run


def decided_again(run: Run) -> list[object]:
    """Returns what another autoscaler decides on the same loads, whatever somebody does with it."""
    autoscaler, memory = Autoscaler(run.plant.plan, groups_of(run.plant), ScalingSettings()), ScalingMemory()
    found: list[object] = []
    for load in run.loads:
        memory, decision = autoscaler.step(memory, load)
        found.append(decision)
    return found


def groups_of(plant: Plant) -> tuple[ScalingGroup, ...]:
    """Returns a group for each vertex."""
    return tuple(ScalingGroup(vertex.name, (number,), 1, 64) for number, vertex in enumerate(plant.vertices))


def test_lag_and_changes_stay_bounded_and_a_dry_run_decides_alike_under_each_kind_of_load() -> None:
    for seed in range(len(CURVES)):
        run = check_curve(seed)
        assert decided_again(run) == run.decisions


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SLICES * CURVES_OF_SLICE, CURVES_OF_SLICE))
def test_lag_and_changes_stay_bounded_under_random_loads(first: int) -> None:
    for seed in range(first, first + CURVES_OF_SLICE):
        check_curve(seed)


@pytest.mark.parametrize("ends_s", [4_000, 4_005, 4_010, 4_015])
def test_a_load_that_grows_tenfold_and_falls_again_takes_three_changes_up_and_two_down_at_most(ends_s: int) -> None:
    run = run_plant(job(arrivals=lambda at_s: 10_000 if 1_200 <= at_s < ends_s else 1_000), 7_200, BOUNDS)
    assert run.count(grows=True) <= 3
    assert run.count(grows=False) <= 2
    last_up_s = max(at_s for at_s, before, after in run.changes if sum(after.values()) > sum(before.values()))
    assert all(lag == 0 for at_s, lag in run.lags if last_up_s + 120 + 30 <= at_s)
    assert run.plant.widths == {"read": 1, "count": 1, "write": 1}


@pytest.mark.parametrize("low", [1_000, 10_000])
def test_a_rise_by_ten_within_an_hour_takes_no_more_changes_than_an_hour_has_and_leaves_no_lag(low: int) -> None:
    plant = job(arrivals=lambda at_s: low * (1 + 9 * min(1.0, at_s / 3_600)))
    plant.rescale({"count": low // 1_000, "write": max(1, low // 5_000)})
    run = run_plant(plant, 5_400, {"read": (1, 64), "count": (1, 128), "write": (1, 64)})
    assert run.count(grows=True) <= 6
    assert max(lag for _, lag in run.lags) == 0


def test_a_step_that_needs_more_tasks_soon_gets_them_with_the_others() -> None:
    steps = (PlantVertex("read", 20), PlantVertex("count", 500), PlantVertex("write", 350))
    plant = Plant(steps, lambda at_s: 4_000 * (1 + 9 * min(1.0, at_s / 3_600)))
    plant.rescale({"count": 4, "write": 3})
    run = run_plant(plant, 5_400, {"count": (1, 128), "write": (1, 128)})
    assert len(run.changes) == 5
    assert all(
        after["count"] > before["count"] and after["write"] > before["write"] for _, before, after in run.changes
    )


@pytest.mark.parametrize("begins_s", [1_000, 1_015, 1_025])
def test_a_spike_of_a_few_seconds_changes_nothing(begins_s: int) -> None:
    run = run_plant(job(arrivals=lambda at_s: 10_000 if begins_s <= at_s < begins_s + 5 else 1_000), 2_400, BOUNDS)
    assert not run.changes
    assert run.lags[-1][1] == 0


@pytest.mark.parametrize("period_s", [30, 60, 90, 600, 1_440])
def test_a_load_that_flaps_takes_few_changes(period_s: int) -> None:
    run = run_plant(job(arrivals=lambda at_s: 8_000 if at_s % period_s < period_s / 2 else 500), 14_400, BOUNDS)
    assert changes_within_an_hour(run) <= 5
    assert run.lags[-1][1] < 300 * 8_000


def test_fewer_tasks_that_did_not_suffice_are_not_tried_again_soon() -> None:
    run = run_plant(job(arrivals=lambda at_s: 8_000 if at_s % 1_440 < 720 else 500), 14_400, BOUNDS)
    downs = [at_s for at_s, before, after in run.changes if sum(after.values()) < sum(before.values())]
    assert all(later - earlier > 1_800 for earlier, later in pairwise(downs))


def test_one_key_that_fills_a_task_is_named_and_gets_no_further_tasks() -> None:
    run = run_plant(job(PlantVertex("count", 500, hot_key_share=0.6)), 3_600, BOUNDS)
    assert run.count(grows=True) == 1  # the other keys get tasks of their own
    assert run.plant.widths["count"] == 3
    assert run.last_sentence("count") == (
        "3 tasks: more are needed, but they do not help: the key 'ann' alone takes 82% of the time of one task"
        "; where the step aggregates, split_hot_keys=True divides it, else take a finer key"
    )


def test_tasks_that_do_not_help_are_given_back_and_not_tried_again_for_a_time_that_doubles() -> None:
    run = run_plant(job(PlantVertex("count", 500, external_per_s=3_000)), 14_400, {"count": (1, 64)})
    assert run.plant.widths["count"] == 2  # what 3,000 records/s need
    ups = [at_s for at_s, before, after in run.changes if after["count"] > before["count"]]
    waited = [later - earlier for earlier, later in pairwise(ups)]
    assert waited == sorted(waited)
    assert [seconds // 1_800 for seconds in waited] == [1, 2, 4]
    assert run.last_sentence("count").endswith(
        "each task does less than before, so something outside of the job limits them together"
    )


def test_on_full_hosts_no_step_gets_more_tasks() -> None:
    run = run_plant(job(PlantVertex("count", 500, processors=2)), 3_600, BOUNDS)
    assert run.count(grows=True) == 1
    assert run.last_sentence("count") == "4 tasks: more are needed, but the processors of its hosts are full"


def test_no_step_gets_more_tasks_than_a_step_at_its_bound_lets_through() -> None:
    run = run_plant(job(arrivals=20_000), 3_600, BOUNDS | {"count": (1, 2)})
    assert run.plant.widths == {"read": 1, "count": 2, "write": 1}
    assert run.last_sentence("count") == "2 tasks: more are needed, but 2 is the most that it may have"


@pytest.mark.parametrize(("splits", "words"), [(1, ("1 task", "1 split")), (3, ("3 tasks", "3 splits"))])
def test_a_source_gets_no_more_tasks_than_it_has_splits(splits: int, words: tuple[str, str]) -> None:
    run = run_plant(job(PlantVertex("count", 1), arrivals=400_000), 3_600, BOUNDS, splits={"read": splits})
    assert run.plant.widths["read"] == splits
    assert run.last_sentence("read") == f"{words[0]}: more are needed, but the source has only {words[1]}"


def test_without_lag_what_blocks_the_source_gets_more_tasks() -> None:
    run = run_plant(job(reports_lag=False), 1_800, BOUNDS)
    assert run.plant.widths["count"] == 4
    assert run.lags[-1][1] == 0


def test_a_dry_run_advises_what_a_real_run_does_first() -> None:
    real = run_plant(job(), 600, BOUNDS)
    dry = run_plant(job(), 600, BOUNDS, is_dry=True)
    first_s, before, after = real.changes[0]
    wanted = next(decision.widths for decision in dry.decisions if decision.widths)
    assert before | wanted == after
    assert dry.decisions[first_s // 30 - 1] == real.decisions[first_s // 30 - 1]
    assert dry.decisions[-1].widths["count"] == wanted["count"], "it goes on to say so"
    assert not dry.changes


# ---------------------------------------------------------------------- policies


def test_the_policy_of_throughput_leaves_lag_to_what_is_spare() -> None:
    def arrivals(at_s: float) -> float:
        return 300_000 if not at_s else 1_300

    lag = run_plant(job(arrivals=arrivals), 600, BOUNDS)
    throughput = run_plant(job(arrivals=arrivals), 600, BOUNDS, ScalingSettings(policy=ScalingPolicy.THROUGHPUT))
    assert lag.changes
    assert not throughput.changes


def test_the_policy_of_latency_adds_a_task_where_the_busiest_works_until_the_target_is_met() -> None:
    settings = ScalingSettings(policy=ScalingPolicy.LATENCY, latency_target_ms=100)
    plant = job(arrivals=1_000)
    autoscaler, memory = Autoscaler(plant.plan, groups_of(plant), settings), ScalingMemory()
    loads = run_plant(plant, 120, BOUNDS).loads
    widths = []
    for load, latency_ms in zip(loads, (50, 150, 150, 90), strict=True):
        memory, decision = autoscaler.step(memory, replace(load, latency_ms=latency_ms))
        widths.append(decision.widths)
    assert widths == [{}, {}, {"count": 2}, {}]


def decided(asked: Iterable[int | None], memory: ScalingMemory, load: Load, group: ScalingGroup) -> list[str]:
    """Returns what is said about a step over windows with the same load, while a function asks for widths."""
    autoscaler, found = Autoscaler(job().plan, (group,), ScalingSettings()), []
    for window, width in enumerate(asked):
        widths = {} if width is None else {group.name: width}
        now = replace(load, end_ns=load.end_ns + window * 30_000_000_000)
        memory, decision = autoscaler.step(memory, now, AskedWidths("decide", widths))
        found.append(decision.advice[0].sentence)
    return found


def test_a_users_function_gives_the_widths_at_once_within_the_bounds() -> None:
    load, group = loads_of(job(), 60)[0], ScalingGroup("count", (1,), 1, 8)
    assert decided((4, 12, 0, 1, None), ScalingMemory(), load, group) == [
        "1 task to 4: decide asks for 4",
        "1 task to 8: decide asks for 12, and 8 is the most that it may have",
        "1 task: decide asks for 0, but 1 is the fewest that it may have",
        "1 task is what decide asks for",
        "1 task: decide asks for no change",
    ]
    few_splits = replace(group, splits=3)
    assert decided((4,), ScalingMemory(), load, few_splits) == [
        "1 task to 3: decide asks for 4, and the source has only 3 splits"
    ]


def test_refusals_and_the_limit_of_changes_hold_for_a_users_function() -> None:
    load, group = loads_of(job(), 60)[0], ScalingGroup("count", (1,), 1, 8)
    autoscaler = Autoscaler(job().plan, (group,), ScalingSettings())
    memory, decision = autoscaler.step(ScalingMemory(), load, AskedWidths("decide", {"count": 4}))
    refused = autoscaler.after_refusal(memory, decision.widths, load.end_ns, "no slot came")
    later = replace(load, end_ns=load.end_ns + 30_000_000_000)
    assert decided((4,), refused, later, group) == [
        "1 task: decide asks for 4, but the change was not made: no slot came"
    ]
    often = replace(memory, changes_ns=(1, 2, 3, 4, 5, 6))
    assert decided((4,), often, later, group) == [
        "1 task: decide asks for 4, but the job has changed 6 times in the last hour"
    ]
    wide = replace(load, vertices={**load.vertices, "count": replace(load.vertices["count"], width=4)})
    half = ScalingMemory(changes_ns=(1, 2, 3))
    assert decided((2, 5), half, wide, group) == [
        "4 tasks: decide asks for 2, but the job has changed 3 times in the last hour",
        "4 tasks to 5: decide asks for 5",
    ]


@pytest.mark.parametrize(("width_max", "needed"), [(8, 4), (2, 3)])
def test_the_needed_width_of_a_load_is_above_a_bound_that_is_too_low(width_max: int, needed: int) -> None:
    plant = job()
    autoscaler = Autoscaler(plant.plan, (ScalingGroup("count", (1,), 1, width_max),), ScalingSettings())
    assert autoscaler.needed(ScalingMemory(), loads_of(plant, 60)[0]) == {"count": needed}


# ---------------------------------------------------------------------- what it remembers


def loads_of(plant: Plant, seconds: int) -> list[Load]:
    """Returns the loads of a job that nobody scales."""
    return run_plant(plant, seconds, BOUNDS, is_dry=True).loads


def test_windows_with_a_recovery_between_them_do_not_count_as_two_in_a_row() -> None:
    plant = job()
    autoscaler, memory = Autoscaler(plant.plan, groups_of(plant), ScalingSettings()), ScalingMemory()
    first, _, third, fourth = loads_of(plant, 120)
    widths = []
    for load in (first, third, fourth):
        memory, decision = autoscaler.step(memory, load)
        widths.append(bool(decision.widths))
    assert widths == [False, False, True]


def test_a_change_that_was_refused_is_asked_for_again_after_ten_minutes() -> None:
    plant = job()
    autoscaler, memory = Autoscaler(plant.plan, groups_of(plant), ScalingSettings()), ScalingMemory()
    asked_s, sentences = [], []
    for load in loads_of(plant, 1_200):
        memory, decision = autoscaler.step(memory, load)
        sentences.append(decision.advice[1].sentence)
        if decision.widths:
            asked_s.append(load.end_ns // 1_000_000_000)
            memory = autoscaler.after_refusal(memory, decision.widths, load.end_ns, "there is no further slot")
    first_s, second_s = asked_s
    assert 600 <= second_s - first_s <= 700
    assert sentences[-1] == "1 task: more are needed, but the change was not made: there is no further slot"


def test_a_change_that_another_one_delayed_does_not_count_and_is_asked_for_in_the_next_window() -> None:
    plant = job()
    autoscaler, memory = Autoscaler(plant.plan, groups_of(plant), ScalingSettings()), ScalingMemory()
    asked = []
    for load in loads_of(plant, 300):
        memory, decision = autoscaler.step(memory, load)
        asked.append(bool(decision.widths))
        if decision.widths:
            memory = autoscaler.after_delay(memory)
    assert asked == [False] + [True] * 9
    assert memory.changes_ns == ()


def test_a_change_that_a_failure_ended_is_asked_for_in_the_next_window_and_counts() -> None:
    plant = job()
    autoscaler, memory = Autoscaler(plant.plan, groups_of(plant), ScalingSettings()), ScalingMemory()
    asked = []
    for load in loads_of(plant, 300):
        memory, decision = autoscaler.step(memory, load)
        asked.append(bool(decision.widths))
        if decision.widths:
            memory = autoscaler.after_interruption(memory, load.end_ns)
    assert asked == [False] + [True] * 6 + [False] * 3, "an hour has six changes"


def test_changes_that_were_refused_count() -> None:
    plant = job()
    autoscaler, memory = Autoscaler(plant.plan, groups_of(plant), ScalingSettings(refused_s=0.0)), ScalingMemory()
    asked, sentence = 0, ""
    for load in loads_of(plant, 1_200):
        memory, decision = autoscaler.step(memory, load)
        sentence = decision.advice[1].sentence
        if decision.widths:
            asked += 1
            memory = autoscaler.after_refusal(memory, decision.widths, load.end_ns, "there is no further slot")
    assert asked == 6
    assert sentence == "1 task: more are needed, but the job has changed 6 times in the last hour"


def test_a_change_by_hand_counts_and_opens_what_was_closed() -> None:
    plant = job(PlantVertex("count", 500, external_per_s=3_000))
    run = run_plant(plant, 600, {"count": (1, 64)})
    autoscaler, memory = (
        Autoscaler(plant.plan, (ScalingGroup("count", (1,), 1, 64),), ScalingSettings()),
        ScalingMemory(),
    )
    for load in run.loads:
        memory, _ = autoscaler.step(memory, load)
    assert memory.groups["count"].closed.keys() == {ScalingDirection.UP}
    last = run.loads[-1]
    by_hand = replace(
        last,
        end_ns=last.end_ns + 30_000_000_000,
        vertices={**last.vertices, "count": replace(last.vertices["count"], width=5)},
    )
    after, _ = autoscaler.step(memory, by_hand)
    assert not after.groups["count"].closed
    assert len(after.changes_ns) == len(memory.changes_ns) + 1


def test_the_second_half_of_the_changes_of_an_hour_is_for_more_tasks_alone() -> None:
    plant = job(arrivals=0.0)
    plant.rescale({"count": 8})
    autoscaler, memory = (
        Autoscaler(plant.plan, groups_of(plant), ScalingSettings()),
        ScalingMemory(changes_ns=(1, 2, 3)),
    )
    sentences = []
    for load in loads_of(plant, 900):
        memory, decision = autoscaler.step(memory, load)
        assert not decision.widths
        sentences.append(decision.advice[1].sentence)
    assert sentences[-1] == "8 tasks: 1 would do, but the job has changed 3 times in the last hour"


def test_a_step_that_is_short_at_its_bound_keeps_no_other_from_having_fewer_tasks() -> None:
    plant = job()
    plant.rescale({"write": 8})
    run = run_plant(plant, 1_800, BOUNDS | {"count": (1, 1)})
    assert run.plant.widths == {"read": 1, "count": 1, "write": 1}


def test_an_idle_job_goes_down_to_its_bounds() -> None:
    plant = job(arrivals=0.0)
    plant.rescale({"count": 8, "write": 6})
    run = run_plant(plant, 3_600, BOUNDS | {"write": (2, 64)})
    assert plant.widths == {"read": 1, "count": 1, "write": 2}
    assert run.count(grows=False) == 2


def test_a_job_that_processes_nothing_while_more_waits_is_left_alone() -> None:
    run = run_plant(job(PlantVertex("count", 500, external_per_s=1e-9)), 900, BOUNDS)
    assert not run.changes
    assert run.last_sentence("count") == "1 task: nothing is processed while more waits, so nothing can be told"


def test_the_settings_have_no_latency_target_unless_one_is_set() -> None:
    assert ScalingSettings().latency_target_ms == inf
