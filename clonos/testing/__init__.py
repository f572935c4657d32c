"""Test tools for jobs: ``crash_test`` runs a job in simulated worlds with failures, ``Harness`` drives one function.

Names are loaded lazily, because pytest imports this package at its start for the plugin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from clonos.testing.crashes import crash_test as crash_test
    from clonos_chaos.user.crash_testing import CrashReport as CrashReport
    from clonos_chaos.user.crash_testing import CrashTestFailed as CrashTestFailed
    from clonos_chaos.user.harness import Harness as Harness
    from clonos_chaos.user.harness import OutputDiverged as OutputDiverged
    from clonos_chaos.user.harness_steps import HarnessMisused as HarnessMisused
    from clonos_chaos.user.user_calls import Call as Call
    from clonos_chaos.user.user_world import Outputs as Outputs

_MODULE_OF = {
    "crash_test": "clonos.testing.crashes",
    "Harness": "clonos_chaos.user.harness",
    "CrashTestFailed": "clonos_chaos.user.crash_testing",
    "OutputDiverged": "clonos_chaos.user.harness",
    "HarnessMisused": "clonos_chaos.user.harness_steps",
    "CrashReport": "clonos_chaos.user.crash_testing",
    "Outputs": "clonos_chaos.user.user_world",
    "Call": "clonos_chaos.user.user_calls",
}

__all__ = list(_MODULE_OF)

LIBRARY: Final = "greenlet"
"""Package that the simulated world needs besides those of every job."""


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'clonos.testing' has no attribute {name!r}")
    try:
        module = import_module(_MODULE_OF[name])
    except ModuleNotFoundError as missing:
        if missing.name != LIBRARY:
            raise
        from clonos.core.model.errors import ExtraMissing  # late, because the plugin needs nothing of the runtime

        raise ExtraMissing(f"clonos.testing.{name}", LIBRARY, "testing") from None
    found = getattr(module, name)
    globals()[name] = found
    return found
