"""Test tools: ``crash_test`` runs a job in simulated worlds with failures, ``Harness`` drives one function,
``check_sink`` and ``check_source`` find the guarantee of a connector.

Names are loaded lazily, because pytest imports this package at its start for the plugin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clonos.replay.replay_report import ReplayReport as ReplayReport
    from clonos.replay.replay_session import replay as replay
    from clonos.testing.crashes import crash_test as crash_test
    from clonos_chaos.connectors.checking import check_sink as check_sink
    from clonos_chaos.connectors.checking import check_source as check_source
    from clonos_chaos.connectors.guarantees import Evidence as Evidence
    from clonos_chaos.connectors.guarantees import Guarantee as Guarantee
    from clonos_chaos.connectors.guarantees import Guarantees as Guarantees
    from clonos_chaos.connectors.network_link import NetworkLink as NetworkLink
    from clonos_chaos.user.crash_testing import CrashReport as CrashReport
    from clonos_chaos.user.crash_testing import CrashTestFailed as CrashTestFailed
    from clonos_chaos.user.harness import Harness as Harness
    from clonos_chaos.user.harness import OutputDiverged as OutputDiverged
    from clonos_chaos.user.harness_steps import HarnessMisused as HarnessMisused
    from clonos_chaos.user.user_calls import Call as Call
    from clonos_chaos.user.user_world import Outputs as Outputs

_MODULE_OF = {
    "crash_test": "clonos.testing.crashes",
    "check_sink": "clonos_chaos.connectors.checking",
    "check_source": "clonos_chaos.connectors.checking",
    "Harness": "clonos_chaos.user.harness",
    "CrashTestFailed": "clonos_chaos.user.crash_testing",
    "OutputDiverged": "clonos_chaos.user.harness",
    "HarnessMisused": "clonos_chaos.user.harness_steps",
    "NetworkLink": "clonos_chaos.connectors.network_link",
    "Guarantees": "clonos_chaos.connectors.guarantees",
    "Guarantee": "clonos_chaos.connectors.guarantees",
    "Evidence": "clonos_chaos.connectors.guarantees",
    "CrashReport": "clonos_chaos.user.crash_testing",
    "Outputs": "clonos_chaos.user.user_world",
    "Call": "clonos_chaos.user.user_calls",
    "ReplayReport": "clonos.replay.replay_report",
    "replay": "clonos.replay.replay_session",
}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'clonos.testing' has no attribute {name!r}")
    from clonos.core.model.errors import needing_extra  # late, because the plugin needs nothing of the runtime

    with needing_extra(f"clonos.testing.{name}", "testing"):
        module = import_module(_MODULE_OF[name])
    found = getattr(module, name)
    globals()[name] = found
    return found
