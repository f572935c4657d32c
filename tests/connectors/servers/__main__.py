"""`python -m tests.connectors.servers fetch` installs all servers, `... start kafka` runs one for a trial by hand."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.connectors.servers.fetch import SYSTEMS, fetch, system

USAGE = f"""usage: python -m tests.connectors.servers fetch [NAME...]
       python -m tests.connectors.servers start NAME
NAME: {", ".join(SYSTEMS)}"""


def main(arguments: list[str]) -> None:
    """Runs one command."""
    command, names = (arguments[0] if arguments else ""), tuple(arguments[1:])
    if command not in ("fetch", "start") or set(names) - {*SYSTEMS} or (command == "start" and len(names) != 1):
        raise SystemExit(USAGE)
    fetch(names or SYSTEMS)
    if command == "start":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        module: Any = system(names[0])
        if not hasattr(module, "serve"):
            raise SystemExit(f"{module.NAME} is no server\n{USAGE}")
        with tempfile.TemporaryDirectory(prefix=f"clonos-{names[0]}-") as folder:
            module.serve(Path(folder))


main(sys.argv[1:])
