"""pyspark's daemon that forks Python workers, with everything imported, so that a slot on an executor starts warm.

Set by ``spark.python.daemon.module`` where the library makes the session itself. What it imports starts no thread.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

from clonos.io.process.fork_server import warm_up

WARM_MODULES: Final = ("clonos_standby.slot.host", "clonos", "pyspark.worker")
"""What a slot needs, what the code of a job can ask for, and what pyspark's side of a worker needs."""


def main() -> None:
    """Imports, then serves the executor."""
    # Spark puts its own zip first, which has no compiled modules: an installed pyspark loads in a tenth of the time.
    sys.path.sort(key=lambda entry: entry.endswith(".zip"))
    warm_up(WARM_MODULES)
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
