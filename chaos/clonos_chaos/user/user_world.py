"""A simulated world that runs a job of the user's: as any other, and judged by what can be said of every job."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from clonos.core.checkpoint.checkpoint_metadata import VertexParts
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import Chain, ChainContext, ChainSnapshot, Mirror
from clonos.operators.chain import OperatorChain, VertexImage
from clonos.operators.chain_outputs import SeveralSinks
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.job_image import JobImage
from clonos_chaos.sim.external_systems import JOB_ID
from clonos_chaos.sim.producers import SimPusher
from clonos_chaos.sim.random_faults import HESITATE, KINDS, FaultRng
from clonos_chaos.sim.sim_spill import DiskWeather, draw_budgets
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS, SECOND_NS
from clonos_chaos.swarm.random_options import draw_calls_ahead, draw_options
from clonos_chaos.swarm.world import World, WorldOutcome, WorldSettings
from clonos_chaos.user.user_calls import Call, CallWatch, StandIns, WatchedSubmitting
from clonos_chaos.user.user_graph import Ready
from clonos_chaos.user.user_sinks import KeptRows, OwnOutside, held_wrongly

VIRTUAL_SECONDS_MAX: Final = 300
HESITATIONS: Final = 8
"""In worlds without faults so often a process stands still for a while."""

DEATHS: Final = ("kill", "kill", "kill", "kill_linked", "kill_domain", "false_suspicion", "pause")
"""Faults behind most of which a task has a successor."""

RECORDS_USUAL: Final = 100
STEPS_WANTED: Final = 40
"""Of each source, as far as its records are known."""

LOOK_EVERY: Final = 8
"""Messages between two looks at all logs: jobs of tests are small."""

Check = Callable[["Outputs"], object]


class Outputs(Mapping[str, list[Any]]):
    """What a world's sinks got, by the name of their step; ``rows`` of the only one. ``calls``: in their order.
    ``exposed``: tasks that died together with all their keepers, so that their effects may have been made again."""

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
        """Those of the only sink; of all sinks, one after the other, where there are several."""
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
    """What a world of a test is judged by. ``compare``: complaints about outputs that all worlds have in common."""

    stand_ins: StandIns = field(default_factory=StandIns)
    check: Check | None = None
    compare: Callable[[Outputs], list[str]] = _nothing


class WatchedChain(OperatorChain):
    """An operator chain that tells where its calls and snapshots stand."""

    def __init__(self, image: VertexImage, calls: CallWatch) -> None:
        super().__init__(image)
        self._calls = calls

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        self._context = context
        self._calls.opened(context)
        recorder: Any = WatchedSubmitting(context.recorder, self._calls)
        super().open(replace(context, recorder=recorder), mirror, position)

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        self._calls.at_barrier(self._context.recorder, checkpoint)
        return super().snapshot(checkpoint, full)


class _Calls:
    """What a world knows a job's service by: all that was asked."""

    def __init__(self, watch: CallWatch) -> None:
        self.answers: Any = watch.calls


class UserJob:
    """What ``World`` needs of a job. Each incarnation gets a copy of the user's objects, as a slot's process does."""

    def __init__(self, job: Ready, calls: CallWatch, options: Options) -> None:
        self.ready = job
        self.name = job.image.plan.job_name
        self.plan = replace(job.image.plan, sharing_depth=options.sharing_depth, replicas=options.replicas)
        self.service = _Calls(calls)
        self.records = job.records or 0
        self.copies = 1
        self.pushers: dict[TaskId, SimPusher] = {}
        self.chains_open = 0  # operators see to their resources themselves
        self._calls = calls

    def expected(self) -> Sequence[int]:
        """Nothing is known of what must come out."""
        return ()

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """There are no pushers."""
        return []

    def new_chain(self, vertex: int) -> Chain:
        """For one incarnation."""
        image: JobImage = pickle.loads(self.ready.packed)  # noqa: S301  it was packed by this process
        return WatchedChain(image.vertices[vertex], self._calls)

    def new_mirror(self, vertex: int) -> Mirror:
        """An empty image of its state."""
        return self.ready.image.new_mirror(vertex)


class UserWorld(World):
    """A world of one seed for a job of the user's."""

    def __init__(
        self,
        seed: int,
        job: Ready,
        judging: Judging,
        only_faults: Mapping[int, FaultRng] | None = None,
        is_calm: bool = False,
        *,
        virtual_seconds_max: int = VIRTUAL_SECONDS_MAX,
    ) -> None:
        """``is_calm``: nothing fails; processes only stand still for a while."""
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
            settings=_settings(rng, is_calm),
            job=lambda _: UserJob(job, self.watch, options),
            only_faults=only_faults,
        )
        self._sinks = job.image.sinks
        self._kept = job.sinks
        for task, outside in self.outsides.items():
            own = getattr(self._sinks[self.plan.vertex_of[task]], "own", None)
            self.outsides[task] = outside if own is None else OwnOutside(outside.task_name, own)
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
            for outside in self.outsides.values():
                if isinstance(outside, OwnOutside):
                    outside.close()

    def _transactional(self) -> list[KeptRows]:
        return [sink for sink in self._kept.values() if isinstance(sink, KeptRows)]

    def _last_too_long(self) -> None:
        if self.ending is None:
            self.fail(
                f"the job has not ended within {self._virtual_seconds_max} virtual seconds:"
                " give it input that ends (inputs=)"
            )

    # ------------------------------------------------------------------ what a world asks

    def is_unexpected(self, error: BaseException) -> bool:
        """Whatever a test's job raises, but for faults of the environment, which it may try again."""
        cause = error.__cause__ if error.__cause__ is not None else error
        return not isinstance(cause, EnvironmentFault)

    def contradicted(self, channel: ChannelId, seq: int, before: Sequence[str], now: Sequence[str]) -> None:
        """A successor makes of the same input and the same log other rows than somebody has seen."""
        ends = self.plan.channels[channel]
        sender, receiver = (self.plan.task_name(task) for task in (ends.sender, ends.receiving_task))
        old, new = next((old, new) for old, new in zip(before, now, strict=True) if old != new)
        self.fail(
            f"{sender} had sent {old:.300} to {receiver}, and a successor with the same log makes {new:.300} of the"
            " same input. Its code takes time, luck or answers from elsewhere than the causal services, or remembers"
            " something outside of declared state (docs/determinism.md)"
        )

    def commit(self, checkpoint: int, parts: tuple[VertexParts, ...]) -> None:
        of_vertex = {entry.vertex: list(entry.parts) for entry in parts}
        for vertex, sink in self._sinks.items():
            if isinstance(sink, (TransactionalSink, SeveralSinks)):
                for _ in range(self._commit_rng.choice((1, 1, 2))):  # a driver may die before it knows of the first
                    sink.commit(JOB_ID, checkpoint, of_vertex.get(vertex, []))
        self.committed_up_to = max(self.committed_up_to, checkpoint)

    def outputs(self) -> Outputs:
        """What has left the job so far."""
        rows: dict[str, list[Any]] = {}
        for name, sink in self._kept.items():
            if isinstance(sink, KeptRows):
                rows[name] = list(sink.rows)
            else:
                tasks = [task for task in self.outsides if self._sinks[self.plan.vertex_of[task]] is sink]
                rows[name] = [row for task in tasks for row in self.outsides[task].rows]
        exposed = [self.plan.task_name(task) for task in sorted(self.oracle.survival.effects_exposed)]
        return Outputs(rows, self.seed, self.outcome.rollbacks, self.watch.calls, exposed)

    def complaints(self) -> list[str]:
        self.oracle.look()
        exposed = {self.plan.task_name(task) for task in self.oracle.survival.effects_exposed}
        found = [text for outside in self.outsides.values() for text in outside.complaints]
        found += self.watch.complaints(exposed)
        outputs = self.outputs()
        may_differ = any(outside.alarms_due for outside in self.outsides.values())
        for name, sink in self._kept.items():
            if sink.own is not None and not (may_differ and not isinstance(sink, KeptRows)):
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
            return [f"the check raised {type(error).__name__}: {str(error) or 'without a word'}"]
        return []


@contextmanager
def _hidden_rng(seed: int) -> Iterator[None]:
    """The module ``random`` begins alike each time, so that a job that uses it fails alike each time."""
    before = random.getstate()
    random.setstate(Random(f"hidden luck of {seed}").getstate())
    try:
        yield
    finally:
        random.setstate(before)


def _options(job: Ready, rng: Random) -> Options:
    """What steers the runtime is drawn; what a job promises by an option stays as it says."""
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


def _settings(rng: Random, is_calm: bool) -> WorldSettings:
    """Slow steps and a quick store, so that there are checkpoints for a successor to begin from."""
    mix = rng.sample(sorted(set(KINDS)), rng.choice((1, 2, 4)))
    drawn = replace(
        WorldSettings.draw(rng),
        disk=DiskWeather.draw(rng),
        look_every=LOOK_EVERY,
        step_ns_max=rng.choice((5, 10, 20)) * MILLISECOND_NS,
        store_ns_max=rng.choice((1, 5, 20)) * MILLISECOND_NS,
        fault_span_ms=(50, 100, 200, 400),
    )
    if is_calm:
        return replace(drawn, fault_counts=(HESITATIONS,), fault_kinds=(HESITATE,))
    kinds = rng.choice((KINDS, DEATHS, DEATHS, tuple(mix)))
    return replace(drawn, fault_counts=(1, 2, 2, 3, 4, 6, 8), fault_kinds=kinds)
