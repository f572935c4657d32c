"""A slice of conversations on real processes: kills with calls under way and at fault points, and equal outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.project.conversing.talk_slice import TalkKill, TalkRecord, TalkSlice
from clonos_chaos.project.conversing.talking_job import ModelClient

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

KILLS = [TalkKill(None), TalkKill(FaultPoint.CALLED), TalkKill(FaultPoint.INTENT)]


def test_killed_conversations_go_on_with_the_next_call_and_refund_each_order_once(tmp_path: Path) -> None:
    seen: list[int] = []

    def note(record: TalkRecord) -> bool:
        seen.append(record.made)
        return True

    record = TalkSlice(1, tmp_path, KILLS, ModelClient.HTTPX, conversations=24, turns=2).run(note)
    assert (record.failure, record.examples) == ("", {})
    assert record.is_good
    assert record.made + record.missed >= len(KILLS) - 1, "a fast machine may end the conversations early"
    assert record.logged == 24 * 2 * 2
    assert record.refunds == 24 * 2
