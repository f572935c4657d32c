"""Faults aimed at points of the protocol (docs/chaos.md): a point is one that a world announces."""

import pytest

from clonos.io.process.fault_points import FaultPoint, of_shadow
from clonos_chaos.sim.targeted_faults import DRAWN, TargetedFault, everywhere, loses


@pytest.mark.parametrize("point", ["outside writen", "spilling", "keeping delivered", "live of a shade", ""])
def test_an_aim_at_a_point_that_no_world_announces_is_a_mistake(point: str) -> None:
    with pytest.raises(AssertionError, match="no world reaches"):
        TargetedFault(point, loses)


@pytest.mark.parametrize("point", [*DRAWN, FaultPoint.ROLLBACK_ISSUED, of_shadow(FaultPoint.START), "view sent"])
def test_an_aim_may_be_at_any_point_that_a_world_announces(point: str) -> None:
    assert TargetedFault(point, loses).where is everywhere
