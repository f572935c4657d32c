"""Options of a scenario that its simulated twin follows. The report lists the options that it ignores."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Final

from clonos.config import resolve_keywords
from clonos.core.model.errors import JobError
from clonos.core.model.options import Options, StandbyKind
from clonos.core.model.plan import Plan
from clonos_chaos.scenario.scenario import Scenario
from clonos_chaos.scenario.scenario_job import described
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS
from clonos_chaos.sim.world_settings import WorldSettings
from clonos_chaos.swarm.quick_worlds import OPTIONS, SETTINGS

SHARE: Final = 10
"""Ratio of the real job's records, and of its memory for them, to those of the twin."""

STEP_NS_MAX: Final = 20 * MILLISECOND_NS
"""Step time, slow enough that the input lasts for several checkpoints."""

SAME_MEANING: Final = ("standbys", "keepers", "sharing_depth", "spill_policy", "step_records_max", "step_records_first")
"""Options with the same meaning in the twin."""

IN_THE_PLAN: Final = ("standby",)
SCALED: Final = {"inflight_memory": "inflight_memory_bytes"}
OF_THE_CLUSTER: Final = ("domains", "spare_slots")
KNOWN: Final = (*SAME_MEANING, *IN_THE_PLAN, *SCALED, *OF_THE_CLUSTER)


def options_of(scenario: Scenario) -> tuple[Options, WorldSettings]:
    """Returns the options of the world and its cluster. Raises JobError: an option does not exist."""
    given = scenario.options
    settled = resolve_keywords(given)
    try:
        signature(described).bind(Path(), "", **scenario.job_options)
    except TypeError as error:
        raise JobError(f"the job 'described' does not take these job_options: {error}.") from None
    changed = {key: getattr(settled.core, key) for key in SAME_MEANING if key in given}
    changed |= {name: getattr(settled.core, name) // SHARE for key, name in SCALED.items() if key in given}
    options = replace(OPTIONS, lease_ms=1_500, checkpoint_every_ms=10, **changed)
    cluster = {key: getattr(settled.run, key) for key in OF_THE_CLUSTER if given.get(key)}
    return options, replace(SETTINGS, step_ns_max=STEP_NS_MAX, **cluster)


def with_hot_standbys(scenario: Scenario, plan: Plan) -> Plan:
    """Returns the plan with ``standby = "hot"``: each step that may have a hot standby has one."""
    if resolve_keywords(scenario.options).core.standby is not StandbyKind.HOT:
        return plan
    return replace(plan, vertices=tuple(replace(vertex, is_hot=vertex.may_be_hot) for vertex in plan.vertices))


def ignored_options(scenario: Scenario) -> str:
    """Returns a remark about options without meaning in virtual time; empty if there are none."""
    unknown = [key for key in scenario.options if key not in KNOWN]
    return f"ignored by the simulated twin: the options {', '.join(unknown)}" if unknown else ""
