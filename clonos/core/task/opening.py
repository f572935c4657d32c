"""Opening of a task: its log, with what was recovered of it, and what its operators get (protocol 2 and 6)."""

from __future__ import annotations

from collections.abc import Callable

from clonos.core.model.ids import CheckpointId, TaskId
from clonos.core.model.options import OnDivergence, Options
from clonos.core.model.plan import Plan
from clonos.core.ports.operator_chain import ChainContext, Collector
from clonos.core.ports.task_port import Activation, Command, TaskPort
from clonos.core.task.record_or_replay import LogRules, Recovered, TaskLog


def open_log(
    plan: Plan,
    task: TaskId,
    options: Options,
    port: TaskPort,
    activation: Activation,
    take: Callable[[Command | None], None],
) -> TaskLog:
    """Returns the log of an incarnation, from the start of its restored epoch. ``take`` does what a command says."""
    name, vertex = plan.task_name(task), plan.vertices[plan.vertex_of[task]]
    rules = LogRules(
        name,
        f"{activation.job_id}/{activation.generation}/{name}",
        vertex.has_effects,
        options.clock_tick_ms,
        options.causal_logging,
        options.calls_ahead_max,
        accepts_divergence=options.on_divergence is OnDivergence.ACCEPT,
        tasks=vertex.parallelism,
    )
    snapshot = activation.snapshot
    restored = (snapshot.instant_ns, snapshot.metrics) if snapshot else ()
    recovered = Recovered(activation.log, activation.log_offset_bytes, *restored)
    await_more = (lambda: take(port.receive(None))) if activation.is_shadow else None
    return TaskLog(rules, port, recovered, await_more)


def chain_context(
    plan: Plan,
    task: TaskId,
    activation: Activation,
    inline_bytes_max: int,
    log: TaskLog,
    collector: Collector,
    has_input: Callable[[], bool],
) -> ChainContext:
    """Returns what the operators of an incarnation get when they are opened."""
    vertex = plan.vertex_of[task]
    return ChainContext(
        task_name=plan.task_name(task),
        vertex=vertex,
        index=plan.index_of(task),
        parallelism=plan.vertices[vertex].parallelism,
        max_parallelism=plan.max_parallelism,
        job_id=activation.job_id,
        generation=activation.generation,
        incarnation=activation.incarnation,
        recorder=log,
        collector=collector,
        local_folder=activation.local_folder,
        inline_bytes_max=inline_bytes_max,
        is_shadow=activation.is_shadow,
        has_input=has_input,
        receivers=plan.receivers[vertex],
        checkpoint=activation.snapshot.checkpoint if activation.snapshot else CheckpointId(0),
    )
