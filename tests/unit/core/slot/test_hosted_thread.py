"""Counts of a task that its slot has from a snapshot, before the first step of the incarnation."""

from __future__ import annotations

from msgspec.structs import replace

from clonos.core.log.causal_log import Replica
from clonos.core.model.ids import TaskId, ThreadId
from clonos.core.ports.effect_collector import EffectCollector
from clonos.core.slot.hosted_thread import HostedThread
from tests.harnesses.recording_chain import RecordingMirror
from tests.harnesses.sample_plans import placement, view
from tests.unit.inflight.samples import snapshot


def test_a_restored_task_has_the_counts_of_its_snapshot_before_its_first_step() -> None:
    taken = replace(snapshot(3, ()), records_in=40)
    thread = HostedThread(TaskId(0), ThreadId(1), EffectCollector(lambda _: RecordingMirror()))
    thread.start(view(1, []), placement(0, 2, 1), taken, None, Replica(0), b"", 0)
    assert thread.records_in == 40
