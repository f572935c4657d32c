"""pyspark's daemon that forks Python workers, with all modules imported, so that a slot on an executor starts quickly.

It is set by ``spark.python.daemon.module`` in sessions that the library starts. Its imports start no thread.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

from clonos.io.process.fork_server import warm_up

WARM_MODULES: Final = ("clonos_standby.slot.host", "clonos", "pyspark.worker")
"""Modules of a slot, modules that the code of a job can import, and those of pyspark's worker."""


def main() -> None:
    """Imports the modules, then serves the executor."""
    # Spark puts its own zip first, which has no compiled modules; an installed pyspark loads ten times as fast.
    sys.path.sort(key=lambda entry: entry.endswith(".zip"))
    warm_up(WARM_MODULES)
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
