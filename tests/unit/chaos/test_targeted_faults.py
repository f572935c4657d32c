"""Targeted faults (docs/chaos.md): a fault may name only points that a world announces."""

import pytest

from clonos.io.process.fault_points import FaultPoint, of_shadow
from clonos_chaos.sim.targeted_faults import DRAWN, TargetedFault, everywhere, loses


@pytest.mark.parametrize("point", ["outside writen", "spilling", "keeping delivered", "live of a shade", ""])
def test_a_targeted_fault_at_an_unknown_point_is_refused(point: str) -> None:
    with pytest.raises(AssertionError, match="no world reaches"):
        TargetedFault(point, loses)


@pytest.mark.parametrize("point", [*DRAWN, FaultPoint.ROLLBACK_ISSUED, of_shadow(FaultPoint.START), "view sent"])
def test_a_targeted_fault_may_name_any_point_of_the_world(point: str) -> None:
    assert TargetedFault(point, loses).where is everywhere
