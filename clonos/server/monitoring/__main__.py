"""Writes the alert rules and the dashboards into a folder: ``python -m clonos.server.monitoring FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from clonos.server.monitoring.dashboards import write_monitoring

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m clonos.server.monitoring FOLDER")
    write_monitoring(Path(sys.argv[1]))
