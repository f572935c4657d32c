"""Random options of a world's job, drawn from its seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from clonos.core.model.options import Options, SpillPolicy
from clonos.core.model.plan import Plan


def draw_hot(plan: Plan, rng: Random) -> Plan:
    """Gives hot standbys to some steps, of those that may have them, in every second world."""
    if rng.random() < 0.5:
        return plan
    drawn = [replace(vertex, is_hot=vertex.may_be_hot and rng.random() < 0.7) for vertex in plan.vertices]
    return replace(plan, vertices=tuple(drawn))


def draw_options(rng: Random) -> Options:
    """Draws random options of the job."""
    drawn = Options(
        move_tasks=True,
        heartbeat_ms=rng.choice((20, 100)),
        lease_ms=rng.choice((500, 2_000)),
        checkpoint_every_ms=rng.choice((30, 100, 300)),
        standbys=rng.choice((0, 1, 1, 1, 2)),
        step_records_max=rng.choice((1, 3, 8, 64)),
        step_records_first=rng.choice((1, 3, 8)),
        credit_window_bytes=rng.choice((1, 500, 1 << 20)),
        channel_delay_ms=rng.choice((5, 200)),
        snapshot_chain_max=rng.choice((1, 3, 16)),
        failures_per_epoch_max=1_000,
        move_timeout_ms=rng.choice((1, 20, 10_000)),
        clock_tick_ms=rng.choice((0, 0, 0, 5)),
    )
    is_lazy = drawn.snapshot_chain_max == 3  # most of a state is then encoded while the task continues
    return replace(drawn, snapshot_inline_bytes=64) if is_lazy else drawn


def draw_calls_ahead(options: Options, seed: int) -> Options:
    """Makes logs grow at each recorded call in every second world, in others with the step; a separate stream."""
    return replace(options, calls_ahead_max=Random(f"calls ahead of {seed}").choice((1, 1, 2, 32)))


DRIFTS_NS = {
    **dict.fromkeys(("timed", "joined", "windows"), (0, 0, 0, 20, 200, 5_000_000)),
    **dict.fromkeys(("graphs", "aggregates"), (0, 0, 20, 5_000_000, 50_000_000)),
}
"""Limits of the drift for topologies whose sources make watermarks; a record is at most 1 ms later than the last."""


def draw_separately(options: Options, seed: int, topology: str) -> Options:
    """Draws options that have come later, from streams of their own: other draws do not depend on them."""
    options = draw_calls_ahead(options, seed)
    if topology not in DRIFTS_NS:
        return options
    drift_ns = Random(f"drift of {seed}").choice(DRIFTS_NS[topology])
    return replace(options, watermark_drift_max_ns=drift_ns)


def draw_budgets(options: Options, rng: Random) -> Options:
    """Makes the in-flight logs of every second world spill; in some, soft limits are reached.

    Budgets are not smaller than that, because the barriers of pending checkpoints alone would fill them.
    """
    if rng.random() < 0.5:
        return options
    return replace(
        options,
        spill_policy=rng.choice(tuple(SpillPolicy)),
        inflight_memory_bytes=rng.choice((6_000, 12_000, options.inflight_memory_bytes)),
    )
