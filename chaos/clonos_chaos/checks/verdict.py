"""Oracle of a job's output: rows of immediate and transactional sinks, calls of the service, alarms."""

from __future__ import annotations

from collections import Counter
from typing import Any

from clonos.core.model.options import OnDivergence
from clonos_chaos.checks.oracle import Oracle
from clonos_chaos.jobs.api_jobs import ApiJob
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_chaos.jobs.keyed_jobs import KeyedJob
from clonos_chaos.sim.external_systems import SimAsked
from clonos_chaos.sim.sim_cluster import SimCluster


def complaints_of(world: SimCluster, oracle: Oracle) -> list[str]:
    """Returns what is wrong with the output of a job that has ended well; empty when nothing is."""
    if world.expects_divergence and world.options.on_divergence is OnDivergence.ACCEPT:  # state and output may disagree
        warned = [text for text, _ in world.warnings if "because on_divergence is accept" in text]
        return [] if warned else ["a divergence was accepted, and no alarm says so"]
    immediate = [row for external in world.externals.every for row in external.rows]
    transactional = [row for rows in world.committed.values() for row in rows]
    for external in world.externals.every:
        external.compare()
    complaints = [text for external in world.externals.every for text in external.complaints]
    if world.externals:
        complaints += _counted_wrongly(world, "immediate", immediate)
    if any(vertex.is_transactional for vertex in world.plan.vertices):
        complaints += _counted_wrongly(world, "transactional", transactional)
    if world.outcome.rollbacks and not all(external.withdraws for external in world.externals.every):
        # Output from before the rollback may differ from what the next generation has drawn; other output may not.
        complaints += contradictions(transactional, isinstance(world.job, KeyedJob))
    else:
        complaints += contradictions([*immediate, *transactional], isinstance(world.job, KeyedJob))
    complaints += _never_given(world, [*immediate, *transactional])
    complaints += _results_wrong(world, [*immediate, *transactional])
    complaints += _asked_wrongly(world, oracle)
    complaints += _alarms_missing(world)
    alarms = [fields for _, fields in world.warnings]
    complaints += world.job.complaints(alarms, oracle.survival.effects_exposed)
    return complaints


def _counted_wrongly(world: SimCluster, sink: str, rows: list[Any]) -> list[str]:
    """Checks that every input has its effect once on every path."""
    if isinstance(world.job, ApiJob) and not world.job.counts_rows:
        return []
    counted = Counter(row[0] for row in rows)
    copies, expected = world.job.copies, world.job.expected()
    wrong = {offset: counted[offset] for offset in expected if counted[offset] != copies}
    strange = [offset for offset in counted if offset not in expected]
    if wrong or strange:
        return [f"{sink} sink: offsets {wrong} instead of {copies} times each, strange {strange}"]
    return []


def contradictions(rows: list[Any], is_keyed: bool = False) -> list[str]:
    """Returns draws of a vertex for one offset that differ between paths, and states that were reached twice; by any
    task where the state is keyed."""
    drawn: dict[tuple[Any, ...], Any] = {}
    found = []
    for offset, lineage, *_ in rows:
        path: tuple[int, ...] = ()
        for vertex, task, *values in lineage:
            path = (*path, vertex)
            known = drawn.setdefault((offset, path), (task, values))
            if known != (task, values):
                found.append(f"offset {offset} at {path}: {known} and {(task, values)}")
    states: dict[tuple[Any, ...], Any] = {}
    for place, (task, values) in drawn.items():
        offset, path = place
        state = (path[-1], 0 if is_keyed else task, offset % KEYS, values[0])
        if states.setdefault(state, place) != place:
            found.append(f"state {state} was reached by two records: {states[state]} and {place}")
    return found


def _never_given(world: SimCluster, rows: list[Any]) -> list[str]:
    """Checks that every visible answer was given to exactly this question."""
    given = {asked.answer: asked.question for asked in world.job.service.answers}
    found = []
    for offset, lineage, *_ in rows:
        path: tuple[int, ...] = ()
        for vertex, _, _, _, _, answer in lineage:
            question = given.get(answer, ())
            if answer and question != (vertex, offset, path)[: max(2, len(question))]:
                found.append(f"answer {answer} for offset {offset} at {vertex} was given to {question}")
            path = (*path, vertex)
    return found


def _results_wrong(world: SimCluster, rows: list[Any]) -> list[str]:
    """Checks that rows left their windows and aggregates as the twin of the job says."""
    return world.job.complaints_of_rows(rows) if isinstance(world.job, ApiJob | KeyedJob) else []


def _asked_wrongly(world: SimCluster, oracle: Oracle) -> list[str]:
    """Checks how often the service was asked the same question, and with which key."""
    calls: dict[tuple[Any, int], list[SimAsked]] = {}
    for asked in world.job.service.answers:
        if asked.task_name:
            calls.setdefault((asked.question, asked.generation), []).append(asked)
    named = {world.plan.task_name(task): lives for task, lives in oracle.incarnations.items()}
    lives = {name: len(lives) for name, lives in (oracle.retired | named).items()}
    exposed = oracle.survival.exposed_before | set(map(world.plan.task_name, oracle.survival.effects_exposed))
    found = []
    for (question, generation), asked_all in calls.items():
        names = sorted({asked.task_name for asked in asked_all})  # a row that was not replicated may take another path
        name, most = " or ".join(names), sum(lives[one] for one in names)
        if len(asked_all) > most:
            found.append(f"{name} has asked {question} {len(asked_all)} times in {most} lives")
        if len({(asked.task_name, asked.life) for asked in asked_all}) < len(asked_all):
            found.append(f"{name} has asked {question} twice in one life")
        if not asked_all[0].is_effect or exposed.intersection(names):
            continue
        if sum(not asked.is_in_doubt for asked in asked_all) > 1:
            found.append(f"{name} has made the call {question} twice in generation {generation}, not being in doubt")
        if any(
            asked.is_in_doubt and (asked.task_name, asked.life[0]) in oracle.situations.moved for asked in asked_all
        ):
            found.append(f"{name} has moved while its call {question} was under way")
        if any(
            asked.is_reconciled and asked.key in {one.key for one in asked_all[:n]} for n, asked in enumerate(asked_all)
        ):
            found.append(
                f"{name} has made the call {question} again, although the service knew its outcome: {asked_all}"
            )
        if len({asked.key for asked in asked_all}) > 1:
            found.append(f"{name} has repeated the call {question} with another key: {asked_all}")
    return found


def _alarms_missing(world: SimCluster) -> list[str]:
    """Checks for an alarm with the exact numbers of output that an immediate sink wrote after a restored checkpoint."""
    alarms = {
        (fields["name"], fields["first"], fields.get("next")) for _, fields in world.warnings if "first" in fields
    }
    return [
        f"{external.task_name}: output from {first} to below {following} may leave again, and no alarm says so"
        for external in world.externals.every
        for first, following in external.alarms_due
        if (external.task_name, first, following) not in alarms
    ]
