"""Lines of slots in the driver: their loggers, and what user code prints, on standard error with the name of the task.

Standard output belongs to the rows of ``stdout()``.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

from clonos_standby.slot.log_forwarding import ROOT


class StandardErrorHandler(logging.Handler):
    """Handler that writes to the standard error of the moment, which a display may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line."""
        output: TextIO = sys.stderr
        output.write(f"{self.format(record)}\n")
        output.flush()


PRINTED_LINES: Final = logging.getLogger("clonos.printed")
PRINTED_LINES.propagate = False
PRINTED_LINES.setLevel(logging.DEBUG)
PRINTED_LINES.addHandler(StandardErrorHandler())


def logger_of(name: str) -> logging.Logger:
    """Returns the logger of this name, else the library's or the root: a peer must not create loggers."""
    if name in logging.Logger.manager.loggerDict:
        return logging.getLogger(name)
    return logging.getLogger(ROOT if name.startswith(ROOT) else None)
