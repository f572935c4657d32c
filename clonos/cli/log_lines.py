"""Log lines on standard error."""

from __future__ import annotations

import logging
from typing import Final

from clonos_standby.driver.printed_lines import StandardErrorHandler

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_console(is_verbose: bool) -> None:
    """Lets log lines appear on the standard error of the moment, which a live table may have replaced."""
    handler = StandardErrorHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("clonos").setLevel(logging.INFO if is_verbose else logging.WARNING)
