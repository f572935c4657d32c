"""Simulated world that runs a user's job, judged by checks that apply to every job."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from clonos.core.checkpoint.checkpoint_metadata import VertexParts
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import ChannelId
from clonos.core.model.options import Options
from clonos.core.model.suspect import likely_cause
from clonos.core.task.divergence import OTHER_OUTPUT
from clonos.operators.chain_outputs import CombinedSinks
from clonos.operators.connector_contract import TransactionalSink
from clonos_chaos.sim.external_systems import JOB_ID
from clonos_chaos.sim.random_faults import FaultRng
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, SECOND_NS
from clonos_chaos.sim.world_settings import KINDS, SHORT_PAUSE, DiskEnvironment, WorldOutcome, WorldSettings
from clonos_chaos.swarm.random_options import draw_budgets, draw_calls_ahead, draw_options
from clonos_chaos.swarm.world import World
from clonos_chaos.user.user_calls import Call, CallWatch
from clonos_chaos.user.user_graph import Ready
from clonos_chaos.user.user_job import UserJob
from clonos_chaos.user.user_sinks import RecordedRows, UserExternalSystem, held_wrongly
from clonos_services.stand_ins import StandIns

VIRTUAL_SECONDS_MAX: Final = 300
SHORT_PAUSES: Final = 8
"""Number of short pauses of processes in a fault-free world."""

DEATHS: Final = ("kill", "kill", "kill", "kill_linked", "kill_domain", "false_suspicion", "pause")
"""Faults after most of which a task has a successor."""

RECORDS_USUAL: Final = 100
STEPS_WANTED: Final = 40
"""Steps of each source, if the number of records is known."""

LOOK_EVERY: Final = 8
"""Messages between two checks of all logs: jobs of tests are small."""

Check = Callable[["Outputs"], object]


class Outputs(Mapping[str, list[Any]]):
    """Output of a world by the name of the sink; ``rows`` of the only sink. ``calls``: in order.

    ``exposed``: tasks that died together with all their keepers, so that their effects may have been repeated.
    """

    def __init__(
        self, rows: dict[str, list[Any]], seed: int, rollbacks: int, calls: Sequence[Call], exposed: Sequence[str] = ()
    ) -> None:
        self._rows = rows
        self.seed = seed
        self.rollbacks = rollbacks
        self.calls = tuple(calls)
        self.exposed = tuple(exposed)

    @property
    def rows(self) -> list[Any]:
        """Returns the rows of the only sink, or of all sinks in turn."""
        return [row for rows in self._rows.values() for row in rows]

    def __getitem__(self, sink: str) -> list[Any]:
        return self._rows[sink]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Outputs({self._rows!r})"


def _nothing(_outputs: Outputs) -> list[str]:
    return []


@dataclass
class Judging:
    """Judges of a test's world. ``compare``: returns complaints about outputs that must be equal in all worlds."""

    stand_ins: StandIns = field(default_factory=StandIns)
    check: Check | None = None
    compare: Callable[[Outputs], list[str]] = _nothing


class UserWorld(World):
    """World of one seed for a user's job."""

    def __init__(
        self,
        seed: int,
        job: Ready,
        judging: Judging,
        only_faults: Mapping[int, FaultRng] | None = None,
        is_fault_free: bool = False,
        *,
        virtual_seconds_max: int = VIRTUAL_SECONDS_MAX,
    ) -> None:
        """``is_fault_free``: nothing fails; processes only pause briefly."""
        self._virtual_seconds_max = virtual_seconds_max
        rng = Random(f"test world {seed}")
        self.watch = CallWatch(lambda error: self.crashes.append(error))
        self.judging = judging
        self.check_error: Exception | None = None
        self._commit_rng = Random(f"commits of {seed}")
        options = draw_calls_ahead(_options(job, rng), seed)
        super().__init__(
            seed,
            options=options,
            settings=_settings(rng, is_fault_free),
            job=lambda _: UserJob(job, self.watch, options),
            only_faults=only_faults,
        )
        self._sinks, self._vertices = job.image.sinks, job.image.vertices
        self._recorded = job.sinks
        for task, external in self.externals.items():
            own = getattr(self._sinks[self.plan.vertex_of[task]], "own", None)
            self.externals[task] = external if own is None else UserExternalSystem(external.task_name, own)
        self.clock.at(virtual_seconds_max * SECOND_NS, self._last_too_long)

    def run(self) -> WorldOutcome:
        for sink in self._transactional():
            sink.prepare_output(JOB_ID, False, True)
        try:
            with ExitStack() as stack:
                stack.enter_context(self.judging.stand_ins.answering())
                stack.enter_context(self.watch.watching())
                stack.enter_context(_hidden_rng(self.seed))
                return super().run()
        finally:
            for external in self.externals.values():
                if isinstance(external, UserExternalSystem):
                    external.close()

    def _transactional(self) -> list[RecordedRows]:
        return [sink for sink in self._recorded.values() if isinstance(sink, RecordedRows)]

    def _last_too_long(self) -> None:
        if self.ending is None:
            self.fail(
                f"the job has not ended within {self._virtual_seconds_max} virtual seconds:"
                " give it input that ends (inputs=)"
            )

    # ------------------------------------------------------------------ called by the world

    def is_unexpected(self, error: BaseException) -> bool:
        """Returns whether an error fails the test: all but faults of the environment, which are retried."""
        cause = error.__cause__ if error.__cause__ is not None else error
        return not isinstance(cause, EnvironmentFault)

    def contradicted(self, channel: ChannelId, seq: int, before: Sequence[str], now: Sequence[str]) -> None:
        """Fails the world: from the same input and log, a successor makes other rows than were sent before."""
        ends = self.plan.channels[channel]
        sender, receiver = (self.plan.task_name(task) for task in (ends.sender, ends.receiving_task))
        image = self._vertices[self.plan.vertex_of[ends.sender]]
        old, new = next((old, new) for old, new in zip(before, now, strict=True) if old != new)
        self.fail(
            f"{sender} had sent {old:.300} to {receiver}, but a successor with the same log makes {new:.300} from the"
            f" same input.\nLikely cause: {likely_cause(image.suspects_of(''), '', OTHER_OUTPUT)}"
            " (docs/determinism.md)"
        )

    def commit(self, checkpoint: int, parts: tuple[VertexParts, ...]) -> None:
        of_vertex = {entry.vertex: list(entry.parts) for entry in parts}
        for vertex, sink in self._sinks.items():
            if isinstance(sink, (TransactionalSink, CombinedSinks)):
                for _ in range(
                    self._commit_rng.choice((1, 1, 2))
                ):  # a driver may die before it records the first commit
                    sink.commit(JOB_ID, checkpoint, of_vertex.get(vertex, []))
        self.committed_up_to = max(self.committed_up_to, checkpoint)

    def outputs(self) -> Outputs:
        """Returns the output of the job so far."""
        rows: dict[str, list[Any]] = {}
        for name, sink in self._recorded.items():
            if isinstance(sink, RecordedRows):
                rows[name] = list(sink.rows)
            else:
                tasks = [task for task in self.externals if self._sinks[self.plan.vertex_of[task]] is sink]
                rows[name] = [row for task in tasks for row in self.externals[task].rows]
        exposed = [self.plan.task_name(task) for task in sorted(self.oracle.survival.effects_exposed)]
        return Outputs(rows, self.seed, self.outcome.rollbacks, self.watch.calls, exposed)

    def complaints(self) -> list[str]:
        self.oracle.look()
        exposed = {self.plan.task_name(task) for task in self.oracle.survival.effects_exposed}
        found = [text for external in self.externals.values() for text in external.complaints]
        found += self.watch.complaints(exposed, self.oracle.situations.moved)
        outputs = self.outputs()
        may_differ = any(external.alarms_due for external in self.externals.values())
        for name, sink in self._recorded.items():
            if sink.own is not None and not (may_differ and not isinstance(sink, RecordedRows)):
                found += held_wrongly(name, sink.own, outputs[name])
        found += self.judging.compare(outputs)
        return found or self._checked(outputs)

    def _checked(self, outputs: Outputs) -> list[str]:
        if self.judging.check is None:
            return []
        try:
            self.judging.check(outputs)
        except Exception as error:  # noqa: BLE001  the user's own assertion, which is shown as the cause
            self.check_error = error
            return [f"the check raised {type(error).__name__}: {str(error) or 'without a message'}"]
        return []


@contextmanager
def _hidden_rng(seed: int) -> Iterator[None]:
    """Seeds the module ``random``, so that a job that uses it fails in the same way each time."""
    before = random.getstate()
    random.setstate(Random(f"hidden randomness of {seed}").getstate())
    try:
        yield
    finally:
        random.setstate(before)


def _options(job: Ready, rng: Random) -> Options:
    """Draws options of the runtime; options that a job's guarantees depend on stay as given."""
    own, named = job.settings.core, job.settings.origins
    drawn = draw_budgets(draw_options(rng), rng)
    records = RECORDS_USUAL if job.records is None else job.records
    step_records = rng.choice((1, 1, 2, 4, 8)) * max(1, records // STEPS_WANTED)
    return replace(
        drawn,
        step_records_first=step_records,
        step_records_max=step_records,
        checkpoint_every_ms=rng.choice((10, 20, 20, 50)),
        keepers=own.keepers,
        standbys=own.standbys if "standbys" in named else drawn.standbys,
        sharing_depth=own.sharing_depth,
        replicas=own.replicas,
        max_parallelism=own.max_parallelism,
        clock_tick_ms=own.clock_tick_ms,
        causal_logging=own.causal_logging,
    )


def _settings(rng: Random, is_fault_free: bool) -> WorldSettings:
    """Draws slow steps and a fast store, so that successors have checkpoints to restore."""
    mix = rng.sample(sorted(set(KINDS)), rng.choice((1, 2, 4)))
    drawn = replace(
        WorldSettings.draw(rng),
        disk=DiskEnvironment.draw(rng),
        look_every=LOOK_EVERY,
        step_ns_max=rng.choice((5, 10, 20)) * MILLISECOND_NS,
        store_ns_max=rng.choice((1, 5, 20)) * MILLISECOND_NS,
        fault_span_ms=(50, 100, 200, 400),
    )
    if is_fault_free:
        return replace(drawn, fault_counts=(SHORT_PAUSES,), fault_kinds=(SHORT_PAUSE,))
    kinds = rng.choice((KINDS, DEATHS, DEATHS, tuple(mix)))
    return replace(drawn, fault_counts=(1, 2, 2, 3, 4, 6, 8), fault_kinds=kinds)
