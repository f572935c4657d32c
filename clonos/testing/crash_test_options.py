"""Options of crash tests on pytest's command line.

Imports nothing of the runtime, because every test run loads the plugin.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CrashTestOptions:
    """Options of the command line; None leaves the choice to the test.

    ``faults`` and ``records`` apply to the one world that ``seed`` names.
    """

    seed: int | None = None
    seeds: int | None = None
    faults: tuple[int, ...] | None = None
    records: int | None = None


options = CrashTestOptions()
"""Options of this process."""
