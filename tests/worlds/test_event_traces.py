"""What a slot has handled leads a fresh machine to the same effects and the same state, whatever happens in a world."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clonos.core.ports.slot_effects import Effect
from clonos.core.slot.event_trace import TracedSlot, replay
from clonos.core.slot.slot import Slot
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.swarm.environments import Swarm

pytestmark = [pytest.mark.worlds, pytest.mark.slow]


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Slot, bytearray]]:
    """Every slot of the worlds that are made from now on, with its trace."""
    found: list[tuple[Slot, bytearray]] = []
    right = SimSlot.__init__

    def init(self: SimSlot, *arguments: Any) -> None:
        right(self, *arguments)
        trace = bytearray()
        self.step = TracedSlot(self.slot, trace.extend).step
        found.append((self.slot, trace))

    monkeypatch.setattr(SimSlot, "__init__", init)
    return found


def status(slot: Slot) -> list[Effect]:
    """All that the slot would tell now: of its tasks' logs and counters, its standbys and keepers."""
    slot.shell.take()
    slot.send_status()
    return slot.shell.take()


def without_rows(lines: list[str]) -> list[str]:
    """Lines of a story without the digests of rows, which a trace does not have."""
    return [re.sub(r"taken=.*", "", line) for line in lines]


@pytest.mark.parametrize("seed", range(1, 13))
def test_the_events_of_each_slot_of_a_world_have_the_same_effects_again(
    seed: int, traces: list[tuple[Slot, bytearray]]
) -> None:
    Swarm(is_mixed=True).world(seed).run()
    assert len(traces) >= 2
    for slot, trace in traces:
        replayed = replay(bytes(trace))
        assert status(replayed) == status(slot)
        assert without_rows(replayed.story.lines()) == without_rows(slot.story.lines())
