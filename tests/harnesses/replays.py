"""Replays of records in another process, on another date, with other hashes, and without their systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clonos.replay.elsewhere import TIME_ZONE

_REPLAYS = """
import json, sys
from clonos.testing import replay
print(json.dumps([replay(folder).to_json() for folder in sys.argv[1:]]))
"""


def replays_elsewhere(records: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """The reports of replays as JSON, in the order of the records. ``folder``: in which the other process works."""
    done = subprocess.run(
        [sys.executable, "-c", _REPLAYS, *map(str, records)],
        env={**os.environ, "PYTHONHASHSEED": "5", "TZ": TIME_ZONE, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reports: list[dict[str, Any]] = json.loads(done.stdout)
    return reports
