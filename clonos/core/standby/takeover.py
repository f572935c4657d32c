"""How a shadow becomes its task's next incarnation.

It changes nothing of the recovery but what is left to do: the same holders are asked, the same claims stated and
compared. What has come to the shadow's slot counts as one more answer, so the log that is gathered goes on where the
shadow has come to; and it stands where a life that had replayed so far would stand, its output and input included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.core.channel.sender import forget_output
from clonos.core.ports.task_port import ReplayExtended
from clonos.core.recovery.gathering import Gathering, Holder
from clonos.core.recovery.recovery_machine import Recovering

if TYPE_CHECKING:
    from clonos.core.slot.hosted_task import HostedTask


def adopt_shadow(hosted: HostedTask) -> None:
    """At the beginning of an incarnation: is there a shadow of the one before, and does it stand where it must?"""
    shadow = hosted.slot.shadows.get(hosted.task)
    if shadow is None or not isinstance(hosted.state, Recovering):
        return
    assert shadow.is_sealed, hosted.task
    asked = hosted.state.gathering
    answer = Holder(hosted.task, False, hosted.slot.id), shadow.held(hosted.placement.log_offset_bytes)
    gathering = Gathering(asked.view, asked.waiting_for, (*asked.answers, answer))
    if shadow.stands_at(hosted.placement.restore):
        hosted.promoted_shadow = shadow
        hosted.snapshot = shadow.reached[hosted.placement.restore]
    else:
        hosted.slot.drop_shadow(hosted.task)
    hosted.state = Recovering(gathering, hosted.state.is_restored or hosted.promoted_shadow is not None)


def drop_shadow(hosted: HostedTask) -> None:
    """The shadow has failed before it took over: the state is restored as if there had been none."""
    hosted.promoted_shadow = hosted.snapshot = None
    hosted.slot.drop_shadow(hosted.task)
    assert isinstance(hosted.state, Recovering), hosted.state
    hosted.state = Recovering(hosted.state.gathering, False)
    hosted.slot.restore(hosted)


def take_over(hosted: HostedTask) -> None:
    """The logs are adopted, the channels open: the shadow's thread is this incarnation's, with what it has worked off
    and what it was given."""
    shadow = hosted.promoted_shadow
    assert shadow is not None and hosted.snapshot is not None and shadow.thread is not None, hosted.task
    hosted.thread, hosted.handle = shadow.thread, shadow.handle
    hosted.handled_bytes, hosted.fed_bytes = shadow.handled_bytes, shadow.fed_bytes
    hosted.records_in = shadow.records_in
    for channel, receiving in hosted.inputs.receivings.items():
        had = shadow.receivings[channel]
        receiving.next_seq, receiving.queued_bytes = had.next_seq, had.queued_bytes
        receiving.processed_seq = had.processed_seq
        receiving.needed_seq = shadow.needed.get(channel, 0)
    forget_output(hosted.sendings, hosted.snapshot)  # the slot may not have heard yet that its checkpoint is complete
    for checkpoint, snapshot in sorted(shadow.reached.items()):
        if checkpoint > hosted.placement.restore:
            hosted.take_snapshot(snapshot, (), shadow.more.get(checkpoint))
    hosted.slot.forget_shadow(hosted.task)


def hand_rest(hosted: HostedTask) -> None:
    """The end of the log: the task follows it, and is live behind it."""
    own = hosted.logs.replicas[hosted.own_log]
    assert hosted.handle is not None and hosted.fed_bytes <= own.end_bytes, hosted.task
    rest = bytes(own.data[hosted.fed_bytes - own.start_bytes :])
    hosted.handle.put(ReplayExtended(rest, True, hosted.placement.is_cautious))
