"""How an incarnation's thread begins to follow its log: it is started, or a shadow's is given the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.ports.task_port import Activation, TaskHandle
from clonos.core.standby.takeover import hand_rest

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask


def start(hosted: HostedTask) -> None:
    """All that it needs is there."""
    if hosted.handle is None:
        hosted.handle = _start_thread(hosted)
    else:
        hand_rest(hosted)
    hosted.update_output_budget()
    for command in hosted.queued:
        hosted.handle.put(command)
    hosted.queued.clear()
    if hosted.asked is not None:
        hosted.handle.put(hosted.asked)


def _start_thread(hosted: HostedTask) -> TaskHandle:
    own, journal, view = hosted.logs.replicas[hosted.own_log], hosted.effects.journal, hosted.slot.view
    activation = Activation(
        hosted.incarnation,
        hosted.snapshot,
        hosted.mirror,
        bytes(own.data),
        own.start_bytes,
        view.generation,
        hosted.placement.is_cautious,
        view.job_id,
        journal.recovered if journal is not None else b"",
        outside_claim=hosted.effects.claim or 0,
    )
    hosted.mirror = None
    return hosted.shell.start_task(hosted.task, hosted.thread, activation)
