"""Names of the cases of the benchmark of fail-over: what ``--cases`` takes, and what figures are called."""

from __future__ import annotations

from typing import Final

TITLES: Final = {
    "count": "counting task, 2,000 lines/s",
    "count-half": "counting task, half load",
    "count-half-5s": "counting task, half load, epochs of 5 s",
    "hot": "hot standby, 2,000 lines/s",
    "hot-half": "hot standby, half load",
    "hot-own-half": "hot standby, half of its own load",
    "source-half": "source task, half load",
    "linked-half": "linked tasks, half load",
    "linked-three": "three linked tasks",
    "count-no-standby": "counting task without standby",
    "count-500mb": "counting task, 500 MB of state",
    "columns": "windows in columns, little state",
    "columns-1m": "windows in columns, a million keys",
    "worker": "worker of Spark",
    "executor": "executor of Spark",
    "executor-no-standby": "executor without standby",
}
"""Title of each case, by its name."""
