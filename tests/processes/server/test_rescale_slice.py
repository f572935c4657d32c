"""A slice of rescales on real processes: kills before and after the checkpoint of a change, and an exact output."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.io.process.fault_points import FaultPoint
from clonos.status import RescalePhase
from clonos_chaos.project.served.rescale_kills import RescaleKill, Victim
from clonos_chaos.project.served.rescale_slice import RescaleSlice, SliceRecord

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

ORDERING = RescaleKill(RescalePhase.ORDERING, Victim.SLOT)
EARLY = RescaleKill(FaultPoint.ALIGNED, Victim.HERE)
BEFORE_VIEW = RescaleKill(FaultPoint.METADATA_WRITTEN, Victim.DRIVER, True)
SWITCHING = RescaleKill(FaultPoint.DIVIDED, Victim.DRIVER, True)
AFTER = RescaleKill(FaultPoint.START, Victim.HERE, True)


def test_widths_that_change_under_kills_leave_an_exact_output(tmp_path: Path) -> None:
    seen: list[int] = []

    def note(record: SliceRecord) -> bool:
        seen.append(record.made)
        return True

    record = RescaleSlice(1, tmp_path, [ORDERING, EARLY, BEFORE_VIEW, SWITCHING, AFTER], 400.0).run(note)
    assert (record.failure, record.examples) == ("", {})
    assert record.is_good
    assert record.records > 100
    assert seen == [1, 2, 3, 4, 5]
    assert record.missed <= 2, "on a busy machine a change may be given up before the moment of its kill"
    early = record.kills.get(str(EARLY), (0, 1))
    assert early == (0, 1), "a task that dies at the barrier of the change gives it up"
    for kill in (BEFORE_VIEW, SWITCHING, AFTER):
        after = record.kills.get(str(kill), (1, 0))
        assert after in ((1, 0), (0, 0)), "after the checkpoint nothing gives the change up, also no death"
