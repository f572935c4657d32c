"""What the command line of pytest wishes of crash tests. Imports nothing: the plugin is loaded in every run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class CrashTestOptions:
    """None: as the test says. ``faults`` and ``records`` are of the one world that ``seed`` names."""

    seed: int | None = None
    seeds: int | None = None
    faults: tuple[int, ...] | None = None
    records: int | None = None


options = CrashTestOptions()
"""Of this process."""
