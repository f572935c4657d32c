"""Lines that user code prints in slots, as the driver prints them: on standard error, with the name of the task.

Standard output belongs to the rows of ``stdout()``.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

from clonos.io.system.closed_pipes import write_or_discard


class StandardErrorHandler(logging.Handler):
    """Handler that writes to the standard error of the moment, which a display may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line."""
        write_or_discard(sys.stderr, f"{self.format(record)}\n")


PRINTED_LINES: Final = logging.getLogger("clonos.printed")
PRINTED_LINES.propagate = False
PRINTED_LINES.setLevel(logging.DEBUG)
PRINTED_LINES.addHandler(StandardErrorHandler())
